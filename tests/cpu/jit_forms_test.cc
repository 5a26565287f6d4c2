// Shorter forms of a convolution's epilogue (cpu/jit/forms.h): every accumulator, every pair of codes, and whole convolutions
// against brute force on vpdpbusd, on emulated AMX tiles and, where the processor has them, on AMX tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "cpu/amx_emulated.h"
#include "cpu/jit/forms.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using cpu::jit::Form;
using cpu::jit::Instr;
using cpu::jit::LoweredEpilogue;
using cpu::jit::Quotient;
using cpu::jit::Requant;
using ir::DType;
using program::Op;

/// The value of each instruction, as the kernels compute it; loads read `operands`.
std::vector<program::Scalar> evaluate(const LoweredEpilogue& e, std::int32_t acc, const std::vector<program::Scalar>& operands) {
  const program::Program none;
  std::vector<program::Scalar> v(e.code.size());
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    const Instr& in = e.code[i];
    std::array<program::Scalar, 4> a{};
    for (std::size_t k = 0; k < 4; ++k) {
      if (in.args[k] >= 0) a[k] = v[static_cast<std::size_t>(in.args[k])];
    }
    switch (in.op) {
      case Op::acc_i: v[i].i = acc; break;
      case Op::load_i:
      case Op::load_f: v[i] = operands[static_cast<std::size_t>(in.imm)]; break;
      case Op::imm_i: v[i].i = in.imm; break;
      case Op::imm_f: std::memcpy(&v[i].f, &in.imm, 4); break;
      default: v[i] = evaluate_op(none, program::Instr{in.op, in.args, in.imm}, a[0], a[1], a[2], a[3]);
    }
  }
  return v;
}

std::int32_t packed(const LoweredEpilogue& e, std::int32_t code) {
  return std::clamp(code + e.pack.zero, e.pack.lo, e.pack.hi);
}

TEST(Forms, AQuotientGivesEveryCode) {
  int found = 0;
  constexpr int kRounds = 300;
  for (std::uint32_t seed = 1; seed <= kRounds; ++seed) {
    std::mt19937 rng(seed);
    const auto uniform = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(rng); };
    Requant r;
    r.scale = 0, r.bias = seed % 3 == 0 ? -1 : 1, r.fused = true;
    r.zero = static_cast<std::int32_t>(rng() % 256);
    r.steps = {{Op::div, seed % 7 == 0 ? 0.125F : uniform(0.01F, 0.5F)}};
    if (seed % 2 == 0) r.steps.insert(r.steps.begin(), {Op::max, 0});
    if (seed % 5 == 0) r.alpha = 0.1F, r.steps.insert(r.steps.begin(), {Op::sel_lt, 0.1F});
    r.first = r.code_of(-3e38F), r.last = r.code_of(3e38F);
    const float scale = std::exp(uniform(-12, 0)), bias = r.bias < 0 ? 0 : uniform(-8, 8);
    const std::int64_t limit = 1 + rng() % 60000;
    const Quotient q = Quotient::of(r);
    if (!by_quotient(r, q, scale, bias, limit)) continue;
    ++found;
    for (std::int64_t acc = -limit; acc <= limit; ++acc)
      ASSERT_EQ(quotient_code(r, q, scale, bias, acc), r.code(acc, scale, bias)) << "acc " << acc << ", seed " << seed;
  }
  EXPECT_GT(found, kRounds * 95 / 100);
  std::printf("%d of %d\n", found, kRounds);
}

