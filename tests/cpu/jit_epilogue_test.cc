// Epilogue programs in generated code against the interpreter: every operation, every way an 8-bit store can be packed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include "cpu/amx_emulated.h"
#include "cpu/cap.h"
#include "cpu/jit/conv.h"
#include "cpu/jit/division.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "program/math.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

constexpr const char *kTactic = "cpu.conv.u8s8.avx512vnni.jit", *kAmx = "cpu.conv.u8s8.amx";

/// The same kernels for processors with VNNI but without byte permutes: tables are gathered.
class WithoutVbmi final : public region::Provider {
 public:
  std::string_view name() const override { return "without VBMI"; }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    return cpu::cpu_provider().offers(r, p);
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& p, const region::Tactic&) const override {
    OCTAVO_TRY(const cpu::jit::ConvSetting conv, cpu::jit::match_conv(r, p, {}));
    region::Artifact made;
    OCTAVO_TRY(made.constants, cpu::jit::pack_conv(conv));
    return made;
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                               const region::ArtifactView& artifact) const override {
    OCTAVO_TRY(cpu::jit::ConvSetting conv, cpu::jit::match_conv(r, p, {}));
    return cpu::jit::load_conv(std::move(conv), packed_of(artifact.constants));
  }
};

/// By vpdpbusd, its forms without byte permutes and on tiles; or by pairs of 16 bits (AVX2).
class GeneratedEpilogue : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static bool pairs() { return std::string_view(GetParam()) == "pairs"; }
  void SetUp() override {
    if (pairs()) cap_.emplace(cpu::Isa::avx2);  // offered where vpdpbusd is not
  }
  /// "" or what is wrong.
  static std::string run(Scene& s) { return s.compare(cpu::cpu_provider(), pairs() ? "cpu.conv.u8s8.avx2.jit" : kTactic); }
  static std::string run_without_vbmi(Scene& s) { return pairs() ? "" : s.compare(WithoutVbmi(), kTactic); }
  static std::string run_on_tiles(Scene& s) { return pairs() ? "" : s.compare(emulated_amx_provider(), kAmx); }

 private:
  std::optional<cpu::CapScope> cap_;
};
INSTANTIATE_TEST_SUITE_P(By, GeneratedEpilogue, ::testing::Values("vnni", "pairs"),
                         [](const auto& test) { return std::string(test.param); });

/// A 1x1 convolution of `channels` channels; the program is the caller's.
void anchor(Scene& s, std::int64_t channels, std::int64_t width) {
  auto& st = s.stage();
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::default_facts(ir::Op::conv);
  st.anchor.integer = true;
  auto x = s.nhwc(DType::u8, {1, 4, 1, width});
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, 100);
  st.anchor.inputs = {x};
  st.anchor.weights = s.tensor(DType::s8, {channels, 4, 1, 1}, BufferKind::constant);
  st.space = {1, channels, 1, width};
}

/// Operand 0: f32 with NaN, infinities, zeros of both signs, denormals; 1: s32; 2: u8.
void operands(Scene& s) {
  auto& st = s.stage();
  st.operands = {{s.nhwc(DType::f32, st.space), {}}, {s.nhwc(DType::s32, st.space), {}}, {s.nhwc(DType::u8, st.space), {}}};
  auto& bytes = s.memory[static_cast<std::size_t>(st.operands[0].ref.buffer)];
  const float specials[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1e-40F, 2.5F, -1.5F, 3e38F, -3e38F, 65519.9F, 1e-7F};
  for (std::size_t k = 64; k + 68 <= bytes.size(); k += 12) std::memcpy(bytes.data() + k, &specials[k / 12 % 12], 4);
  st.program.operand_count = 3;
}

