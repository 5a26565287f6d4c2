// Simplification: each clean-up, tables with their conditions, and the same bits on random programs.
#include <gtest/gtest.h>

#include <cmath>

#include "program/interval.h"
#include "program/math.h"
#include "program/random_program.h"

namespace octavo::program {
namespace {

int count_op(const Program& p, Op op) {
  return static_cast<int>(std::count_if(p.code.begin(), p.code.end(), [op](const Instr& i) { return i.op == op; }));
}

/// clamp(rne(x / s)) + zp as the planner writes it; zp within u8.
int quantize(Program& p, int x, float s, int zp) {
  const int q = p.push(Op::div, x, p.imm_f(s));
  const int n = p.push(Op::nan0, q);
  const int r = p.push(Op::round, n);
  const int lo = p.push(Op::max, r, p.imm_f(static_cast<float>(-zp)));
  const int hi = p.push(Op::min, lo, p.imm_f(static_cast<float>(255 - zp)));
  const int i = p.push(Op::f2i, hi);
  return p.push(Op::add_i, i, p.imm_i(zp));
}
int dequantize(Program& p, int code, float s, int zp) {
  const int d = p.push(Op::sub_i, code, p.imm_i(zp));
  const int f = p.push(Op::i2f, d);
  return p.push(Op::mul, f, p.imm_f(s));
}

void expect_same(const Program& a, const Program& b, unsigned seed, bool u8_operands = false) {
  std::mt19937 rng(seed);
  std::vector<Scalar> scratch, x(a.outputs.size()), y(a.outputs.size()), operands(static_cast<std::size_t>(a.operand_count));
  for (int trial = 0; trial < 500; ++trial) {
    const Scalar acc = random_scalar(uses(a, Op::acc_f) ? 'f' : 'i', rng);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      bool is_int = false;
      for (const Instr& i : a.code) is_int |= i.op == Op::load_i && i.imm == static_cast<int>(k);
      operands[k] = random_scalar(is_int ? 'i' : 'f', rng);
      if (u8_operands && is_int) operands[k].i &= 255;
    }
    interpret(a, acc, operands, x, scratch);
    interpret(b, acc, operands, y, scratch);
    for (std::size_t j = 0; j < x.size(); ++j) {
      const bool is_float = ir::is_float(a.outputs[j].type);
      if (is_float && std::isnan(x[j].f) && std::isnan(y[j].f)) continue;
      ASSERT_EQ(x[j].i, y[j].i) << "seed " << seed << " trial " << trial << " store " << j << "\n" << print(a) << "\n" << print(b);
    }
  }
}

TEST(Simplify, FoldsMergesAndDropsDeadCode) {
  const auto p = parse(
      "v0 = acc_f; v1 = imm_f 2; v2 = imm_f 3; v3 = mul v1 v2; v4 = add v0 v3; v5 = add v3 v0; v6 = mul v4 v5; v7 = sqrt v6; "
      "v8 = imm_f 1; v9 = mul v6 v8; store0 f32 v9");
  ASSERT_TRUE(p);
  EXPECT_EQ(print(simplify(*p)), "v0 = acc_f; v1 = imm_f 6; v2 = add v0 v1; v3 = mul v2 v2; store0 f32 v3");
}

TEST(Simplify, DoesNotFoldF2iOutsideInt32) {
  const auto p = parse("v0 = imm_f 3e9; v1 = f2i v0; store0 s32 v1");
  ASSERT_TRUE(p);
  EXPECT_EQ(simplify(*p), *p);
}

TEST(Simplify, ConvThenSwishBetweenQuantizersIsOneTable) {
  Program p;
  const int acc = p.push(Op::i2f, p.push(Op::acc_i));
  const int y = p.push(Op::fma, acc, p.load(Op::load_f, 0), p.load(Op::load_f, 1));
  const int code = quantize(p, y, 0.05F, 131);
  const int x = dequantize(p, code, 0.05F, 131);
  ProgramOps ops{p};
  const int s = sigmoid(ops, x);
  const int s_seen = dequantize(p, quantize(p, s, 1.0F / 255, 0), 1.0F / 255, 0);  // inner Q/DQ around the sigmoid
  const int product = p.push(Op::mul, x, s_seen);
  p.outputs = {{quantize(p, product, 0.03F, 9), ir::DType::u8}};
  ASSERT_TRUE(verify(p));
  const Program simple = simplify(p);
  EXPECT_EQ(count_op(simple, Op::table), 1) << print(simple);
  EXPECT_EQ(simple.tables.size(), 1u);
  EXPECT_EQ(simple.code[static_cast<std::size_t>(simple.outputs[0].value)].op, Op::table);
  EXPECT_EQ(count_op(simple, Op::div), 1) << "the convolution's own requantize only\n" << print(simple);
  expect_same(p, simple, 5);
}

TEST(Simplify, U8OperandsAreCodesOnlyWhenSaid) {
  Program p;
  const int x = dequantize(p, p.load(Op::load_i, 0), 0.1F, 128);
  ProgramOps ops{p};
  p.outputs = {{quantize(p, tanh(ops, x), 0.01F, 128), ir::DType::u8}};
  EXPECT_EQ(count_op(simplify(p), Op::table), 0);
  const Program simple = simplify(p, {true});
  EXPECT_EQ(simple.code.size(), 2u) << print(simple);
  expect_same(p, simple, 6, true);
}

TEST(Simplify, TwoDifferentCodesStayArithmetic) {
  Program p;
  const int a = dequantize(p, p.load(Op::load_i, 0), 0.1F, 128), b = dequantize(p, p.load(Op::load_i, 1), 0.2F, 3);
  p.outputs = {{quantize(p, p.push(Op::add, a, b), 0.25F, 100), ir::DType::u8}};
  const Program simple = simplify(p, {true, true});
  EXPECT_EQ(count_op(simple, Op::table), 0) << print(simple);
  expect_same(p, simple, 7, true);
}

TEST(Simplify, PerChannelConstantBlocksTheTable) {
  Program p;
  const int a = dequantize(p, p.load(Op::load_i, 0), 0.1F, 128);
  p.outputs = {{quantize(p, p.push(Op::mul, a, p.load(Op::load_f, 1)), 0.25F, 100), ir::DType::u8}};
  EXPECT_EQ(count_op(simplify(p, {true, false}), Op::table), 0);
}

TEST(Simplify, TableOfATableComposes) {
  Program p;
  const int x = dequantize(p, p.load(Op::load_i, 0), 0.1F, 128);
  ProgramOps ops{p};
  const int first = quantize(p, tanh(ops, x), 0.01F, 128);
  const int second = quantize(p, relu(ops, dequantize(p, first, 0.01F, 128)), 0.005F, 0);
  p.outputs = {{second, ir::DType::u8}};
  const Program simple = simplify(p, {true});
  EXPECT_EQ(simple.code.size(), 2u) << print(simple);
  expect_same(p, simple, 8, true);
  p.outputs.push_back({first, ir::DType::u8});
  const Program both = simplify(p, {true});
  EXPECT_EQ(both.code.size(), 3u) << "two tables of the same code\n" << print(both);
  expect_same(p, both, 9, true);
}

TEST(Simplify, IdentityTablesAndClampsVanish) {
  Program p;
  const int code = p.load(Op::load_i, 0);
  const int again = quantize(p, dequantize(p, code, 0.1F, 128), 0.1F, 128);
  p.outputs = {{p.push(Op::max_i, p.imm_i(0), p.push(Op::min_i, again, p.imm_i(255))), ir::DType::u8}};
  const Program simple = simplify(p, {true});
  EXPECT_EQ(print(simple), "operands 1; v0 = load_i 0; store0 u8 v0");
}

TEST(Simplify, ShortSlicesStay) {
  const auto p = parse("operands 1; v0 = load_i 0; v1 = imm_i 128; v2 = max_i v0 v1; store0 u8 v2");
  ASSERT_TRUE(p);
  EXPECT_EQ(simplify(*p, {true}), *p);
}

TEST(Simplify, AccumulatorOfAPoolCanBeACode) {
  Program p;
  const int x = dequantize(p, p.push(Op::acc_i), 0.1F, 3);
  p.outputs = {{quantize(p, x, 0.2F, 7), ir::DType::u8}};
  EXPECT_EQ(count_op(simplify(p), Op::table), 0);
  EXPECT_EQ(simplify(p, {true}).code.size(), 2u) << "no operands: entry 0 is the accumulator";
}

TEST(Simplify, IntervalsAreSoundOnRandomPrograms) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Program p = random_program(seed, 60);
    const auto intervals = find_intervals(p, {});
    std::mt19937 rng(seed);
    std::vector<Scalar> values, results(p.outputs.size()), operands(3);
    for (int trial = 0; trial < 50; ++trial) {
      for (std::size_t k = 0; k < 3; ++k) operands[k] = random_scalar(k == 0 ? 'i' : 'f', rng);
      interpret(p, random_scalar(seed % 2 ? 'f' : 'i', rng), operands, results, values);
      for (std::size_t i = 0; i < p.code.size(); ++i) {
        const Interval& known = intervals[i];
        if (info(p.code[i].op).result == 'i') {
          ASSERT_TRUE(values[i].i >= known.lo && values[i].i <= known.hi) << "seed " << seed << " v" << i << "\n" << print(p);
        } else if (std::isnan(values[i].f)) {
          ASSERT_TRUE(known.nan) << "seed " << seed << " v" << i << "\n" << print(p);
        } else {
          ASSERT_TRUE(values[i].f >= known.lo && values[i].f <= known.hi) << "seed " << seed << " v" << i << "\n" << print(p);
        }
      }
    }
  }
}

TEST(Simplify, RandomProgramsKeepTheirBits) {
  int tables = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    const Program p = random_program(seed, 20 + static_cast<int>(seed % 60));
    const Program simple = simplify(p);
    ASSERT_TRUE(verify(simple)) << "seed " << seed << ": " << verify(simple).error().message;
    ASSERT_LE(simple.code.size(), p.code.size() + 2) << "seed " << seed;
    ASSERT_EQ(simplify(simple), simple) << "seed " << seed << ": a second run changed it";
    expect_same(p, simple, seed);
    if (HasFatalFailure()) return;
    tables += count_op(simple, Op::table);
  }
  EXPECT_GT(tables, 20) << "the random programs no longer exercise tables";
}

}  // namespace
}  // namespace octavo::program
