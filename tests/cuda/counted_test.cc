// Kernels behind a count (cuda/text/counted.h): for each family that knows its items, rows that count are right, rows behind the last item are not touched, for
// no row, one, some and all. What is left out is seen by the contents of the memory, which a kernel that computes everything would change.
#include "cuda/text/counted.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/conv_scene.h"
#include "cuda/conv_tiles.h"
#include "cuda/emulation/emulated_test.h"
#include "cuda/families/families.h"
#include "cuda/families/matmul/matmul_mma.h"
#include "cuda/family_scene.h"
#include "cuda/matmul_scene.h"
#include "cuda/plain_scene.h"
#include "cuda/rows_scene.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using cuda::Family;
using ir::DType;
using program::Op;
using region::BufferKind;

const cuda::Target kSm80{"sm_80", 108, 163 * 1024}, kSm90{"sm_90a", 132, 227 * 1024};
constexpr const char* kNotCounted = "not counted";

/// Dimension `dim` of the region's space counted, whose elements are `room`.
region::Region counted(region::Region r, std::int32_t dim) {
  r.count = 0;
  for (region::Stage& s : r.stages) s.counted = dim;
  return r;
}

/// The truth of one region and one input does not depend on the count: computed by the first call, copied by the others.
Truth computed_once(const region::Plan& plan, const Truth& truth) {
  return [&plan, &truth, kept = std::vector<std::vector<std::byte>>()](const region::Region& r, const region::Memory& m) mutable {
    const auto bytes = [&](std::size_t b) { return static_cast<std::size_t>(plan.buffers[b].bytes); };
    if (kept.empty()) {
      truth(r, m);
      for (std::size_t b = 0; b < m.base.size(); ++b) kept.emplace_back(m.base[b], m.base[b] + bytes(b));
    } else {
      for (std::size_t b = 0; b < m.base.size(); ++b) std::copy(kept[b].begin(), kept[b].end(), m.base[b]);
    }
  };
}

/// "" or what is wrong for one of the counts.
std::string of_counts(const region::Region& given, const region::Plan& plan, const std::vector<std::vector<std::byte>>& memory,
                      std::size_t guard, const Family& family, const cuda::Parameters& parameters, const cuda::Target& target,
                      float tolerance = 0, const Truth& truth = reference_region, std::int32_t dim = 0) {
  const region::Region r = counted(given, dim);
  const std::int64_t room = r.stages[0].space[static_cast<std::size_t>(dim)];
  const Truth once = computed_once(plan, truth);
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, room / 2, room - 1, room}) {
    const std::string wrong = run_emulated({r, plan, memory, guard, 7, count}, family, parameters, tolerance, {}, once, target);
    if (!wrong.empty()) return fmt::format("{} of {}: {}", count, room, wrong);
  }
  return "";
}

std::string of_counts(Scene& s, const Family& family, float tolerance = 0, const Truth& truth = scalar_region,
                      const cuda::Target& target = kSm80, std::int32_t dim = 0) {
  constexpr std::size_t kGuard = 64;
  const region::Region& r = s.region();
  const auto all = family.candidates(r, s.plan(), target);
  if (all.empty()) return "refused: " + spelled(family.why_not(r, s.plan(), target));
  return of_counts(r, s.plan(), s.memory, kGuard, family, all[0].parameters, target, tolerance, truth, dim);
}

class CountedKernels : public EmulatedTest {};

TEST_F(CountedKernels, ElementByElement) {
  const ir::Shape shape{37, 3, 5, 2};
  for (const int leading : {0, 1}) {  // dimensions of one element in front
    for (const bool turned : {false, true}) {
      Scene s(static_cast<std::uint32_t>(3 + leading));
      auto& st = s.stage();
      st.space = shape;
      if (leading > 0) st.space = {1, 37, 3, 10};
      st.program.operand_count = 1;
      const std::vector<int> order = leading > 0 ? std::vector<int>{0, 1, 3, 2} : std::vector<int>{0, 2, 3, 1};
      st.operands.push_back({s.tensor(DType::f32, st.space, BufferKind::input, turned ? order : std::vector<int>{}), {}});
      st.program.outputs = {{st.program.push(Op::mul, st.program.load(Op::load_f, 0), st.program.imm_f(0.5F)), DType::f32}};
      st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
      EXPECT_EQ(of_counts(s, cuda::pointwise_family(), 0, scalar_region, kSm80, leading), "");
    }
  }
}

