// Convolution and pooling in row tiles: every carried row, border and row tile height, on whatever kernels take the stages.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "region/refusal.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

struct Case {
  std::int64_t n, c, h, w, out;
  Ints kernel, strides, pads;  // convolution
  Ints pool, pool_strides, pool_pads;
};

void set_up(Scene& s, const Case& c) {
  auto& r = s.region();
  auto& first = s.stage();
  const auto extent = [](std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t pads) {
    return (in + pads - k) / stride + 1;
  };
  first.space = {c.n, c.out, extent(c.h, c.kernel[0], c.strides[0], c.pads[0] + c.pads[2]),
                 extent(c.w, c.kernel[1], c.strides[1], c.pads[1] + c.pads[3])};
  first.anchor.op = ir::Op::conv;
  first.anchor.integer = true;
  first.anchor.facts = testing::facts(
      first.anchor.op, {{"strides", c.strides}, {"pads", c.pads}, {"dilations", Ints{1, 1}}, {"group", std::int64_t{1}}});
  first.anchor.inputs = {s.nhwc(DType::u8, {c.n, c.c, c.h, c.w})};
  first.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, s.pick(0, 255));
  first.anchor.weights = s.tensor(DType::s8, {c.out, c.c, c.kernel[0], c.kernel[1]}, BufferKind::constant);
  s.requantize(1, 0.0005F);
  first.stores = {s.nhwc(DType::u8, first.space)};
  region::Stage second;
  second.space = {c.n, c.out, extent(first.space[2], c.pool[0], c.pool_strides[0], c.pool_pads[0] + c.pool_pads[2]),
                  extent(first.space[3], c.pool[1], c.pool_strides[1], c.pool_pads[1] + c.pool_pads[3])};
  second.anchor.op = ir::Op::max_pool;
  second.anchor.integer = true;
  second.anchor.facts = testing::facts(
      second.anchor.op, {{"kernel", c.pool}, {"strides", c.pool_strides}, {"pads", c.pool_pads}, {"dilations", Ints{1, 1}}});
  second.anchor.inputs = {first.stores[0]};
  second.anchor.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.37F, 3);
  second.program.outputs = {{second.program.push(Op::acc_i), DType::u8}};
  second.stores = {s.nhwc(DType::u8, second.space, BufferKind::arena, 5)};
  r.stages.push_back(std::move(second));
}

class Staged : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, Staged, ::testing::Values(1, 2, 5));

TEST_P(Staged, RowTilesEqualTheWhole) {
  const std::vector<Case> cases{
      {1, 3, 40, 40, 16, {7, 7}, {2, 2}, {3, 3, 3, 3}, {3, 3}, {2, 2}, {1, 1, 1, 1}},   // the usual stem
      {1, 1, 40, 130, 96, {3, 3}, {1, 1}, {1, 1, 1, 1}, {3, 3}, {2, 2}, {0, 0, 1, 1}},  // many row tiles
      {2, 2, 30, 150, 80, {1, 1}, {1, 1}, {0, 0, 0, 0}, {2, 2}, {2, 2}, {0, 0, 0, 0}},  // no shared rows
      {1, 1, 24, 200, 70, {3, 3}, {1, 1}, {1, 1, 1, 1}, {5, 5}, {1, 1}, {2, 2, 2, 2}},  // many shared rows
      {3, 2, 33, 150, 65, {3, 1}, {2, 1}, {0, 0, 2, 0}, {2, 3}, {3, 2}, {0, 0, 0, 0}},  // rows that nobody reads
      {1, 4, 5, 6, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {3, 3}, {2, 2}, {1, 1, 1, 1}},      // one row tile
  };
  std::uint32_t seed = 1;
  for (const Case& c : cases) {
    Scene s(seed++);
    set_up(s, c);
    s.plan().threads = GetParam();
    std::string tactic;
    for (const auto& o : cpu::cpu_provider().offers(s.region(), s.plan())) {
      EXPECT_EQ(spelled(o.refusal), "");
      tactic = o.tactic.name();
    }
    ASSERT_EQ(tactic.rfind("cpu.staged.row_tiles@2(cpu.conv.u8s8.", 0), 0U) << tactic;
    // The tensor between the stages stays out of memory: it is not part of the comparison.
    const auto between = static_cast<std::size_t>(s.stage().stores[0].buffer);
    EXPECT_EQ(s.compare(cpu::cpu_provider(), tactic, 0, static_cast<int>(between)), "") << ir::to_string(s.stage().space);
  }
}

TEST(StagedRowTiles, EveryInstructionSet) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    setenv("OCTAVO_CPU", isa, 1);
    Scene s(7);
    set_up(s, {1, 1, 30, 120, 64, {3, 3}, {1, 1}, {1, 1, 1, 1}, {3, 3}, {2, 2}, {1, 1, 1, 1}});
    const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
    ASSERT_EQ(offers.size(), 1U);
    const char* const conv = cpu::best_isa() == cpu::Isa::avx2 ? "(cpu.conv.u8s8.avx2.jit" : "(cpu.conv.u8s8.block.";
    EXPECT_NE(offers[0].tactic.name().find(conv), std::string::npos) << offers[0].tactic.name();
    EXPECT_EQ(s.compare(cpu::cpu_provider(), offers[0].tactic.name(), 0, s.stage().stores[0].buffer), "");
    unsetenv("OCTAVO_CPU");
  }
}

TEST(StagedRowTiles, RefusesRepeatedRows) {
  Scene s(1);
  set_up(s, {1, 3, 16, 16, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {2, 2}, {2, 2}, {0, 0, 0, 0}});
  s.stage().operands.push_back({s.nhwc(DType::u8, {1, 8, 8, 16}), {1, 1, 2, 1}});
  s.stage().program.operand_count = 3;
  const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_EQ(offers[0].refusal, region::unmet("repetition of an operand along the height", 2, "1"));
}

}  // namespace
}  // namespace octavo::testing