TEST(Forms, AWrongQuotientIsNoticed) {
  Requant r;
  r.scale = 0, r.bias = 1, r.zero = 3, r.steps = {{Op::div, 0.02F}};
  r.first = 0, r.last = 255;
  Quotient q = Quotient::of(r);
  ASSERT_TRUE(by_quotient(r, q, 1.31e-4F, 0.417F, 50000));
  q.high *= 1.0001F;
  EXPECT_FALSE(by_quotient(r, q, 1.31e-4F, 0.417F, 50000));
  q = Quotient::of(r);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(by_quotient(r, q, -1e-3F, 0, 1000)) << "falls";
  EXPECT_FALSE(by_quotient(r, q, inf, 0, 1000));
  EXPECT_FALSE(by_quotient(r, q, 1e-3F, inf, 1000));
  EXPECT_FALSE(by_quotient(r, q, 1e-9F, 0, std::int64_t{1} << 31)) << "sums may wrap";
  r.fused = false;
  EXPECT_FALSE(by_quotient(r, q, 1e-3F, 0, 1000)) << "a product, then a sum";
}

/// code = clamp(round((s1 * c1 + s2 * (c2 - z2)) / s)) + zero with c1 the rounded accumulator. Value 1 is c1.
LoweredEpilogue addition(float s1, float s2, std::int32_t z2, DType other, float s, std::int32_t zero, bool relu) {
  LoweredEpilogue e;
  const auto push = [&](Instr in) {
    e.code.push_back(in);
    return static_cast<int>(e.code.size()) - 1;
  };
  const auto imm = [&](float f) {
    std::int32_t bits = 0;
    std::memcpy(&bits, &f, 4);
    return push({Op::imm_f, {-1, -1, -1, -1}, bits});
  };
  e.operands = {{cpu::jit::OperandAccess::full, other, 1}};
  e.stores = {{cpu::jit::OperandAccess::full, DType::u8, 2}};
  const int acc = push({Op::acc_i}), c1 = push({Op::f2i, {push({Op::i2f, {acc, -1, -1, -1}}), -1, -1, -1}});
  int c2 = push({Op::load_i, {-1, -1, -1, -1}, 0});
  if (z2 != 0) c2 = push({Op::sub_i, {c2, push({Op::imm_i, {-1, -1, -1, -1}, z2}), -1, -1}});
  const int a = push({Op::mul, {imm(s1), push({Op::i2f, {c1, -1, -1, -1}}), -1, -1}});
  const int b = push({Op::mul, {push({Op::i2f, {c2, -1, -1, -1}}), imm(s2), -1, -1}});
  int y = push({Op::add, {b, a, -1, -1}});
  if (relu) y = push({Op::max, {y, imm(0), -1, -1}});
  y = push({Op::min, {push({Op::div, {y, imm(s), -1, -1}}), imm(static_cast<float>(255 - zero)), -1, -1}});
  e.pack = {.sinks = {{0, -1}}, .value = push({Op::f2i, {y, -1, -1, -1}}), .zero = zero};
  e.outputs = {{e.pack.value, DType::u8}};
  program::Program p;  // the same code
  for (const Instr& in : e.code) p.code.push_back({in.op, in.args, in.imm});
  program::mark(p);
  e.spans = p.spans;
  return e;
}

TEST(Forms, AnAddOfCodesGivesEveryCode) {
  int found = 0;
  constexpr int kRounds = 120;
  for (std::uint32_t seed = 1; seed <= kRounds; ++seed) {
    std::mt19937 rng(seed);
    const auto uniform = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(rng); };
    float s1 = uniform(0.01F, 0.3F), s2 = uniform(0.01F, 0.3F), s = uniform(0.05F, 0.4F);
    if (seed % 6 == 0) s1 = s2 = 0.25F, s = 0.5F;  // halves everywhere
    if (seed % 6 == 1) s1 = 0.1F, s2 = 0.3F, s = 0.2F;
    if (seed % 11 == 0) s2 = -s2;
    const DType other = seed % 4 == 0 ? DType::s8 : DType::u8;
    const std::int32_t z2 = other == DType::s8 ? 0 : static_cast<std::int32_t>(rng() % 256);
    const std::int32_t zero = seed % 2 == 0 ? 128 : static_cast<std::int32_t>(rng() % 256);
    const LoweredEpilogue written = addition(s1, s2, z2, other, s, zero, seed % 3 == 0);
    int c1 = -1;
    for (std::size_t i = 0; c1 < 0; ++i) c1 = written.code[i].op == Op::f2i ? static_cast<int>(i) : -1;
    LoweredEpilogue shorter = written;
    if (!add_by_fmas(shorter, c1, -128, 127)) continue;
    ++found;
    EXPECT_LT(shorter.operations(), written.operations());
    const int first = other == DType::s8 ? -128 : 0;
    for (std::int32_t acc = -128; acc <= 127; ++acc) {
      for (std::int32_t code = first; code < first + 256; ++code) {
        program::Scalar o;
        o.i = code;
        const auto a = evaluate(written, acc, {o}), b = evaluate(shorter, acc, {o});
        ASSERT_EQ(packed(written, a[static_cast<std::size_t>(written.pack.value)].i),
                  packed(shorter, b[static_cast<std::size_t>(shorter.pack.value)].i))
            << acc << " + " << code << ", seed " << seed;
      }
    }
  }
  std::printf("%d of %d\n", found, kRounds);
  EXPECT_GT(found, kRounds / 2);
}

