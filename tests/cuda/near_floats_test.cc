// 16-bit results of activations from approximations: how far they are from the programs, over spellings and infinities, under emulation.
#include "cuda/text/near_floats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/emulation/emulated_test.h"
#include "program/math.h"
#include "program/span.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using program::Function;
using program::Op;
using program::Program;

const std::size_t kCount = rounds(64, 512) * 1024;
constexpr float kBias = 0.0123F, kInfinity = std::numeric_limits<float>::infinity();

enum class Spelling { gelu, gelu_of_erf, half_root, gelu_tanh, silu, gated, erf };
constexpr Spelling kAll[] = {Spelling::gelu, Spelling::gelu_of_erf, Spelling::half_root, Spelling::gelu_tanh,
                             Spelling::silu, Spelling::gated,       Spelling::erf};

/// acc / 2 + operand 0, the activation, times operand 1 where it is a gate.
Program program_of(Spelling spelling, ir::DType type, bool twice = false) {
  Program p;
  p.operand_count = 2;
  program::ProgramOps m{p};
  const int x = p.push(Op::add, p.push(Op::div, p.push(Op::acc_f), p.imm_f(2)), p.load(Op::load_f, 0));
  int y = x;
  switch (spelling) {
    case Spelling::gelu: y = program::gelu(m, x); break;
    case Spelling::gelu_of_erf: y = program::expand(p, program::FunctionSpan{Function::gelu_of_erf, -1, -1, 0}, x); break;
    case Spelling::half_root: {  // the square root of 2 as float16 has it: only the erf is a function that has a name
      const int e = program::erf(m, p.push(Op::div, x, p.imm_f(1.4140625F)));
      y = p.push(Op::mul, p.push(Op::mul, x, p.push(Op::add, e, p.imm_f(1))), p.imm_f(0.5F));
      break;
    }
    case Spelling::gelu_tanh: y = program::expand(p, program::FunctionSpan{Function::gelu_tanh}, x); break;
    case Spelling::silu: y = p.push(Op::mul, x, program::sigmoid(m, x)); break;
    case Spelling::gated: y = p.push(Op::mul, p.push(Op::mul, x, program::sigmoid(m, x)), p.load(Op::load_f, 1)); break;
    case Spelling::erf: y = program::erf(m, x); break;
  }
  p.outputs = {{y, type}};
  if (twice) p.outputs.push_back({x, type});
  return program::simplify(p);
}

class NearFloats : public EmulatedTest {
 protected:
  /// What the function makes of sums, before it is rounded to 16 bits.
  static std::vector<float> run(const std::string& function, const std::vector<float>& sums, std::string_view arguments) {
    return run_on_words(function + fmt::format(R"(
OCTAVO_KERNEL(256, 1) octavo_near(const unsigned char* in, unsigned char* out) {{
  for (int k = 0; k < 4; ++k) {{
    const int i = octavo_block() * 1024 + octavo_thread() * 4 + k;
    unsigned v;
    octavo_read<4>(&v, in + 4 * i);
    float r;
    octavo_program(__int_as_float((int)v){}, r);
    v = (unsigned)__float_as_int(r);
    octavo_write<4>(out + 4 * i, &v);
  }}
}})",
                                               arguments),
                        "octavo_near", sums);
  }
  static std::vector<float> sums() {
    std::mt19937 rng(13);
    std::vector<float> in(kCount);
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = static_cast<float>(i % 4 == 0 ? std::normal_distribution<double>(0, 2)(rng)
                                            : std::uniform_real_distribution<double>(-18, 18)(rng));
      if (i % 64 == 5) in[i] *= 100;
    }
    const float special[] = {0,     -0.0F,  1e-40F,    1e30F,      -1e30F,
                             3e38F, -3e38F, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                             1e5F,  -1e5F,  2e19F,     -2e19F};
    std::copy(std::begin(special), std::end(special), in.begin());
    return in;
  }
  /// What the program says, without its last rounding.
  static float wanted(Program p, float sum) {
    p.outputs[0].type = ir::DType::f32;
    std::vector<program::Scalar> out(1), operands(2), scratch;
    operands[0].f = kBias, operands[1].f = 0.75F;
    program::Scalar acc{};
    acc.f = sum;
    program::interpret(p, acc, operands, out, scratch);
    return out[0].f;
  }
};

