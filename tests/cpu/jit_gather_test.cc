// Gathers by byte permutes, against brute force: shapes around the 64 bytes of a chunk and of a window, every number of windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cpu/jit/gather.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

constexpr const char* kTactic = "cpu.gather.avx512vbmi.jit";

struct Gather {
  ir::Shape x{1, 64, 3, 5};
  Ints indices;
  std::size_t axis = 1;
  DType type = DType::u8;
  int gap = 0, store_gap = 0, stores = 1;
  bool rows = false;  ///< row-major: the axis is the last one
};

void build(Scene& s, const Gather& k, BufferKind kind = BufferKind::arena) {
  auto& st = s.stage();
  ir::Shape y = k.x;
  y[k.axis] = static_cast<std::int64_t>(k.indices.size());
  st.space = y;
  st.anchor.op = ir::Op::gather;
  st.anchor.facts = testing::facts(st.anchor.op, {{"axis", static_cast<std::int64_t>(k.axis)}, {"indices", k.indices}});
  st.anchor.integer = k.type == DType::u8;
  const auto tensor = [&](const ir::Shape& dims, BufferKind where, int gap) {
    return k.rows ? s.tensor(k.type, dims, where, {}, gap) : s.nhwc(k.type, dims, where, gap);
  };
  st.anchor.inputs = {tensor(k.x, kind, k.gap), s.tensor(DType::s64, {y[k.axis]}, BufferKind::constant)};
  auto& bytes = s.memory[static_cast<std::size_t>(st.anchor.inputs[1].buffer)];
  std::memcpy(bytes.data() + 64, k.indices.data(), 8 * k.indices.size());
  const int acc = st.program.push(k.type == DType::u8 ? Op::acc_i : Op::acc_f);
  for (int i = 0; i < k.stores; ++i) {
    st.program.outputs.push_back({acc, k.type});
    st.stores.push_back(tensor(y, BufferKind::arena, i == 0 ? k.store_gap : 3));
  }
}
std::string run(Scene& s) {
  return s.compare(cpu::cpu_provider(), kTactic);
}

Ints shuffle_of(std::int64_t channels, std::int64_t groups) {
  Ints out;
  for (std::int64_t i = 0; i < channels; ++i) out.push_back(i % groups * (channels / groups) + i / groups);
  return out;
}

TEST(Avx512Gather, ShufflesAndTheirHalves) {
  std::uint32_t seed = 1;
  for (const std::int64_t groups : {2, 3, 4, 8}) {
    for (const std::int64_t each : {1, 2, 7, 8, 15, 16, 17, 21, 29, 31, 32, 33, 43, 58, 64, 65, 116}) {
      for (const int part : {0, 1, 2}) {  // all, the first half, the second
        Gather k;
        const std::int64_t c = groups * each;
        k.x = {1 + seed % 2, c, 1 + seed % 4, 1 + seed % 5};
        k.indices = shuffle_of(c, groups);
        const auto half = static_cast<std::ptrdiff_t>((c + 1) / 2);
        if (part == 1) k.indices.resize(static_cast<std::size_t>(half));
        if (part == 2) k.indices.erase(k.indices.begin(), k.indices.begin() + c / 2);
        k.gap = static_cast<int>(seed % 3) * 5, k.store_gap = static_cast<int>(seed % 5) * 3;
        k.stores = 1 + static_cast<int>(seed % 4);
        Scene s(seed++);
        build(s, k);
        EXPECT_RUNS(run(s));
      }
    }
  }
}