TEST(Forms, ZeroPointsAreFoldedOnlyWhereTheirProductIsExact) {
  int folded = 0;
  for (const std::int32_t zero : {1, 3, 7, 64, 113, 128, 142, 255}) {
    for (const float scale : {0.05F, 0.25F, 0.37F, 1.5e-3F}) {
      const LoweredEpilogue written = addition(0.1F, scale, zero, DType::u8, 0.2F, 0, false);
      LoweredEpilogue other = written;
      fold_zero_points(other);
      const bool exact =
          static_cast<double>(static_cast<float>(zero * static_cast<double>(scale))) == zero * static_cast<double>(scale);
      EXPECT_EQ(other.operations() < written.operations(), exact) << zero << " " << scale;
      folded += exact ? 1 : 0;
      for (std::int32_t code = 0; code < 256; ++code) {
        program::Scalar o;
        o.i = code;
        const auto a = evaluate(written, 17, {o}), b = evaluate(other, 17, {o});
        ASSERT_EQ(a[static_cast<std::size_t>(written.pack.value)].i, b[static_cast<std::size_t>(other.pack.value)].i) << code;
      }
    }
  }
  EXPECT_GT(folded, 10);
}

enum class Way { vnni, emulated, amx };

class FormsOfConv : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(On, FormsOfConv, ::testing::Values(Way::vnni, Way::emulated, Way::amx), [](const auto& p) {
  return std::string(p.param == Way::vnni ? "vnni" : p.param == Way::emulated ? "emulated_amx" : "amx");
});

struct Layer {
  std::int64_t c = 16, h = 5, w = 7, o = 64, kernel = 1;
  int add = 0;   ///< 0: none, 1: of codes behind a code, 2: of codes to the float
  int bias = 0;  ///< 0: float, fused; 1: s32, small; 2: s32, extremes
  int x_zero = 0;
};

