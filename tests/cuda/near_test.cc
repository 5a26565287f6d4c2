// Codes of activations from approximations: how far the approximations are from the programs, and that the codes are the programs', under emulation.
#include "cuda/text/near.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/emulation/emulated_test.h"
#include "cuda/text/elements.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/shorten.h"
#include "program/math.h"
#include "program/span.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using program::Function;
using program::Op;
using program::Program;

const std::size_t kCount = rounds(128, 512) * 1024;

class Near : public EmulatedTest {};

/// f of x: form: how exporters spell a GELU of erf, 6: GELU, 7: SiLU.
int activation(Program& p, int form, int x) {
  program::ProgramOps m{p};
  if (form == 6) return program::gelu(m, x);
  if (form == 7) return p.push(Op::mul, x, program::sigmoid(m, x));
  return program::expand(p, program::FunctionSpan{Function::gelu_of_erf, -1, -1, static_cast<std::uint8_t>(form)}, x);
}

TEST_F(Near, ApproximationsAreAsNearAsSaid) {
  std::mt19937 rng(11);
  std::vector<std::uint32_t> in(kCount);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto x = static_cast<float>(i % 4 == 0 ? std::normal_distribution<double>(0, 1)(rng)
                                                 : std::uniform_real_distribution<double>(-9, 9)(rng));
    in[i] = std::bit_cast<std::uint32_t>(i % 64 == 5 ? x * 100 : x);
  }
  in[0] = 0, in[1] = 0x80000000, in[2] = 1, in[3] = std::bit_cast<std::uint32_t>(-1e30F),
  in[4] = std::bit_cast<std::uint32_t>(1e5F);
  for (int form = 0; form < 8; ++form) {
    const auto got =
        run_on_words(cuda::near_text(form == 7 ? Function::silu : Function::gelu) + fmt::format(R"(
OCTAVO_KERNEL(256, 1) octavo_near(const unsigned char* in, unsigned char* out) {{
  for (int k = 0; k < 4; ++k) {{
    const int i = octavo_block() * 1024 + octavo_thread() * 4 + k;
    unsigned v;
    octavo_read<4>(&v, in + 4 * i);
    v = (unsigned)__float_as_int(octavo_near_{}(__int_as_float((int)v)));
    octavo_write<4>(out + 4 * i, &v);
  }}
}})",
                                                                                                form == 7 ? "silu" : "gelu"),
                     "octavo_near", in);
    ASSERT_EQ(got.size(), in.size());
    Program p;
    const int x = p.push(Op::acc_f);
    p.outputs = {{activation(p, form, x), ir::DType::f32}};
    double worst = 0;
    std::vector<program::Scalar> out(1), scratch;
    for (std::size_t i = 0; i < in.size(); ++i) {
      program::Scalar acc{};
      acc.f = std::bit_cast<float>(in[i]);
      program::interpret(p, acc, {}, out, scratch);
      const double want = static_cast<double>(out[0].f), have = static_cast<double>(std::bit_cast<float>(got[i]));
      worst = std::max(worst, std::fabs(have - want) / std::max(1.0, std::fabs(want)));
    }
    // A GPU's inverse and power of two are off by two units in the last place at most, which adds less than a tenth.
    EXPECT_LT(worst, 0.8 * static_cast<double>(cuda::NearCodes::kWorst)) << "form " << form;
    EXPECT_GT(worst, 0) << "form " << form;
  }
}

/// acc * 2e-4 + operand, the activation, codes in steps of `step`.
Program quantized_activation(int form, float step, std::int32_t zero, std::int32_t first, std::int32_t last) {
  Program p;
  p.operand_count = 1;
  const int x = p.push(Op::add, p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(2e-4F)), p.load(Op::load_f, 0));
  int y = p.push(Op::div, activation(p, form, x), p.imm_f(step));
  y = p.push(Op::min, p.push(Op::max, y, p.imm_f(static_cast<float>(first))), p.imm_f(static_cast<float>(last)));
  y = p.push(Op::f2i, y);
  p.outputs = {{zero == 0 ? y : p.push(Op::add_i, y, p.imm_i(zero)), ir::DType::u8}};
  return program::simplify(p);
}

