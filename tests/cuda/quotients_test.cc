// Programs whose quotients are made four at a time (quotients.inc) under emulation, where the unit that inverts is one step off: the bits of the
// interpreter for operands of every magnitude.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cuda/emulation/emulated_test.h"
#include "cuda/text/bounds.h"
#include "cuda/text/emit_cuda.h"
#include "program/math.h"

namespace octavo::testing {
namespace {

using program::Op;
using program::Program;

constexpr int kThreads = 256, kElements = 4 * kThreads * 64;

class Quotients : public EmulatedTest {};

/// Floats of all kinds: magnitudes from the least to the greatest number, special ones, and what an epilogue mostly sees.
std::vector<float> floats(unsigned seed) {
  std::mt19937 engine(seed);
  const float special[] = {0.0F,
                           -0.0F,
                           INFINITY,
                           -INFINITY,
                           std::nanf(""),
                           0x1p-149F,
                           -0x1p-126F,
                           0x1p-60F,
                           0x1p60F,
                           1.0F,
                           std::nextafterf(0x1p-60F, 0),
                           std::nextafterf(0x1p60F, INFINITY),
                           std::numeric_limits<float>::max(),
                           3.0F};
  std::vector<float> out;
  for (int i = 0; i < kElements; ++i) {
    const auto bits = static_cast<std::uint32_t>(engine());
    switch (i / 4 % 4) {  // four elements share a branch
      case 0: out.push_back(std::bit_cast<float>(bits)); break;
      case 1:
        out.push_back(i % 4 == 0 ? special[bits % std::size(special)] : std::uniform_real_distribution<float>(-4, 4)(engine));
        break;
      case 2: out.push_back(std::bit_cast<float>((bits & 0x807fffffU) | (67 + bits % 120) << 23)); break;
      default: out.push_back(std::uniform_real_distribution<float>(-6, 6)(engine));
    }
  }
  return out;
}

/// "" or the first elements that are not what the interpreter makes of them.
std::string run_several(const Program& p, int several, const std::vector<float>& acc, const std::vector<float>& x,
                        const std::string& from, const std::string& to) {
  std::string text = cuda::emit_function_of_several(p, "octavo_program", several);
  if (!from.empty()) text = edited(text, from, to);
  const bool operand = p.operand_count > 0;
  text += fmt::format(R"(
OCTAVO_KERNEL({0}, 1) octavo_run(const unsigned char* acc, const unsigned char* x, unsigned char* out) {{
  const int at = {2} * 4 * (octavo_block() * {0} + octavo_thread());
  float sums[{2}], operands[{2}], results[{2}];
  for (int j = 0; j < {2}; ++j) {{
    unsigned word;
    octavo_read<4>(&word, acc + at + 4 * j), sums[j] = __int_as_float((int)word);
    octavo_read<4>(&word, x + at + 4 * j), operands[j] = __int_as_float((int)word);
  }}
  octavo_program(sums, {1}results);
  for (int j = 0; j < {2}; ++j) {{
    const unsigned word = (unsigned)__float_as_int(results[j]);
    octavo_write<4>(out + at + 4 * j, &word);
  }}
}}
)",
                      kThreads, operand ? "operands, " : "", several);
  const auto library = emulate(text);
  if (!library) return library.error().message + text;
  const auto kernel = (*library)->find("octavo_run");
  if (!kernel) return kernel.error().message;
  GlobalMemory memory;
  std::byte *const in = memory.allocate("acc", kElements * 4, false), *const other = memory.allocate("x", kElements * 4, false),
                   *const out = memory.allocate("out", kElements * 4, true);
  std::memcpy(in, acc.data(), kElements * 4);
  std::memcpy(other, x.data(), kElements * 4);
  const std::string trouble =
      run_grid(*kernel, {{kElements / several / kThreads, 1, 1}, {kThreads, 1, 1}, 0}, {in, other, out}, memory, 1);
  if (!trouble.empty()) return trouble;
  std::vector<program::Scalar> scratch;
  std::string wrong;
  int count = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    program::Scalar sum{}, operands[1], want[1];
    sum.f = acc[i], operands[0].f = x[i];
    program::interpret(p, sum, {operands, operand ? 1U : 0U}, want, scratch);
    float got = 0;
    std::memcpy(&got, out + 4 * i, 4);
    if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want[0].f) || (std::isnan(got) && std::isnan(want[0].f)))
      continue;
    if (++count < 4) wrong += fmt::format("{:a}, {:a}: {:a} instead of {:a}; ", acc[i], x[i], got, want[0].f);
  }
  return count == 0 ? "" : fmt::format("{} wrong: {}{}", count, wrong, text);
}

std::string run(const Program& p, const std::vector<float>& acc, const std::vector<float>& x, const std::string& from = "",
                const std::string& to = "") {
  std::string wrong = run_several(p, 4, acc, x, from, to);
  return wrong.empty() ? run_several(p, 8, acc, x, from, to) : wrong;
}

/// acc / x, or x / acc: an operand is often zero.
Program quotient(bool inverted = false) {
  Program p;
  p.operand_count = 1;
  const int a = p.push(Op::acc_f), x = p.load(Op::load_f, 0);
  p.outputs = {{inverted ? p.push(Op::div, x, a) : p.push(Op::div, a, x), ir::DType::f32}};
  return p;
}
Program quotient_by(float by) {
  Program p;
  const int a = p.push(Op::acc_f);
  p.outputs = {{p.push(Op::div, a, p.imm_f(by)), ir::DType::f32}};
  return p;
}
Program gelu() {
  Program p;
  program::ProgramOps m{p};
  const int y = p.push(Op::acc_f), erf = program::erf(m, m.div(y, m.imm(1.4140625F)));
  p.outputs = {{m.mul(m.mul(y, m.add(m.imm(1), erf)), m.imm(0.5F)), ir::DType::f32}};
  return p;
}

