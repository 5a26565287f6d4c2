// Random graphs of stages in row tiles: results read by several stages and with several halos, branches, strides, windows with uneven
// padding around nonzero zero points, odd sizes, results that leave from any stage, images, threads, tile sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "region/from_key.h"
#include "region/key.h"
#include "region/stage_graph.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using region::Stage;
using region::StoreId;
using Ints = std::vector<std::int64_t>;

/// Makes a region of `count` stages, one at a time.
class Maker {
 public:
  Maker(Scene& s, int count) : s_(s) {
    images_ = s.pick(0, 3) == 0 ? 2 : 1;
    s.region().stages.clear();
    for (int k = 0; k < count; ++k) add(k + 1 == count);
  }

 private:
  bool chance(int percent) { return s_.pick(1, 100) <= percent; }

  /// A result of an earlier stage that fits; newer ones more often.
  template <class Fits>
  const region::TensorRef* earlier(Fits fits) {
    std::vector<const region::TensorRef*> found;
    for (const Stage& s : s_.region().stages) {
      for (const auto& t : s.stores) {
        if (forwardable_.contains(t.buffer) && fits(t)) found.push_back(&t);
      }
    }
    if (found.empty()) return nullptr;
    const auto n = static_cast<int>(found.size());
    return found[static_cast<std::size_t>(std::max(s_.pick(0, n - 1), s_.pick(0, n - 1)))];
  }

  void add(bool last) {
    Stage s;
    const int kind = s_.pick(0, 9);  // 0..4 convolution, 5..6 depthwise, 7 pooling, 8..9 none
    if (kind < 8) {
      set_window(s, kind, chance(85) ? earlier([](const auto& t) { return t.dtype == DType::u8; }) : nullptr);
    } else {
      const auto* any = earlier([](const auto&) { return true; });
      s.space = any != nullptr ? any->dims : ir::Shape{images_, s_.pick(3, 40), s_.pick(5, 23), s_.pick(5, 19)};
    }
    program::Program& p = s.program;
    int v = kind < 8 ? p.push(Op::i2f, p.push(Op::acc_i)) : operand(s, nullptr);
    v = scaled(s, v);
    for (int i = 0; i < 2; ++i) {  // other branches
      const auto* other = chance(60) ? earlier([&](const auto& t) { return t.dims == s.space; }) : nullptr;
      if (other != nullptr) v = p.push(Op::add, v, operand(s, other));
    }
    p.operand_count = static_cast<int>(s.operands.size());
    store(s, v, DType::u8, true);
    if (chance(25)) store(s, v, DType::f32, true);
    if (chance(25)) store(s, v, DType::s8, false);  // leaves, whoever else reads the stage
    if (last && chance(30)) store(s, v, DType::f32, false);
    s_.region().stages.push_back(std::move(s));
  }

  void set_window(Stage& s, int kind, const region::TensorRef* x) {
    const std::int64_t kernel = kind >= 5 ? 3 : s_.pick(0, 2) * 2 + 1, stride = chance(25) ? 2 : 1;
    Ints pads{s_.pick(0, static_cast<int>(kernel / 2)), s_.pick(0, static_cast<int>(kernel / 2)),
              s_.pick(0, static_cast<int>(kernel / 2)), s_.pick(0, static_cast<int>(kernel / 2))};
    ir::Shape in = x != nullptr ? x->dims : ir::Shape{images_, s_.pick(3, 24), s_.pick(9, 31), s_.pick(5, 19)};
    if (in[2] + pads[0] + pads[2] < kernel || in[3] + pads[1] + pads[3] < kernel)
      pads = {kernel / 2, kernel / 2, kernel / 2, kernel / 2};
    if (kernel > 1 && (in[2] < kernel || in[3] < kernel)) pads = {kernel / 2, kernel / 2, kernel / 2, kernel / 2};
    const bool whole = kind < 5;
    s.space = {in[0], whole ? s_.pick(3, 40) : in[1], (in[2] + pads[0] + pads[2] - kernel) / stride + 1,
               (in[3] + pads[1] + pads[3] - kernel) / stride + 1};
    s.anchor.integer = true;
    s.anchor.inputs = {x != nullptr ? *x : s_.nhwc(DType::u8, in)};
    s.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, s_.pick(0, 255));
    s.anchor.facts = ir::Window{.strides = {stride, stride}, .dilations = {1, 1}, .pads = pads, .group = whole ? 1 : in[1]};
    if (kind == 7) {
      s.anchor.op = ir::Op::max_pool;
      s.anchor.as<ir::Window>().kernel = {kernel, kernel};
      s.anchor.as<ir::Window>().group = 1;
      return;
    }
    s.anchor.op = ir::Op::conv;
    s.anchor.weights = s_.tensor(DType::s8, {s.space[1], whole ? in[1] : 1, kernel, kernel}, BufferKind::constant);
  }

  /// An operand as a float: an earlier result, or a tensor from outside.
  int operand(Stage& s, const region::TensorRef* t) {
    region::TensorRef ref = t != nullptr ? *t : s_.nhwc(DType::f32, s.space);
    if (ref.dims[0] == 1) ref.strides[0] = 0;  // as the planner spells an operand
    const bool codes = ref.dtype == DType::u8;
    s.operands.push_back({std::move(ref), {}});
    const int at = static_cast<int>(s.operands.size()) - 1;
    return codes ? s.program.push(Op::i2f, s.program.load(Op::load_i, at)) : s.program.load(Op::load_f, at);
  }

  int scaled(Stage& s, int v) {
    const auto channels = static_cast<std::size_t>(s.space[1]);
    std::vector<float> scale(channels), bias(channels);
    for (auto& x : scale) x = 0.0005F * static_cast<float>(s_.pick(1, 60));
    for (auto& x : bias) x = static_cast<float>(s_.pick(-20, 60));
    const int first = static_cast<int>(s.operands.size());
    s.operands.push_back({s_.constant_along(scale, s.space, 1), {}});
    s.operands.push_back({s_.constant_along(bias, s.space, 1), {}});
    return s.program.push(Op::fma, v, s.program.load(Op::load_f, first), s.program.load(Op::load_f, first + 1));
  }

  void store(Stage& s, int v, DType type, bool forwardable) {
    program::Program& p = s.program;
    if (type != DType::f32) {
      const float lo = type == DType::u8 ? -3 : -128, hi = type == DType::u8 ? 252 : 127;
      v = p.push(Op::div, v, p.imm_f(0.37F));
      v = p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(lo)), p.imm_f(hi)));
      if (type == DType::u8) v = p.push(Op::add_i, v, p.imm_i(3));
    }
    p.outputs.push_back({v, type});
    s.stores.push_back(s_.nhwc(type, s.space, BufferKind::arena, forwardable ? 0 : s_.pick(0, 9)));
    if (forwardable) forwardable_.insert(s.stores.back().buffer);
  }

  Scene& s_;
  std::int64_t images_ = 1;
  std::set<region::BufferId> forwardable_;
};