TEST_F(Near, CodesAreTheProgram) {
  struct Case {
    int form;
    float step;
    std::int32_t zero, first, last;
  };
  std::mt19937 rng(12);
  std::vector<std::uint32_t> in(kCount / 4);
  for (auto& v : in) v = static_cast<std::uint32_t>(static_cast<std::int32_t>(rng() % 60000) - 30000);
  constexpr float kBias = 0.0123F;
  int different = 0;
  for (const Case& c : {Case{0, 0.0243F, 128, -128, 127},
                        {1, 0.0243F, 7, -7, 248},
                        {2, 0.02F, 0, 0, 255},
                        {3, 0.011F, 128, -128, 127},
                        {4, 0.0243F, 100, -50, 90},
                        {5, 0.03F, 20, -20, 235},
                        {6, 0.0243F, 10, -10, 245},
                        {7, 0.02F, 14, -14, 241}}) {
    const Program p = quantized_activation(c.form, c.step, c.zero, c.first, c.last);
    const auto near = cuda::near_codes(p);
    ASSERT_TRUE(near) << c.form;
    const cuda::Shortened front = cuda::shorten(near->front, {30000, {1}}, {0});
    const std::string text =
        cuda::near_function(*near, front.program, "octavo_program", 4) + fmt::format(R"(
OCTAVO_KERNEL(256, 1) octavo_near(const unsigned char* in, unsigned char* out) {{
  const int i = octavo_block() * 1024 + octavo_thread() * 4;
  unsigned v[4];
  octavo_read<16>(v, in + 4 * i);
  int acc[4], code[4];
  float bias[4];
  for (int k = 0; k < 4; ++k) acc[k] = (int)v[k] + {}, bias[k] = {};
  octavo_program(acc, bias, code);
  for (int k = 0; k < 4; ++k) v[k] = octavo_pack_u8(code[k], 0, 0, 0);
  octavo_write<16>(out + 4 * i, v);
}})",
                                                                                     front.acc_offset, cuda::float_text(kBias));
    // The longest way for nearly all, and for none.
    const auto plain = text.find("fabsf(beyond[j]) < ");
    ASSERT_NE(plain, std::string::npos);
    const auto bound = text.substr(plain + 19, text.find("f;", plain) - plain - 18);
    const auto with = [&](std::string_view other) {
      std::string changed = text;
      for (std::size_t at = 0; (at = changed.find("< " + bound, at)) != std::string::npos; ++at)
        changed.replace(at + 2, bound.size(), other);
      return changed;
    };
    std::vector<program::Scalar> out(1), operand(1), scratch;
    operand[0].f = kBias;
    const auto wrong = [&](const std::string& of) {
      const auto got = run_on_words(of, "octavo_near", in);
      int count = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        program::Scalar acc{};
        acc.i = static_cast<std::int32_t>(in[i]);
        program::interpret(p, acc, operand, out, scratch);
        count += static_cast<std::uint32_t>(out[0].i) != got[i] ? 1 : 0;
      }
      return got.size() == in.size() ? count : -1;
    };
    EXPECT_EQ(wrong(text), 0) << c.form;
    EXPECT_EQ(wrong(with("0.01f")), 0) << c.form;
    // A worse approximation is found out where the program is not asked.
    different += wrong(edited(with("0.7f"), "const float y = ", "const float y = 1.0001f * "));
  }
  EXPECT_GT(different, 0);
}

TEST_F(Near, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(cuda::near_codes(quantized_activation(0, 1e-6F, 128, -128, 127)));  // steps as small as the approximation's error
  EXPECT_TRUE(cuda::near_codes(quantized_activation(7, 100, 128, -128, 127)));
  EXPECT_FALSE(cuda::near_codes(quantized_activation(7, 200, 128, -128, 127)));  // codes beyond where the approximation ends
  Program p = quantized_activation(0, 0.02F, 128, -128, 127);
  p.outputs.push_back(p.outputs[0]);
  EXPECT_FALSE(cuda::near_codes(p));
}

}  // namespace
}  // namespace octavo::testing