program::Program random_program(Scene& s, int length, std::set<Op>& seen) {
  program::Program p;
  p.operand_count = 3;
  std::vector<int> ints{p.push(Op::acc_i), p.load(Op::load_i, 1), p.load(Op::load_i, 2), p.imm_i(77)};
  std::vector<int> floats{p.load(Op::load_f, 0), p.push(Op::i2f, ints[0]), p.imm_f(0.5F), p.imm_f(-3.25F)};
  for (int t = 0; t < 2; ++t) {
    auto& table = p.tables.emplace_back();
    for (auto& byte : table) byte = static_cast<std::uint8_t>(s.rng()());
  }
  const auto any = [&](const std::vector<int>& v) {
    return v[static_cast<std::size_t>(s.pick(0, static_cast<int>(v.size()) - 1))];
  };
  while (static_cast<int>(p.code.size()) < length) {
    const auto op = static_cast<Op>(s.pick(static_cast<int>(Op::i2f), static_cast<int>(Op::table)));
    const auto& info = program::info(op);
    seen.insert(op);
    program::Instr t;
    t.op = op;
    if (op == Op::table) {
      ints.push_back(p.push_imm(Op::table, s.pick(0, 1), p.push(Op::and_i, any(ints), p.imm_i(255))));
      continue;
    }
    for (std::size_t a = 0; a < info.operands.size(); ++a) t.args[a] = any(info.operands[a] == 'f' ? floats : ints);
    if (op == Op::shl_i || op == Op::sra_i) t.imm = s.pick(0, 31);
    // The bits of a NaN are not promised, so none becomes an integer.
    if (op == Op::bits_i) t.args[0] = p.push(Op::nan0, t.args[0]);
    p.code.push_back(t);
    (info.result == 'f' ? floats : ints).push_back(static_cast<int>(p.code.size()) - 1);
  }
  const int byte = p.push(Op::and_i, ints.back(), p.imm_i(255));
  p.outputs = {{p.push(Op::nan0, floats.back()), DType::f32}, {ints.back(), DType::s32}, {byte, DType::u8}};
  p.outputs.push_back({p.push_imm(Op::table, 1, byte), DType::u8});
  p.outputs.push_back({p.push(Op::sub_i, byte, p.imm_i(128)), DType::s8});
  p.outputs.push_back({p.push(Op::nan0, any(floats)), DType::bf16});
  p.outputs.push_back({p.push(Op::nan0, any(floats)), DType::f16});
  std::shuffle(p.outputs.begin(), p.outputs.end(), s.rng());
  p.outputs.resize(static_cast<std::size_t>(s.pick(1, 5)));
  return p;
}

TEST_P(GeneratedEpilogue, RandomPrograms) {
  std::set<Op> seen;
  for (std::uint32_t seed = 1; seed <= rounds(150, 400); ++seed) {
    Scene s(seed);
    anchor(s, s.pick(1, 80), s.pick(1, 15));
    operands(s);
    auto& st = s.stage();
    st.program = random_program(s, s.pick(8, 70), seen);
    for (const auto& o : st.program.outputs) st.stores.push_back(s.nhwc(o.type, st.space));
    EXPECT_RUNS(run(s));
    if (seed % 4 == 0) EXPECT_RUNS(run_without_vbmi(s));
    if (seed % 2 == 0) EXPECT_RUNS(run_on_tiles(s));
  }
  for (int op = static_cast<int>(Op::i2f); op <= static_cast<int>(Op::table); ++op) {
    EXPECT_TRUE(seen.count(static_cast<Op>(op)) != 0) << program::info(static_cast<Op>(op)).name << " never ran";
  }
}

// Quantization as planners write it: clamps in either order and nesting, in floats or integers, with and without zero points, on
// values that include NaN, infinities and exact ties; then codes clamped again, looked up, or stored signed.
TEST_P(GeneratedEpilogue, EveryFormOfQuantization) {
  std::uint32_t seed = 1;
  for (const int zero : {0, 1, 128, 255, -128, 127}) {
    for (const int clamp : {0, 1, 2, 3, 4, 5, 6}) {
      for (const int after : {0, 1, 2, 3, 4}) {
        const bool is_signed = zero < 0 || zero == 127;
        Scene s(seed++);
        anchor(s, s.pick(1, 70), s.pick(1, 9));
        operands(s);
        auto& p = s.stage().program;
        const int lo = (is_signed ? -128 : 0) - zero, hi = lo + 255;
        const int l = p.imm_f(static_cast<float>(after == 4 ? lo + 10 : lo)), h = p.imm_f(static_cast<float>(hi));
        const int tie = p.push(Op::mul, p.push(Op::i2f, p.load(Op::load_i, 2)), p.imm_f(0.5F));  // halves: exact ties
        int x = p.push(Op::div, p.load(Op::load_f, 0), p.imm_f(0.031F));
        if (seed % 3 != 0) x = p.push(Op::add, x, tie);
        if (clamp == 6) x = p.push(Op::nan0, x);
        switch (clamp) {
          case 0: x = p.push(Op::min, p.push(Op::max, x, l), h); break;
          case 1: x = p.push(Op::max, p.push(Op::min, x, h), l); break;
          case 2: x = p.push(Op::min, p.push(Op::max, l, x), h); break;
          case 3: x = p.push(Op::min, h, p.push(Op::max, x, l)); break;
          case 4: x = p.push(Op::max, l, p.push(Op::min, h, x)); break;
          default: x = p.push(Op::min, p.push(Op::max, x, l), h);
        }
        int v = p.push(Op::f2i, x);
        if (zero != 0) v = p.push(Op::add_i, v, p.imm_i(zero));
        // A NaN that passes every clamp is INT_MIN + zero: out of the contract of a store, so only these forms may see one.
        if (clamp == 4 || clamp == 2 || clamp == 3) {
          v = p.push(Op::max_i, p.push(Op::min_i, v, p.imm_i(hi + zero)), p.imm_i(lo + zero));
        }
        if (after == 1) v = p.push(Op::max_i, p.imm_i(is_signed ? 5 : 128), v);
        if (after == 2) v = p.push(Op::min_i, p.push(Op::max_i, v, p.imm_i(3)), p.imm_i(100));
        if (after == 3 && !is_signed) {
          auto& table = p.tables.emplace_back();
          for (auto& byte : table) byte = static_cast<std::uint8_t>(s.rng()());
          v = p.push_imm(Op::table, 0, v);
        }
        const DType type = is_signed ? DType::s8 : DType::u8;
        p.outputs = {{v, type}};
        s.stage().stores = {s.nhwc(type, s.stage().space)};
        EXPECT_RUNS(run(s));
        EXPECT_RUNS(run_without_vbmi(s));
        EXPECT_RUNS(run_on_tiles(s));
      }
    }
  }
}