TEST_F(CountedKernels, MovesByIndex) {
  Scene s(5);
  auto& st = s.stage();
  st.space = {41, 24};
  st.anchor.op = ir::Op::gather;
  st.anchor.facts = ir::Gather{.axis = 0};
  st.anchor.inputs = {s.tensor(DType::f32, {9, 24}, BufferKind::input), s.tensor(DType::s64, {41}, BufferKind::input)};
  auto* ids = reinterpret_cast<std::int64_t*>(s.memory.back().data() + 64);
  for (int i = 0; i < 41; ++i) ids[i] = s.pick(-9, 8);
  st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
  EXPECT_EQ(of_counts(s, cuda::move_family()), "");
}

TEST_F(CountedKernels, ElementsBehindOthersInMemoryAreAllComputed) {
  Scene s(6);
  auto& st = s.stage();
  st.space = {6, 8};
  st.program.operand_count = 1;
  st.operands.push_back({s.tensor(DType::f32, st.space, BufferKind::input), {}});
  st.program.outputs = {{st.program.push(Op::mul, st.program.load(Op::load_f, 0), st.program.imm_f(0.5F)), DType::f32}};
  st.stores = {s.tensor(DType::f32, st.space, BufferKind::output, {1, 0})};
  EXPECT_NE(of_counts(s, cuda::pointwise_family()).find(kNotCounted), std::string::npos);
}

TEST_F(CountedKernels, RowsOfSoftmaxAndNorms) {
  for (const ir::Op op : {ir::Op::softmax, ir::Op::log_softmax, ir::Op::layer_norm}) {
    Scene s(8);
    RowCase c;
    c.op = op, c.space = {9, 5, 40};
    build(s, c);
    EXPECT_EQ(of_counts(s, family_of(op), 2e-5F, reference_region), "") << ir::name_of(op);
  }
  for (const std::int64_t extent : {12, 300}) {  // a thread a row, a block a row
    Scene s(9);
    auto& st = s.stage();
    st.space = {17, extent, 3};
    st.anchor.op = ir::Op::softmax;
    st.anchor.facts = ir::Along{1};
    st.anchor.inputs = {s.tensor(DType::f32, st.space, BufferKind::input)};
    st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
    st.stores = {s.tensor(DType::f32, st.space, BufferKind::output)};
    EXPECT_EQ(of_counts(s, cuda::softmax_family(), 2e-5F, reference_region), "") << extent;
  }
}

TEST_F(CountedKernels, ProductsByRowsAndByMatrices) {
  EveryOther some;
  for (const auto& [batch, m, n] :
       std::vector<std::tuple<ir::Shape, std::int64_t, std::int64_t>>{{{}, 70, 24}, {{}, 70, 1}, {{5}, 9, 40}, {{5, 2}, 9, 33}}) {
    for (const cuda::ProductType type : {cuda::ProductType::u8, cuda::ProductType::f16, cuda::ProductType::f32}) {
      for (const bool shared : {false, true}) {
        if (!some.takes(n, batch.size(), type, shared)) continue;
        ProductCase c;
        c.type = type, c.batch = batch, c.m = m, c.n = n, c.k = 40, c.shared_right = shared;
        Scene s(11);
        build(s, c);
        const cuda::MatmulTile t{32, 32, 32, 2, 1, 2, 1};
        EXPECT_EQ(
            of_counts(s.region(), s.plan(), s.memory, 64, cuda::matmul_mma_family(type), cuda::spell(t), kSm80, tolerance_of(c)),
            "")
            << c.text();
      }
    }
  }
}