TEST_F(Quotients, AreTheInterpretersBits) {
  const std::vector<float> a = floats(1), b = floats(2);
  EXPECT_EQ(run(quotient(), a, b), "");
  EXPECT_EQ(run(quotient(true), a, b), "");
  for (const float by : {1.4140625F, 3.0F, 0.1F, 7.0F, 0x1.fffffep0F, 0x1.000002p-40F, 1e-30F, -2.5F, 0.0F})
    EXPECT_EQ(run(quotient_by(by), a, b), "") << by;
  EXPECT_EQ(run(gelu(), a, b), "");
  Program above;  // a constant over a sum that is at least 1
  program::ProgramOps m{above};
  const int sum = m.add(m.mul(above.push(Op::acc_f), m.imm(1)), m.imm(0));
  above.outputs = {{m.div(m.imm(2.5F), m.max(m.imm(1), sum)), ir::DType::f32}};
  EXPECT_EQ(run(above, a, b), "");
}

TEST_F(Quotients, MistakesAreFound) {
  const std::vector<float> a = floats(1), b = floats(2);
  const std::string all = "octavo_divide<0 | kSmallDividend | kLargeDividend | kAnyDivisor | kNegativeDivisor>",
                    zero = "octavo_divide<0 | kSmallDividend | kZeroDividend | kLargeDividend | kAnyDivisor | kNegativeDivisor>";
  for (const char* left_out : {"kSmallDividend", "kLargeDividend", "kAnyDivisor"})
    EXPECT_NE(run(quotient(), a, b, all, fmt::format("octavo_divide<15 - {}>", left_out)), "") << left_out;
  EXPECT_NE(run(quotient(true), a, b, zero, "octavo_divide<31 - kNegativeDivisor>"), "");
  EXPECT_NE(run(quotient_by(3), a, b, "return __fmaf_rn(__fmaf_rn(-b, q, a), inverse, q);", "return __fmul_rn(a, inverse);"), "")
      << "no step";
  EXPECT_NE(run(quotient_by(3), a, b, "for (int turn = 0; turn < n; ++turn)", "for (int turn = 1; turn < n; ++turn)"), "")
      << "the last turn";
}

TEST(Bounds, OfTheErrorFunctionsQuotient) {
  const Program p = gelu();
  const auto bounds = cuda::bounds_of(p);
  int quotients = 0;
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i].op != Op::div || ++quotients != 2) continue;
    const cuda::Bounds &above = bounds[static_cast<std::size_t>(p.code[i].args[0])],
                       &below = bounds[static_cast<std::size_t>(p.code[i].args[1])];
    EXPECT_GT(below.least, 0.9);
    EXPECT_LT(below.most, 1000);
    EXPECT_LT(above.most, 1000);
    EXPECT_GT(above.least, -1000);
  }
  EXPECT_EQ(quotients, 2);
}

/// Every value of random programs lies within its bounds, or is NaN.
TEST(Bounds, HoldForRandomPrograms) {
  std::mt19937 rng(5);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  const std::vector<float> all = floats(3);
  constexpr Op kOps[] = {Op::add,    Op::sub,  Op::mul,   Op::div,  Op::fma,   Op::max,    Op::min,
                         Op::sel_lt, Op::nan0, Op::round, Op::sqrt, Op::floor, Op::to_f16, Op::to_bf16};
  for (int seed = 0; seed < 300; ++seed) {
    Program p;
    p.push(Op::acc_f);
    for (const float v : {1.0F, -3.0F, 0.0F, 1e-20F, 4.0F}) p.imm_f(v);
    for (int k = 0; k < 14; ++k) {
      const Op op = kOps[pick(0, static_cast<int>(std::size(kOps)) - 1)];
      const auto count = program::info(op).operands.size();
      const auto arg = [&](std::size_t n) { return n < count ? pick(0, static_cast<int>(p.code.size()) - 1) : -1; };
      p.code.push_back({op, {arg(0), arg(1), arg(2), arg(3)}, 0});
    }
    const auto bounds = cuda::bounds_of(p);
    for (int n = 0; n < 200; ++n) {
      std::vector<program::Scalar> values;
      for (std::size_t i = 0; i < p.code.size(); ++i) {
        const program::Instr& in = p.code[i];
        const auto of = [&](std::size_t k) {
          return in.args[k] < 0 ? program::Scalar{} : values[static_cast<std::size_t>(in.args[k])];
        };
        program::Scalar v{};
        if (in.op == Op::acc_f)
          v.f = all[static_cast<std::size_t>(pick(0, kElements - 1))];
        else if (in.op == Op::imm_f)
          v.f = std::bit_cast<float>(in.imm);
        else
          v = program::evaluate_op(p, in, of(0), of(1), of(2), of(3));
        values.push_back(v);
        const auto f = static_cast<double>(v.f);
        ASSERT_TRUE(std::isnan(f) || (f >= bounds[i].least && f <= bounds[i].most))
            << "seed " << seed << " value " << i << ": " << f << " beyond " << bounds[i].least << " to " << bounds[i].most << "; "
            << program::print(p);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