// Functions of program/math.h: long programs that need the stack.
TEST_P(GeneratedEpilogue, TranscendentalFunctions) {
  std::uint32_t seed = 1;
  for (const ir::Op op : {ir::Op::exp, ir::Op::log, ir::Op::sigmoid, ir::Op::tanh, ir::Op::erf, ir::Op::gelu, ir::Op::mish,
                          ir::Op::softplus, ir::Op::hard_swish, ir::Op::hard_sigmoid, ir::Op::elu, ir::Op::selu}) {
    for (const std::int64_t channels : {5, 16, 40, 64}) {
      Scene s(seed++);
      anchor(s, channels, 14);
      auto& p = s.stage().program;
      program::ProgramOps ops{p};
      const int x = p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(1e-3F));
      const int y = program::unary(ops, op, ir::default_facts(op), x);
      const int q =
          p.push(Op::f2i, p.push(Op::min, p.push(Op::max, p.push(Op::div, y, p.imm_f(0.05F)), p.imm_f(-128)), p.imm_f(127)));
      p.outputs = {{p.push(Op::add_i, q, p.imm_i(128)), DType::u8}, {p.push(Op::nan0, y), DType::f32}};
      s.stage().stores = {s.nhwc(DType::u8, s.stage().space), s.nhwc(DType::f32, s.stage().space)};
      EXPECT_RUNS(run(s));
      EXPECT_RUNS(run_on_tiles(s));
    }
  }
}

// What `same_codes` accepts is the same for values around every middle between two codes and for random ones; it accepts nearly
// every scale, so that the tests above run multiplications and not divisions.
TEST(Avx512Epilogue, DivisionsByMultiplication) {
  std::mt19937 rng(7);
  int accepted = 0;
  constexpr int kScales = 3000;
  for (int round = 0; round < kScales; ++round) {
    const float s = std::exp2(std::uniform_real_distribution<float>(-20, 4)(rng));
    if (!cpu::jit::same_codes(s, -128, 255)) continue;
    ++accepted;
    const auto r = cpu::jit::Reciprocal::of(s);
    for (const float x : {INFINITY, -INFINITY, 3.4e38F, -3.4e38F}) ASSERT_EQ(x < 0, std::fma(x, r.high, x * r.low) < -1e30F) << s;
    ASSERT_TRUE(std::isinf(std::fma(INFINITY, r.high, INFINITY * r.low)));
    for (int t = 0; t < 300; ++t) {
      float x = s * std::uniform_real_distribution<float>(-130, 257)(rng);
      if (t % 3 != 0) {
        x = s * (std::floor(x / s) + 0.5F);
        for (int ulps = t % 25 - 12; ulps != 0; ulps += ulps < 0 ? 1 : -1) x = std::nextafter(x, ulps < 0 ? -1e9F : 1e9F);
      }
      ASSERT_EQ(std::nearbyint(x / s), std::nearbyint(std::fma(x, r.high, x * r.low))) << x << " / " << s;
    }
  }
  EXPECT_GT(accepted, kScales * 99 / 100);
  for (const float s : {0.0F, -1.0F, NAN, INFINITY, 1e-40F}) EXPECT_FALSE(cpu::jit::same_codes(s, 0, 255));
}

}  // namespace
}  // namespace octavo::testing