/// Every family that takes the convolution, with its best tile. Those that compute all images are listed.
TEST_F(CountedKernels, ImagesOfConvolutions) {
  std::set<std::string> seen, whole;
  std::set<std::pair<std::string, std::string>> at_sm80;  // which need not run again
  for (const cuda::Target& target : {kSm80, kSm90}) {
    for (const auto& [channels, kernel, groups] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{64, 1, 1}, {64, 3, 1}, {64, 3, 64}, {3, 3, 1}}) {
      ConvCase k;
      k.n = 5, k.c = channels, k.h = 5, k.w = 8, k.o = 64, k.kh = k.kw = kernel, k.pad = kernel / 2, k.groups = groups;
      k.zero = 3, k.style = "bias";
      ConvScene s(k, 7);
      for (const Family* family : cuda::families()) {
        if (!family->about(s.region) ||
            (target.architecture == kSm90.architecture && at_sm80.contains({std::string(family->name()), k.text()})))
          continue;
        const auto all = family->candidates(s.region, s.plan, target);
        if (all.empty()) continue;
        const std::string wrong = of_counts(s.region, s.plan, s.memory, 0, *family, all[0].parameters, target);
        if (wrong.find(kNotCounted) != std::string::npos) {
          whole.insert(std::string(family->name()));
          continue;
        }
        EXPECT_EQ(wrong, "") << family->name() << " " << k.text() << " " << target.architecture.text();
        seen.insert(std::string(family->name()));
      }
    }
  }
  for (const char* name :
       {"conv.u8s8.mma", "conv.u8s8.window", "conv.u8s8.shift", "conv.u8s8.stream", "conv.u8s8.im2col", "conv.u8s8.depthwise"})
    EXPECT_TRUE(seen.contains(name)) << name;
  EXPECT_EQ(whole, (std::set<std::string>{"conv.u8s8.rows"}));
}

/// Families whose blocks take items in turn, for any batch: the number of items is then a parameter of the kernel, which the first lines change.
TEST_F(CountedKernels, ImagesOfConvolutionsForAnyBatch) {
  std::set<std::string> seen;
  for (const cuda::Target& target : {kSm80, kSm90}) {
    for (const std::int64_t kernel : {1, 3}) {
      ConvCase k;
      k.n = 5, k.c = 64, k.h = 5, k.w = 8, k.o = 64, k.kh = k.kw = kernel, k.pad = kernel / 2, k.zero = 3, k.style = "bias";
      ConvScene s(k, 7);
      const region::Region closed = s.region;
      region::Stage& st = s.region.stages[0];
      st.open = 1;
      for (region::TensorRef* t : {&st.anchor.inputs[0], &st.stores[0]}) t->open.dims |= 1;
      for (const Family* family : cuda::families()) {
        if (!family->about(s.region) || seen.contains(std::string(family->name()))) continue;
        const auto all = family->candidates(s.region, s.plan, target);
        if (all.empty()) continue;
        const auto open = family->emit(s.region, s.plan, all[0].parameters, target);
        const auto fixed = family->emit(closed, s.plan, all[0].parameters, target);
        ASSERT_TRUE(open && fixed) << family->name();
        if (open->launches[0].counted.all.empty()) continue;
        EXPECT_TRUE(open->launches[0].counted.open) << family->name();
        EXPECT_FALSE(fixed->launches[0].counted.open) << family->name();
        EXPECT_EQ(of_counts(s.region, s.plan, s.memory, 0, *family, all[0].parameters, target), "") << family->name();
        seen.insert(std::string(family->name()));
      }
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"conv.u8s8.mma", "conv.u8s8.window", "conv.u8s8.shift", "conv.u8s8.stream",
                                         "conv.u8s8.im2col", "conv.u8s8.linear"}));
}