TEST_F(NearFloats, AsNearAsSaid) {
  const std::vector<float> in = sums();
  for (const Spelling spelling : kAll) {
    SCOPED_TRACE(static_cast<int>(spelling));
    const Program p = program_of(spelling, ir::DType::f16);
    const auto near = cuda::near_floats(p);
    ASSERT_TRUE(near);
    EXPECT_EQ(near->function == Function::erf, spelling == Spelling::half_root || spelling == Spelling::erf);
    const std::string arguments = fmt::format(", {}f{}", kBias, spelling == Spelling::gated ? ", 0.75f" : "");
    const std::string text = cuda::near_floats_function(*near, p, "octavo_program");
    EXPECT_EQ(text.find("__fdiv_rn"), std::string::npos) << "a division is left";
    const auto worst = [&](const std::string& function) {
      const auto got = run(function, in, arguments);
      EXPECT_EQ(got.size(), in.size());
      double most = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto want = static_cast<double>(wanted(p, in[i])), have = static_cast<double>(got[i]);
        if (!std::isfinite(want) || !std::isfinite(have)) {
          if (!(std::isnan(want) && std::isnan(have)) && want != have) most = static_cast<double>(kInfinity);
          continue;
        }
        most = std::max(most, std::fabs(have - want) / std::max(1.0, std::fabs(want)));
      }
      return most;
    };
    const double most = worst(text);
    // A GPU's inverse and power of two are off by two units in the last place at most, which adds less than a tenth.
    EXPECT_LT(most, 0.8 * static_cast<double>(cuda::NearFloats::kWorst));
    EXPECT_GT(most, 0);
    // A worse approximation is found out.
    const std::string name(cuda::near_floats_text(near->function).name);
    EXPECT_GT(worst(edited(text, name + "(x)", "1.00001f * " + name + "(x)")), static_cast<double>(cuda::NearFloats::kWorst));
  }
}

/// Where a GELU is nearly 0, the program is no nearer to the function than the approximation is.
TEST_F(NearFloats, SmallResultsAreNoWorse) {
  const std::vector<float> in = sums();
  const Program p = program_of(Spelling::gelu_of_erf, ir::DType::f16);
  const auto near = cuda::near_floats(p);
  ASSERT_TRUE(near);
  const auto got = run(cuda::near_floats_function(*near, p, "octavo_program"), in, fmt::format(", {}f", kBias));
  ASSERT_EQ(got.size(), in.size());
  double of_program = 0, of_near = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double x = static_cast<double>(in[i] / 2 + kBias), exact = x / 2 * std::erfc(-x / std::sqrt(2.0));
    if (!(x < -3 && x > -8)) continue;
    of_program = std::max(of_program, std::fabs(static_cast<double>(wanted(p, in[i])) - exact));
    of_near = std::max(of_near, std::fabs(static_cast<double>(got[i]) - exact));
    ++count;
  }
  EXPECT_GT(count, kCount / 8);
  EXPECT_LT(of_near, of_program);
}

TEST_F(NearFloats, ResultsOf16BitsAlone) {
  EXPECT_TRUE(cuda::near_floats(program_of(Spelling::silu, ir::DType::bf16)));
  EXPECT_TRUE(cuda::near_floats(program_of(Spelling::silu, ir::DType::f16, true)));
  EXPECT_FALSE(cuda::near_floats(program_of(Spelling::silu, ir::DType::f32)));
  Program p = program_of(Spelling::silu, ir::DType::f16, true);
  p.outputs[1].type = ir::DType::f32;
  EXPECT_FALSE(cuda::near_floats(p));
  Program none;
  none.outputs = {{none.push(Op::acc_f), ir::DType::f16}};
  EXPECT_FALSE(cuda::near_floats(program::simplify(none)));
}

}  // namespace
}  // namespace octavo::testing
