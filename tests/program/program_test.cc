// Text form, verifier, oracle and push helpers of programs.
#include "program/program.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "program/random_program.h"

namespace octavo::program {
namespace {

TEST(ProgramText, PrintsAndParsesBackExactly) {
  Program p;
  const int acc = p.push(Op::acc_i);
  const int x = p.push(Op::i2f, acc);
  const int r = p.load(Op::load_f, 1);
  int y = p.push(Op::fma, x, p.imm_f(0.1F), r);
  for (const float v :
       {-0.0F, 1e-45F, 3.4028235e38F, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffc12345U), 1.0F / 3}) {
    y = p.push(Op::add, y, p.imm_f(v));
  }
  Table& t = p.tables.emplace_back();
  for (int i = 0; i < 256; ++i) t[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(255 - i);
  const int s = p.push_imm(Op::shl_i, 31, acc);
  const int masked = p.push(Op::and_i, s, p.imm_i(255));
  const int looked_up = p.push_imm(Op::table, 0, masked);
  p.outputs = {{looked_up, ir::DType::u8}, {y, ir::DType::bf16}, {p.imm_i(-2147483647 - 1), ir::DType::s32}};
  p.operand_count = 5;  // more than are loaded
  ASSERT_TRUE(verify(p)) << verify(p).error().message;
  const auto back = parse(print(p));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, p) << print(p);
  EXPECT_EQ(print(*back), print(p));
}

TEST(ProgramText, RandomProgramsRoundTrip) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Program p = random_program(seed);
    ASSERT_TRUE(verify(p)) << "seed " << seed << ": " << verify(p).error().message;
    const auto back = parse(print(p));
    ASSERT_TRUE(back) << "seed " << seed << ": " << back.error().message;
    ASSERT_EQ(*back, p) << "seed " << seed;
  }
}

TEST(ProgramText, DamagedTextIsRefusedWithTheStatement) {
  for (const std::string_view text :
       {"v0 = acc_q", "v1 = acc_i", "v0 = acc_i; v1 = i2f v1", "v0 = acc_i; v1 = add v0 v0", "v0 = imm_f zero",
        "v0 = imm_i 3000000000", "v0 = imm_i 1; v1 = shl_i 32 v0", "v0 = acc_i; v1 = table 0 v0", "table0 = 00ff",
        "v0 = acc_i; store1 u8 v0", "v0 = acc_i; store0 f32 v0", "v0 = acc_i; store0 u8 v9", "v0 = acc_i; store0 q8 v0",
        "v0 = load_i 0", "operands x", "v0 = acc_i v0", "v0 = acc_f; v1 = add v0", "v0 = acc_i; store0 s64 v0", "hello"}) {
    const auto p = parse(text);
    ASSERT_FALSE(p) << text;
    EXPECT_NE(p.error().message.find("reading a program"), std::string::npos) << p.error().message;
  }
}

TEST(ProgramVerify, CatchesWhatTheTextCannotSay) {
  Program p;
  p.push(Op::acc_i);
  p.code[0].imm = 3;
  EXPECT_FALSE(verify(p));
  p.code[0].imm = 0;
  EXPECT_TRUE(verify(p));
  p.code[0].args[2] = 0;
  EXPECT_FALSE(verify(p));
}

Scalar run1(const Program& p, Scalar acc) {
  Scalar out{};
  std::vector<Scalar> scratch;
  interpret(p, acc, {}, {&out, 1}, scratch);
  return out;
}

