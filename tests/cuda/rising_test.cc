// Which programs keep the order of accumulators. What is said to rise is run on neighbouring accumulators.
#include "cuda/text/rising.h"

#include <gtest/gtest.h>

#include "cpu/scalar_region.h"

namespace octavo::testing {
namespace {

using program::Op;
using program::Program;

/// A stage over two channels; `make` writes the program and gives the value that leaves it.
template <class Make>
bool program_rises(Make make, double accumulator = 10000) {
  Scene s(1);
  auto& st = s.stage();
  st.space = {1, 2, 1, 1};
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::default_facts(ir::Op::conv);
  st.operands = {{s.constant_along(std::vector<float>{0.5F, 0.25F}, st.space, 1), {}},
                 {s.constant_along(std::vector<float>{0.5F, -0.25F}, st.space, 1), {}},
                 {s.constant_along(std::vector<std::int32_t>{-70, 90}, st.space, 1), {}},
                 {s.tensor(ir::DType::f32, st.space), {}}};
  auto& p = st.program;
  p.operand_count = 4;
  p.outputs = {{make(p), ir::DType::u8}};
  const bool rises = cuda::rises(cuda::tail_of(st, s.plan()), accumulator);
  if (!rises) return false;
  for (const float scale : {0.5F, 0.25F}) {
    std::int32_t before = INT32_MIN;
    for (int acc = -9000; acc < 9000; ++acc) {
      program::Scalar a{}, result{};
      a.i = acc;
      std::vector<program::Scalar> operands(4), scratch;
      operands[0].f = scale, operands[1].f = scale, operands[2].i = scale == 0.5F ? -70 : 90;
      program::interpret(p, a, operands, {&result, 1}, scratch);
      EXPECT_GE(result.i, before) << "accumulator " << acc;
      before = result.i;
    }
  }
  return true;
}

int code(Program& p, int y) {
  return p.push(Op::f2i, p.push(Op::min, p.push(Op::max, y, p.imm_f(0)), p.imm_f(255)));
}

TEST(Rising, RequantizationWithBiasAndZeroPoint) {
  EXPECT_TRUE(program_rises([](Program& p) {
    const int acc = p.push(Op::i2f, p.push(Op::add_i, p.push(Op::acc_i), p.load(Op::load_i, 2)));
    const int y = p.push(Op::fma, acc, p.load(Op::load_f, 0), p.imm_f(-3.5F));
    return p.push(Op::add_i, code(p, p.push(Op::div, p.push(Op::sub, y, p.imm_f(7)), p.imm_f(9))), p.imm_i(-17));
  }));
}

TEST(Rising, Tables) {
  const auto with_table = [](bool swapped) {
    return program_rises([&](Program& p) {
      program::Table t{};
      for (int i = 0; i < 256; ++i) t[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i / 2);
      if (swapped) std::swap(t[3], t[200]);
      p.tables = {t};
      return p.push_imm(Op::table, 0, code(p, p.push(Op::i2f, p.push(Op::acc_i))));
    });
  };
  EXPECT_TRUE(with_table(false));
  EXPECT_FALSE(with_table(true));
}

TEST(Rising, WhatFallsOrIsNotKnownDoesNot) {
  const auto float_of = [](Program& p) { return p.push(Op::i2f, p.push(Op::acc_i)); };
  EXPECT_FALSE(program_rises([&](Program& p) { return code(p, p.push(Op::mul, float_of(p), p.load(Op::load_f, 1))); }))
      << "one channel's factor is negative";
  EXPECT_FALSE(program_rises([&](Program& p) { return code(p, p.push(Op::mul, float_of(p), p.load(Op::load_f, 3))); }))
      << "a factor that is no constant";
  EXPECT_FALSE(program_rises([&](Program& p) { return code(p, p.push(Op::sub, p.imm_f(9), float_of(p))); }));
  EXPECT_FALSE(program_rises([&](Program& p) { return code(p, p.push(Op::mul, float_of(p), float_of(p))); })) << "a square";
  EXPECT_FALSE(program_rises([&](Program& p) { return code(p, p.push(Op::div, p.imm_f(9), float_of(p))); }));
  EXPECT_FALSE(program_rises([&](Program& p) { return p.push(Op::add_i, p.push(Op::acc_i), p.load(Op::load_i, 2)); }, 2147483600.0))
      << "the sum can wrap";
}

}  // namespace
}  // namespace octavo::testing