TEST(Avx512Gather, AnyIndicesTypesAndLayouts) {
  const DType types[] = {DType::u8, DType::f16, DType::bf16, DType::f32};
  int several = 0;
  for (std::uint32_t seed = 1; seed <= 500; ++seed) {
    Scene s(seed);
    Gather k;
    k.type = types[s.pick(0, 3)];
    const auto size = static_cast<int>(ir::size_of(k.type));
    const int from = s.pick(0, 2) == 0 ? s.pick(1, 64 / size) : s.pick(1, 300 / size);
    const int edges[] = {63, 64, 65, 128, 1};
    const int to = std::max(1, s.pick(0, 2) == 0 ? edges[s.pick(0, 4)] / size : s.pick(1, 300 / size));
    for (int i = 0; i < to; ++i) k.indices.push_back(s.pick(0, from - 1));
    k.rows = s.pick(0, 1) == 1;
    k.axis = k.rows ? 2 : 1;
    k.x = k.rows ? ir::Shape{s.pick(1, 3), s.pick(1, 9), from} : ir::Shape{s.pick(1, 2), from, s.pick(1, 6), s.pick(1, 6)};
    k.gap = s.pick(0, 1) * s.pick(1, 70), k.store_gap = s.pick(0, 1) * s.pick(1, 70);
    build(s, k, s.pick(0, 1) == 0 ? BufferKind::input : BufferKind::arena);
    s.plan().threads = s.pick(1, 4);
    const auto plan = cpu::jit::match_gather(s.region());
    ASSERT_TRUE(plan) << plan.error().message;
    for (const auto& c : plan->chunks) several += c.windows.size() > 2 ? 1 : 0;
    EXPECT_RUNS(run(s));
  }
  EXPECT_GT(several, 200);
}

/// The comparison would notice: one index of the kernel's is another one than that of the brute force.
TEST(Avx512Gather, AWrongIndexIsSeen) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Scene s(seed);
    Gather k;
    k.x = {1, 116, 4, 4};
    k.indices = shuffle_of(116, 2);
    build(s, k);
    Ints wrong = k.indices;
    const auto at = static_cast<std::size_t>(s.pick(0, 114));
    std::swap(wrong[at], wrong[at + 1]);
    s.stage().anchor.as<ir::Gather>().indices = wrong;
    const std::string difference = run(s);
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;
    EXPECT_NE(difference, "") << "seed " << seed;
  }
}

TEST(Avx512Gather, RefusesWithAReason) {
  const auto why = [&](auto change) {
    Scene s(1);
    Gather k;
    k.indices = shuffle_of(64, 2);
    build(s, k);
    change(s.stage(), k);
    return region::refusal_of(cpu::jit::match_gather(s.region()));
  };
  EXPECT_EQ(spelled(why([](auto&, auto&) {})), "");
  EXPECT_EQ(why([](region::Stage& s, auto&) { s.anchor.as<ir::Gather>().indices.clear(); }),
            region::unmet("indices", "computed at run time, or not of one dimension", "constants of one dimension"));
  EXPECT_EQ(why([](region::Stage& s, const Gather& k) {
              Ints bad = k.indices;
              bad[5] = 64;
              s.anchor.as<ir::Gather>().indices = bad;
            }),
            region::unmet("index", 64, "0 to 63"));
  EXPECT_EQ(why([](region::Stage& s, auto&) { s.anchor.as<ir::Gather>().indices = Ints{0}; }), region::unmet("indices", 1, "64"));
  EXPECT_EQ(why([](region::Stage& s, auto&) { s.stores[0].strides = ir::dense_strides(s.space); }),
            region::unmet("stride of a store along the axis", 15, "1"));
  EXPECT_EQ(why([](region::Stage& s, auto&) { s.anchor.inputs[0].strides = ir::dense_strides(s.space); }),
            region::unmet("stride of the input along the axis", 15, "1"));
  EXPECT_EQ(why([](region::Stage& s, auto&) {
              auto& p = s.program;
              p.outputs[0].value = p.push(Op::add_i, p.outputs[0].value, p.imm_i(1));
            }),
            region::unmet("epilogue", "computes", "none"));
  EXPECT_EQ(why([](region::Stage& s, auto&) {
              Ints far;
              for (std::int64_t i = 0; i < 64; ++i) far.push_back(i * 100);
              s.anchor.as<ir::Gather>().indices = far;
              s.anchor.inputs[0].dims[1] = 6400;
            }),
            region::unmet("windows that 64 bytes come from", "more", "at most 8"));
}

}  // namespace
}  // namespace octavo::testing