TEST(ProgramOracle, EveryFloatOperationDoesWhatItsRowSays) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto eval = [](Op op, float a, float b = 0, float c = 0, float d = 0) {
    const auto s = [](float v) {
      Scalar x{};
      x.f = v;
      return x;
    };
    return evaluate_op({}, Instr{op, {0, 1, 2, 3}, 0}, s(a), s(b), s(c), s(d));
  };
  EXPECT_EQ(eval(Op::round, 2.5F).f, 2.0F);
  EXPECT_EQ(eval(Op::round, 3.5F).f, 4.0F);
  EXPECT_EQ(eval(Op::round, -0.5F).f, 0.0F);
  EXPECT_EQ(eval(Op::f2i, -2.5F).i, -2);
  EXPECT_EQ(eval(Op::f2i, 16777217.0F).i, 16777216);
  EXPECT_EQ(eval(Op::f2i, kNan).i, INT32_MIN);
  EXPECT_EQ(eval(Op::f2i, 3e9F).i, INT32_MIN);
  EXPECT_EQ(eval(Op::max, kNan, 1).f, 1.0F);
  EXPECT_TRUE(std::isnan(eval(Op::max, 1, kNan).f));
  EXPECT_EQ(eval(Op::min, kNan, 1).f, 1.0F);
  EXPECT_TRUE(std::isnan(eval(Op::min, 1, kNan).f));
  EXPECT_TRUE(std::signbit(eval(Op::max, 0.0F, -0.0F).f)) << "0 > -0 is false, so b";
  EXPECT_EQ(eval(Op::nan0, kNan).f, 0.0F);
  EXPECT_EQ(eval(Op::nan0, -3).f, -3.0F);
  EXPECT_EQ(eval(Op::sel_lt, kNan, 1, 2, 3).f, 3.0F);
  EXPECT_EQ(eval(Op::sel_lt, 0, 1, 2, 3).f, 2.0F);
  EXPECT_EQ(eval(Op::sel_eq, -0.0F, 0.0F, 2, 3).f, 2.0F);
  EXPECT_EQ(eval(Op::sel_eq, kNan, kNan, 2, 3).f, 3.0F);
  EXPECT_EQ(eval(Op::fma, 1 + 0x1p-12F, 1 + 0x1p-12F, -1 - 0x1p-11F).f, 0x1p-24F) << "one rounding";
  EXPECT_EQ(eval(Op::to_f16, 65520.0F).f, std::numeric_limits<float>::infinity());
  EXPECT_EQ(eval(Op::to_f16, 1.00048828125F).f, 1.0F) << "tie to even";
  EXPECT_EQ(eval(Op::to_bf16, 1.00390625F).f, 1.0F) << "tie to even";
  EXPECT_EQ(eval(Op::bits_i, 1.0F).i, 0x3f800000);
}

TEST(ProgramOracle, IntegerOperationsWrap) {
  const auto eval = [](Op op, std::int32_t a, std::int32_t b = 0, std::int32_t imm = 0) {
    Scalar x{}, y{};
    x.i = a;
    y.i = b;
    return evaluate_op({}, Instr{op, {0, 1, -1, -1}, imm}, x, y, {}, {}).i;
  };
  EXPECT_EQ(eval(Op::add_i, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(eval(Op::sub_i, INT32_MIN, 1), INT32_MAX);
  EXPECT_EQ(eval(Op::mul_i, 65536, 65536), 0);
  EXPECT_EQ(eval(Op::mul_i, -3, 5), -15);
  EXPECT_EQ(eval(Op::max_i, -3, 5), 5);
  EXPECT_EQ(eval(Op::min_i, -3, 5), -3);
  EXPECT_EQ(eval(Op::sra_i, -5, 0, 1), -3);
  EXPECT_EQ(eval(Op::shl_i, -1, 0, 31), INT32_MIN);
  EXPECT_EQ(eval(Op::and_i, -1, 255), 255);
  EXPECT_EQ(eval(Op::or_i, 1, 256), 257);
}

TEST(Program, ConstantsAreReusedByBits) {
  Program p;
  EXPECT_EQ(p.imm_f(0.5F), p.imm_f(0.5F));
  EXPECT_NE(p.imm_f(0.0F), p.imm_f(-0.0F));
  EXPECT_NE(p.imm_i(0), p.imm_f(0.0F));
  Scalar acc{};
  p.outputs = {{p.imm_f(0.5F), ir::DType::f32}};
  EXPECT_EQ(run1(p, acc).f, 0.5F);
  EXPECT_TRUE(uses(p, Op::imm_i));
  EXPECT_FALSE(uses(p, Op::table));
}

}  // namespace
}  // namespace octavo::program