void build(Scene& s, const Layer& k) {
  auto& st = s.stage();
  auto& a = st.anchor;
  a.op = ir::Op::conv;
  a.integer = true;
  const std::int64_t pad = k.kernel / 2;
  a.facts =
      testing::facts(a.op, {{"strides", std::vector<std::int64_t>{1, 1}}, {"pads", std::vector<std::int64_t>{pad, pad, pad, pad}}});
  auto x = s.nhwc(DType::u8, {1, k.c, k.h, k.w});
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, k.x_zero);
  a.inputs = {x};
  a.weights = s.tensor(DType::s8, {k.o, k.c, k.kernel, k.kernel}, region::BufferKind::constant);
  st.space = {1, k.o, k.h, k.w};
  auto& p = st.program;
  const auto uniform = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(s.rng()); };
  std::vector<float> scale(static_cast<std::size_t>(k.o)), floats(scale.size());
  std::vector<std::int32_t> integers(scale.size());
  for (std::size_t i = 0; i < scale.size(); ++i) {
    scale[i] = uniform(0.5F, 1.5F) * 2e-4F, floats[i] = uniform(-5, 5);
    integers[i] = k.bias == 2 ? (s.pick(0, 1) == 0 ? INT32_MAX : INT32_MIN) : s.pick(-40000, 40000);
  }
  st.operands.push_back({s.constant_along(scale, st.space, 1), {}});
  if (k.bias == 0) st.operands.push_back({s.constant_along(floats, st.space, 1), {}});
  if (k.bias != 0) st.operands.push_back({s.constant_along(integers, st.space, 1), {}});
  const int acc = p.push(Op::acc_i);
  int y = k.bias == 0 ? p.push(Op::fma, p.push(Op::i2f, acc), p.load(Op::load_f, 0), p.load(Op::load_f, 1))
                      : p.push(Op::mul, p.push(Op::i2f, p.push(Op::add_i, acc, p.load(Op::load_i, 1))), p.load(Op::load_f, 0));
  const auto code_of = [&](int v, float by, std::int32_t zero) {
    const int q = p.push(Op::max, p.push(Op::div, v, p.imm_f(by)), p.imm_f(static_cast<float>(-zero)));
    return p.push(Op::f2i, p.push(Op::min, q, p.imm_f(static_cast<float>(255 - zero))));
  };
  if (k.add != 0) {
    st.operands.push_back({s.nhwc(DType::u8, st.space), {}});
    const int other = p.push(Op::i2f, p.push(Op::sub_i, p.load(Op::load_i, 2), p.imm_i(128)));
    if (k.add == 1) y = p.push(Op::mul, p.imm_f(0.093F), p.push(Op::i2f, code_of(y, 0.093F, 131)));
    y = p.push(Op::add, p.push(Op::mul, p.imm_f(0.0711F), other), y);
  }
  p.operand_count = static_cast<int>(st.operands.size());
  p.outputs = {{p.push(Op::add_i, code_of(y, 0.137F, 128), p.imm_i(128)), DType::u8}};
  st.stores = {s.nhwc(DType::u8, st.space)};
}

TEST_P(FormsOfConv, ConvolutionsOfEveryForm) {
  std::array<int, 3> blocks{};
  const auto& provider = GetParam() == Way::emulated ? emulated_amx_provider() : cpu::cpu_provider();
  const std::string tactic = GetParam() == Way::vnni ? "cpu.conv.u8s8.avx512vnni.jit" : "cpu.conv.u8s8.amx";
  std::uint32_t seed = 1;
  for (int round = 0; round < 3; ++round) {
    for (const int add : {0, 1, 2}) {
      for (const int bias : {0, 1, 2}) {
        Scene s(seed++);
        Layer k{.add = add, .bias = bias, .x_zero = round * 128 - (round == 2 ? 1 : 0)};
        if (round == 1) k = {.c = 70, .h = 6, .w = 13, .o = 81, .kernel = 3, .add = add, .bias = bias, .x_zero = 3};
        if (round == 2) k.h = 66, k.w = 64;  // tiles enough for straight code of any length
        build(s, k);
        EXPECT_RUNS(s.compare(provider, tactic));
        const auto made = provider.compile(s.region(), s.plan(), s.region().tactic);
        ASSERT_TRUE(made) << made.error().message;
        const auto& packed = made->constants;
        if (packed.size() < 4) continue;
        const auto form = packed[3].data<std::int32_t>()[0];  // of the first block
        EXPECT_EQ(form == 0, bias == 2) << "a sum that may wrap has no shorter form, any other has one; seed " << s.seed();
        ++blocks.at(static_cast<std::size_t>(form));
      }
    }
  }
  std::printf("written %d, line %d, quotient %d\n", blocks[0], blocks[1], blocks[2]);
  EXPECT_GT(blocks[1], 0);
  EXPECT_GT(blocks[2], 0);
}

}  // namespace
}  // namespace octavo::testing