struct Found {
  int run = 0, several_readers = 0, several_results = 0, halos = 0;
};

void run(std::uint32_t first, int count, Found& found) {
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(count); ++seed) {
    Scene s(seed);
    Maker(s, 2 + static_cast<int>(seed % 5));
    s.plan().threads = 1 + static_cast<int>(seed % 4);
    const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
    ASSERT_EQ(offers.size(), 1U) << seed;
    if (!offers[0].refusal.empty()) {
      EXPECT_EQ(std::get<std::string>(offers[0].refusal.front().values[0]), "connections of a stage")
          << spelled(offers[0].refusal) << ", seed " << seed;
      continue;
    }
    if (seed % 3 != 0) s.parameters = {{"tile", std::to_string(seed % 7 + 1)}};
    EXPECT_EQ(s.compare(cpu::cpu_provider(), offers[0].tactic.name()), "") << "seed " << seed;
    const auto edges = region::edges_of(s.region());
    std::map<std::pair<std::size_t, std::size_t>, int> readers;
    for (const auto& e : edges) {
      found.several_readers += ++readers[{e.from.stage, e.from.store}] == 2 ? 1 : 0;
      found.halos += e.halo.rows > 1 ? 1 : 0;
    }
    found.several_results += region::results_of(s.region()).size() > 1 ? 1 : 0;
    ++found.run;
    // The key says the graph, and a region of the same key has it.
    const auto back = region::plan_from_key(region::key(s.region(), s.plan()), 1);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(region::edges_of(back->regions[0]), edges) << region::key(s.region(), s.plan());
  }
}

TEST(StagedGraphs, RowTilesEqualTheWhole) {
  Found found;
  run(1, 80, found);
  std::printf("%d graphs, %d results with several readers, %d graphs with several results, %d halos\n", found.run,
              found.several_readers, found.several_results, found.halos);
  EXPECT_GT(found.run, 40);
  EXPECT_GT(found.several_readers, 10);
  EXPECT_GT(found.several_results, 20);
  EXPECT_GT(found.halos, 20);
}

TEST(StagedGraphs, EveryInstructionSet) {
  for (const char* isa : {"portable", "avx2", "avx512", "avx512vnni"}) {
    setenv("OCTAVO_CPU", isa, 1);
    Found found;
    run(1000, 12, found);
    EXPECT_GT(found.run, 4) << isa;
    unsetenv("OCTAVO_CPU");
  }
}

TEST(StagedGraphs, TileSizesAreVariants) {
  Scene s(3);
  const ir::Shape space{1, 64, 40, 120};
  Stage first;
  first.space = space;
  first.operands = {{s.nhwc(DType::f32, space), {}}};
  first.program.operand_count = 1;
  first.program.outputs = {{first.program.load(Op::load_f, 0), DType::f32}};
  first.stores = {s.nhwc(DType::f32, space)};
  Stage second = first;
  second.operands[0].ref = first.stores[0];
  second.stores = {s.nhwc(DType::f32, space)};
  s.region().stages = {first, second};
  const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
  const auto variants = cpu::cpu_provider().variants(s.region(), s.plan());
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_TRUE(offers[0].tactic.parameters.empty());
  ASSERT_EQ(variants.size(), 2U);
  for (const region::Offer& v : variants) {
    EXPECT_EQ(spelled(v.refusal), "");
    EXPECT_GT(v.cost, 0);
    ASSERT_EQ(v.tactic.parameters.count("tile"), 1U) << v.tactic.name();
    s.parameters = v.tactic.parameters;
    EXPECT_EQ(s.compare(cpu::cpu_provider(), offers[0].tactic.name()), "") << v.tactic.name();
  }
}

}  // namespace
}  // namespace octavo::testing