TEST_F(CountedKernels, ImagesOfFloatConvolutions) {
  std::set<std::string> seen, whole;
  for (const cuda::Target& target : {kSm80, kSm90}) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      for (const std::int64_t groups : {1, 64}) {
        Scene s(13);
        auto& st = s.stage();
        st.space = {5, 64, 4, 8};
        st.anchor.op = ir::Op::conv;
        st.anchor.facts = ir::Window{.strides = {1, 1}, .dilations = {1, 1}, .pads = {1, 1, 1, 1}, .group = groups};
        st.anchor.inputs = {s.nhwc(type, {5, 64, 4, 8}, BufferKind::input)};
        st.anchor.weights = s.tensor(type, {64, 64 / groups, 3, 3}, BufferKind::constant, {}, 0, 0.25F);
        st.program.outputs = {{st.program.push(Op::acc_f), DType::f32}};
        st.stores = {s.nhwc(DType::f32, st.space, BufferKind::output)};
        const region::Region& r = s.region();
        for (const Family* family : cuda::families()) {
          if (!family->about(r) || (target.architecture == kSm90.architecture && seen.contains(std::string(family->name()))))
            continue;
          const auto all = family->candidates(r, s.plan(), target);
          if (all.empty()) continue;
          const std::string wrong = of_counts(s, *family, 1e-3F, scalar_region, target);
          if (wrong.find(kNotCounted) != std::string::npos) {
            whole.insert(std::string(family->name()));
            continue;
          }
          EXPECT_EQ(wrong, "") << family->name() << " " << target.architecture.text();
          seen.insert(std::string(family->name()));
        }
      }
    }
  }
  for (const char* name : {"conv.f16.mma", "conv.f32.mma", "conv.f16.stream", "conv.f16.im2col", "conv.f16.depthwise"})
    EXPECT_TRUE(seen.contains(name)) << name;
  EXPECT_EQ(whole, std::set<std::string>());
}

/// Families of families/plain whose threads follow the results. Scenes have any type and layout; those whose first dimension is not the outermost are left out.
TEST_F(CountedKernels, ThreadsOfPlainFamilies) {
  std::set<std::string_view> seen;
  const std::set<std::string_view> in_order{"math",         "roi_align",    "bit_cast",    "doubles",      "affine",
                                            "reduce.whole", "small_floats", "quantize_rt", "dequantize_rt"};
  for (const PlainCase& c : plain_cases()) {
    if (!in_order.contains(c.name)) continue;
    for (std::uint32_t seed = 1; seed <= 40 && !seen.contains(c.name); ++seed) {
      Scene s(seed);
      c.build(s, 5);
      const region::Region& r = s.region();
      if (r.stages[0].space.empty() || r.stages[0].space[0] < 3 || !cuda::counts_outermost(counted(r, 0))) continue;
      if (c.family().candidates(r, s.plan(), kSm80).empty()) continue;
      const std::string wrong = of_counts(s, c.family(), c.tolerance, reference_region);
      if (wrong.find(kNotCounted) != std::string::npos) continue;
      EXPECT_EQ(wrong, "") << c.name << ", seed " << seed;
      seen.insert(c.name);
    }
  }
  EXPECT_EQ(seen, in_order);
}

TEST_F(CountedKernels, MistakesAreFound) {
  Scene s(11);
  ProductCase c;
  c.type = cuda::ProductType::u8, c.m = 70, c.n = 24, c.k = 40;
  build(s, c);
  const region::Region r = counted(s.region(), 0);
  const auto parameters = cuda::spell(cuda::MatmulTile{32, 32, 32, 2, 1, 2, 1});
  const auto with = [&](std::string_view from, std::string_view to) {
    return run_emulated(
        {r, s.plan(), s.memory, 64, 7, 33}, cuda::matmul_mma_family(c.type), parameters, 0,
        [&](const std::string& text) { return edited(text, from, to); }, reference_region, kSm80);
  };
  EXPECT_EQ(with("octavo_there) return", "octavo_there) return"), "");
  EXPECT_NE(with("octavo_there) return", "octavo_there + 1) return").find("was computed for 33 rows"), std::string::npos);
  EXPECT_NE(with("(extent * rows + unit - 1)", "(extent * rows)"), "");
  EXPECT_NE(with("(n * times + per - 1) / per", "room").find("was computed for 33 rows"), std::string::npos);
}

/// Of other regions nothing changes.
TEST_F(CountedKernels, TextsOfOthersStayAsTheyAre) {
  Scene s(11);
  ProductCase c;
  c.type = cuda::ProductType::f16, c.m = 70, c.n = 24, c.k = 40;
  build(s, c);
  const auto& family = cuda::matmul_mma_family(c.type);
  auto text = family.emit(s.region(), s.plan(), family.candidates(s.region(), s.plan(), kSm80)[0].parameters, kSm80);
  ASSERT_TRUE(text);
  const std::string before = text->text;
  cuda::leave_out_uncounted(*text, s.region());
  EXPECT_EQ(text->text, before);
  cuda::leave_out_uncounted(*text, counted(s.region(), 0));
  EXPECT_NE(text->text, before);
}

}  // namespace
}  // namespace octavo::testing
