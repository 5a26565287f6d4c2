// Curves (cpu/jit/curve.h): what is found, the bound of their error, and kernels whose groups take either way.
#include "cpu/jit/curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/amx_emulated.h"
#include "cpu/isa.h"
#include "cpu/jit/conv.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "program/math.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using cpu::jit::ConvSetting;
using cpu::jit::Curve;
using ir::DType;
using program::Op;
using region::BufferKind;

constexpr const char *kTactic = "cpu.conv.u8s8.avx512vnni.jit", *kAmx = "cpu.conv.u8s8.amx";

struct Function {
  const char* name;
  program::Function function;
  ir::Op op;
  bool times_x = false;
  const char* approximate = "";
};
constexpr Function kFunctions[] = {{"silu", program::Function::silu, ir::Op::sigmoid, true},
                                   {"sigmoid", program::Function::sigmoid, ir::Op::sigmoid},
                                   {"tanh", program::Function::tanh, ir::Op::tanh},
                                   {"gelu", program::Function::gelu, ir::Op::gelu},
                                   {"gelu tanh", program::Function::gelu_tanh, ir::Op::gelu, false, "tanh"},
                                   {"mish", program::Function::mish, ir::Op::mish},
                                   {"softplus", program::Function::softplus, ir::Op::softplus},
                                   {"erf", program::Function::erf, ir::Op::erf},
                                   {"elu", program::Function::elu, ir::Op::elu}};

struct Case {
  Function f;
  float out_scale = 0.05F;
  int zero = 128;
  float acc_scale = 2e-4F;
  std::int64_t channels = 64, height = 1, width = 14, in = 64, kernel = 1;
  int threads = 1;
  bool table = false, fused = true;
};

/// A convolution, f of its float result, a division by the scale of the codes, clamps, zero point.
void build(Scene& s, const Case& k) {
  auto& st = s.stage();
  st.anchor.op = ir::Op::conv;
  st.anchor.integer = true;
  const std::int64_t pad = k.kernel / 2;
  st.anchor.facts = testing::facts(st.anchor.op, {{"pads", std::vector<std::int64_t>{pad, pad, pad, pad}}});
  auto x = s.nhwc(DType::u8, {1, k.in, k.height, k.width});
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, 100);
  st.anchor.inputs = {x};
  st.anchor.weights = s.tensor(DType::s8, {k.channels, k.in, k.kernel, k.kernel}, BufferKind::constant);
  st.space = {1, k.channels, k.height, k.width};
  s.plan().threads = k.threads;
  std::vector<float> scales, biases;
  for (std::int64_t c = 0; c < k.channels; ++c) {
    scales.push_back(k.acc_scale * static_cast<float>(s.pick(50, 150)) / 100.0F);
    biases.push_back(static_cast<float>(s.pick(-300, 300)) / 100.0F);
  }
  st.operands = {{s.constant_along(scales, st.space, 1), {}}, {s.constant_along(biases, st.space, 1), {}}};
  auto& p = st.program;
  p.operand_count = 2;
  program::ProgramOps ops{p};
  const int acc = p.push(Op::i2f, p.push(Op::acc_i));
  const int v = k.fused ? p.push(Op::fma, acc, p.load(Op::load_f, 0), p.load(Op::load_f, 1))
                        : p.push(Op::add, p.push(Op::mul, acc, p.load(Op::load_f, 0)), p.load(Op::load_f, 1));
  const ir::Facts facts = *k.f.approximate == 0 ? ir::default_facts(k.f.op) : ir::Facts(ir::Gelu{ir::GeluForm::tanh});
  int y = program::unary(ops, k.f.op, facts, v);
  if (k.f.times_x) y = p.push(Op::mul, v, y);
  const int lo = -k.zero, hi = 255 - k.zero;
  const int q =
      p.push(Op::f2i, p.push(Op::min, p.push(Op::max, p.push(Op::div, y, p.imm_f(k.out_scale)), p.imm_f(static_cast<float>(lo))),
                             p.imm_f(static_cast<float>(hi))));
  int code = k.zero == 0 ? q : p.push(Op::add_i, q, p.imm_i(k.zero));
  if (k.table) {
    auto& table = p.tables.emplace_back();
    for (auto& byte : table) byte = static_cast<std::uint8_t>(s.rng()());
    code = p.push_imm(Op::table, 0, code);
  }
  p.outputs = {{code, DType::u8}};
  st.stores = {s.nhwc(DType::u8, st.space)};
}

struct CodedCase {
  std::int64_t channels = 64, width = 14, in = 64;
  float code_scale = 0.0276F, out_scale = 0.0288F;
  int zero = 128;       ///< of the codes in the middle and of the results
  bool divides = true;  ///< by the root of two
  int half = 0;         ///< where 1/2 is multiplied: behind both, with x, with 1 + erf
};

/// A MatMul as ONNX Runtime quantizes it: the products are rounded to codes in front of the bias, then a GELU that is spelled out.
void build_coded(Scene& s, const CodedCase& k) {
  auto& st = s.stage();
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::default_facts(ir::Op::conv);
  st.anchor.integer = true;
  auto x = s.nhwc(DType::u8, {1, k.in, 1, k.width});
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, 128);
  st.anchor.inputs = {x};
  st.anchor.weights = s.tensor(DType::s8, {k.channels, k.in, 1, 1}, BufferKind::constant);
  st.space = {1, k.channels, 1, k.width};
  std::vector<float> scales, biases;
  const auto size = static_cast<float>(std::sqrt(static_cast<double>(k.in)) * 5000);  // of a sum, about
  for (std::int64_t c = 0; c < k.channels; ++c) {
    scales.push_back(k.code_scale * 90 / size * static_cast<float>(s.pick(500, 1500)) / 1000.0F);
    biases.push_back(static_cast<float>(s.pick(-3000, 3000)) / 7777.0F);
  }
  st.operands = {{s.constant_along(scales, st.space, 1), {}}, {s.constant_along(biases, st.space, 1), {}}};
  auto& p = st.program;
  p.operand_count = 2;
  const auto quantized = [&](int v, float scale) {
    const int lo = p.imm_f(static_cast<float>(-k.zero)), hi = p.imm_f(static_cast<float>(255 - k.zero));
    return p.push(Op::add_i, p.push(Op::f2i, p.push(Op::min, p.push(Op::max, p.push(Op::div, v, p.imm_f(scale)), lo), hi)),
                  p.imm_i(k.zero));
  };
  const int code = quantized(p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.load(Op::load_f, 0)), k.code_scale);
  int v = p.push(Op::mul, p.imm_f(k.code_scale), p.push(Op::i2f, p.push(Op::sub_i, code, p.imm_i(k.zero))));
  v = p.push(Op::add, p.load(Op::load_f, 1), v);
  program::ProgramOps ops{p};
  const int scaled = k.divides ? p.push(Op::div, v, p.imm_f(std::sqrt(2.0F))) : p.push(Op::mul, v, p.imm_f(std::sqrt(0.5F)));
  const int both = p.push(Op::add, p.imm_f(1), program::unary(ops, ir::Op::erf, {}, scaled)), half = p.imm_f(0.5F);
  const int y = k.half == 0   ? p.push(Op::mul, p.push(Op::mul, v, both), half)
                : k.half == 1 ? p.push(Op::mul, p.push(Op::mul, v, half), both)
                              : p.push(Op::mul, v, p.push(Op::mul, both, half));
  p.outputs = {{quantized(y, k.out_scale), DType::u8}};
  st.stores = {s.nhwc(DType::u8, st.space)};
}

Curve found(Scene& s) {
  cpu::jit::LoweredEpilogue e;
  EXPECT_EQ(spelled(cpu::jit::lower(s.region().stages[0], false, true, e)), "");
  Curve c;
  EXPECT_EQ(spelled(Curve::find(e, c)), "");
  return c;
}

TEST(Curve, FindsKnownFunctionsAndNothingElse) {
  for (const Function& f : kFunctions) {
    Scene s(1);
    Case k{.f = f};
    build(s, k);
    EXPECT_EQ(found(s).function, f.function) << f.name;
  }
  const auto why = [](auto change) {
    Scene s(2);
    build(s, {.f = kFunctions[0]});
    change(s);
    cpu::jit::LoweredEpilogue e;
    EXPECT_EQ(spelled(cpu::jit::lower(s.region().stages[0], false, true, e)), "");
    Curve c;
    return Curve::find(e, c);
  };
  EXPECT_EQ(spelled(why([](Scene&) {})), "");
  EXPECT_EQ(why([](Scene& s) {  // the float is wanted as well
              s.stage().program.outputs.push_back({4, DType::f32});
              s.stage().stores.push_back(s.nhwc(DType::f32, s.stage().space));
            }),
            region::unmet("output 1", "of its own", "the packed value or a table of it"));
  for (const char* name : {"sin", "another constant in the exponential", "an operand of its own"}) {
    const auto refusal = why([&](Scene& s) {
      auto& p = s.stage().program;
      if (name[0] == 's') {
        p = {};
        p.operand_count = 2;
        program::ProgramOps ops{p};
        const int x = p.push(Op::fma, p.push(Op::i2f, p.push(Op::acc_i)), p.load(Op::load_f, 0), p.load(Op::load_f, 1));
        const int y = program::unary(ops, ir::Op::sin, {}, x);
        p.outputs = {{p.push(Op::f2i, p.push(Op::min, p.push(Op::max, y, p.imm_f(0)), p.imm_f(255))), DType::u8}};
      } else if (name[3] == 'o') {
        for (auto& in : p.code) {
          if (in.op == Op::imm_f && std::bit_cast<float>(in.imm) == 0.49999994F) in.imm = std::bit_cast<std::int32_t>(0.5F);
        }
      } else {
        for (auto& in : p.code) {
          if (in.op == Op::imm_f && std::bit_cast<float>(in.imm) == 0.05F) in = {Op::load_f, {-1, -1, -1, -1}, 1};
        }
      }
    });
    EXPECT_FALSE(refusal.empty()) << name;
  }
}

// Accumulators at and around every place where the code changes, and random ones: whatever lies outside of the window is the code
// of the oracle; a window of nothing would be wrong.
TEST(Curve, OutsideOfTheWindowCodesAreThoseOfTheOracle) {
  std::int64_t checked = 0, open = 0, wrong_without = 0;
  int fits = 0, none = 0;
  std::uint32_t seed = 1;
  for (const Function& f : kFunctions) {
    for (const float out_scale : {0.002F, 0.0123F, 0.05F, 0.11F}) {
      for (const int zero : {0, 3, 128}) {
        Scene s(seed++);
        build(s, {.f = f, .out_scale = out_scale, .zero = zero, .fused = seed % 2 == 0});
        const Curve curve = found(s);
        auto table = cpu::jit::fit(curve, 1e4);
        if (!table) {
          ++none;
          continue;
        }
        for (int channel = 0; channel < 3; ++channel) {
          const float scale = std::exp2(std::uniform_real_distribution<float>(-17, -9)(s.rng()));
          const float bias = std::uniform_real_distribution<float>(-4, 4)(s.rng());
          const double error = cpu::jit::channel_error(curve, *table, scale, bias);
          const auto covers = cpu::jit::window_for(error);
          if (!covers) continue;
          const std::int32_t window = *covers;
          ++fits;
          const auto m = static_cast<float>(scale / table->step), b = static_cast<float>((bias - table->center) / table->step);
          const auto written = [&](std::int32_t acc) {
            const auto a = static_cast<float>(acc);
            return curve.code(curve.fused ? std::fma(a, scale, bias) : a * scale + bias);
          };
          const auto check = [&](std::int32_t acc) {
            const std::int32_t z = cpu::jit::curve_value(*table, std::fma(static_cast<float>(acc), m, b)) + window / 2;
            ++checked;
            if ((z & 65535) < window) {
              ++open;
              wrong_without += z >> 16 != written(acc) ? 1 : 0;
            } else {
              ASSERT_EQ(z >> 16, written(acc)) << "acc " << acc << " scale " << scale << " bias " << bias << " out " << out_scale
                                               << " " << f.name << " zero " << zero << " seed " << s.seed();
            }
          };
          // Every step of the code between neighbours of a grid, by bisection.
          const auto far = static_cast<std::int32_t>(std::min(2e9, 12.0 * table->step / scale)), grid = std::max(1, far / 2000);
          for (std::int64_t at = -far; at + grid <= far; at += grid) {
            auto lo = static_cast<std::int32_t>(at), hi = static_cast<std::int32_t>(at + grid);
            check(lo);
            if (written(lo) == written(hi)) continue;
            while (hi - lo > 1) {
              const std::int32_t middle = lo + (hi - lo) / 2;
              (written(middle) == written(lo) ? lo : hi) = middle;
            }
            for (int k = -3; k <= 3; ++k) check(lo + k);
          }
          for (int k = 0; k < 3000; ++k) check(static_cast<std::int32_t>(s.rng()()) % far);
          for (const std::int32_t acc : {INT32_MIN, INT32_MAX, 0}) check(acc);
        }
      }
    }
  }
  std::printf("%d channels of curves, %d functions without; %lld checks, %lld open, %lld of them wrong\n", fits, none,
              static_cast<long long>(checked), static_cast<long long>(open), static_cast<long long>(wrong_without));
  EXPECT_GT(fits, 150);
  EXPECT_GT(wrong_without, 100);
}

/// The packed value of an epilogue, instruction by instruction as kernels compute it; loads read `operands`.
std::int32_t packed_value(const cpu::jit::LoweredEpilogue& e, std::int32_t acc, const std::vector<float>& operands) {
  const program::Program none;
  std::vector<program::Scalar> v(e.code.size());
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    const cpu::jit::Instr& in = e.code[i];
    std::array<program::Scalar, 4> a{};
    for (std::size_t k = 0; k < 4; ++k) {
      if (in.args[k] >= 0) a[k] = v[static_cast<std::size_t>(in.args[k])];
    }
    if (in.special == cpu::jit::Special::within) {
      v[i].f = std::copysign(std::min(std::fabs(a[0].f), a[1].f), a[0].f);
    } else if (in.special == cpu::jit::Special::add_down) {
      v[i].f = static_cast<float>(std::floor(static_cast<double>(a[0].f) + static_cast<double>(a[1].f)));
    } else if (in.special == cpu::jit::Special::pick) {
      v[i].f = e.blocks[static_cast<std::size_t>(e.code[static_cast<std::size_t>(in.args[1])].block)][a[0].i & 15];
    } else if (in.op == Op::acc_i) {
      v[i].i = acc;
    } else if (in.op == Op::load_f) {
      v[i].f = operands[static_cast<std::size_t>(in.imm)];
    } else if (in.op == Op::imm_i || in.op == Op::imm_f) {
      v[i].i = in.imm;
    } else {
      v[i] = evaluate_op(none, program::Instr{in.op, in.args, in.imm}, a[0], a[1], a[2], a[3]);
    }
  }
  return v[static_cast<std::size_t>(e.pack.value)].i;
}

// Behind codes of the products: every code of every channel is met, by the sums where it begins and ends and by others.
TEST(Curve, OfACodeGivesWhatIsWritten) {
  std::int64_t checked = 0, open = 0, wrong_without = 0, blocks = 0, taken = 0;
  std::uint32_t seed = 1;
  for (const float out_scale : {0.0092F, 0.0288F, 0.061F}) {
    for (const int zero : {0, 128}) {
      for (const int half : {0, 1, 2}) {
        Scene s(seed++);
        CodedCase k{
            .channels = seed % 2 == 0 ? 48 : 23, .out_scale = out_scale, .zero = zero, .divides = seed % 3 != 0, .half = half};
        build_coded(s, k);
        auto matched = cpu::jit::match_conv(s.region(), s.plan(), {.vbmi = true});
        ASSERT_TRUE(matched) << matched.error().message;
        const ConvSetting& plan = *matched;
        ASSERT_TRUE(plan.curve && plan.curve->coded) << "seed " << seed;
        EXPECT_EQ(plan.curve->function, program::Function::gelu_of_erf);
        const auto packed = cpu::jit::pack_conv(plan);
        ASSERT_TRUE(packed);
        const auto lines = (*packed)[2].data<float>();
        const auto flags = (*packed)[3].data<std::int32_t>();
        const cpu::jit::LoweredEpilogue e = cpu::jit::curve_epilogue(plan.epilogue, *plan.curve, (*packed)[4].data<float>().data());
        const auto operand = [&](std::size_t n, std::int64_t c) {
          return s.plan()
              .buffers[static_cast<std::size_t>(s.stage().operands[n].ref.buffer)]
              .data.data<float>()[static_cast<std::size_t>(c)];
        };
        for (const auto& b : plan.phases[0].blocks) {
          ++blocks;
          if (flags[static_cast<std::size_t>(b.init / 16)] == 0) continue;
          ++taken;
          for (std::int64_t lane = 0; lane < (b.channels + 15) / 16 * 16; ++lane) {
            const auto at = static_cast<std::size_t>(b.init + lane);
            const float m = lines[at], first = lines[at + static_cast<std::size_t>(plan.init_count)];
            if (lane >= b.channels) {
              const std::int32_t z = packed_value(e, 12345, {m, first, 0, 0});
              EXPECT_GE(z & 65535, e.window) << "a lane without a channel is open";
              continue;
            }
            const float scale = operand(0, b.first_channel + lane), bias = operand(1, b.first_channel + lane);
            const auto check = [&](std::int32_t acc) {
              const std::int32_t z = packed_value(e, acc, {m, first, scale, bias});
              const std::int32_t written =
                  std::clamp(packed_value(plan.epilogue, acc, {scale, bias}) + plan.epilogue.pack.zero, e.pack.lo, e.pack.hi);
              ++checked;
              if ((z & 65535) < e.window) {
                ++open;
                wrong_without += z >> 16 != written ? 1 : 0;
              } else {
                ASSERT_EQ(z >> 16, written) << "acc " << acc << " channel " << b.first_channel + lane << " seed " << seed;
              }
            };
            for (int code = -129; code <= 256; ++code) {  // where the code in the middle changes, and in between
              const auto edge =
                  static_cast<std::int32_t>((code - 0.5) * static_cast<double>(k.code_scale) / static_cast<double>(scale));
              for (int d = -1; d <= 1; ++d) check(edge + d);
              check(edge + static_cast<std::int32_t>(s.pick(2, 50)));
            }
            for (const std::int32_t acc : {0, 1000000, -1000000}) check(acc);
          }
        }
      }
    }
  }
  std::printf("%lld of %lld blocks; %lld checks, %lld open, %lld of them wrong\n", static_cast<long long>(taken),
              static_cast<long long>(blocks), static_cast<long long>(checked), static_cast<long long>(open),
              static_cast<long long>(wrong_without));
  EXPECT_GT(taken * 10, blocks * 7);
  EXPECT_GT(open, 100);
  EXPECT_LT(open * 200, checked);
}

// Machine code is made on every x86 processor, with registers for all values, though only some can run it.
TEST(Curve, OfACodeIsEmitted) {
  for (const std::int64_t channels : {1, 16, 33, 48, 64, 150}) {
    for (const std::int64_t width : {7, 45, 1100}) {
      for (const auto dots : {cpu::jit::Dots::vnni, cpu::jit::Dots::amx}) {
        Scene s(3);
        build_coded(s, {.channels = channels, .width = width});
        auto matched = cpu::jit::match_conv(s.region(), s.plan(), {.vbmi = true}, dots);
        ASSERT_TRUE(matched) << matched.error().message;
        const ConvSetting& plan = *matched;
        ASSERT_TRUE(plan.curve && plan.curve->coded);
        const auto packed = cpu::jit::pack_conv(plan);
        ASSERT_TRUE(packed);
        std::vector<std::span<const std::byte>> at;
        for (const auto& t : *packed) at.push_back(t.bytes());
        EXPECT_TRUE(cpu::jit::load_conv(plan, at)) << channels << " channels, " << width << " pixels";
      }
    }
  }
}

/// Packs as the tactic does, then changes the window.
class OtherWindow final : public region::Provider {
 public:
  OtherWindow(const region::Provider& p, float window) : provider_(p), window_(window) {}
  std::string_view name() const override { return "other window"; }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    return provider_.offers(r, p);
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& p, const region::Tactic& t) const override {
    auto made = provider_.compile(r, p, t);
    if (made && made->constants.size() == 5) made->constants[4].mutable_data<float>()[5 * 16] = window_;
    return made;
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                               const region::ArtifactView& artifact) const override {
    return provider_.load(r, p, artifact);
  }

 private:
  const region::Provider& provider_;
  float window_;
};

/// Blocks of the region that take the curve; -1: the plan has none.
int blocks_with(Scene& s) {
  const auto plan = cpu::jit::match_conv(s.region(), s.plan(), {.vbmi = true});
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan->curve) return -1;
  auto packed = cpu::jit::pack_conv(*plan);
  EXPECT_TRUE(packed);
  int n = 0;
  for (const auto flag : (*packed)[3].data<std::int32_t>()) n += flag;
  return n;
}

class Curves : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_vbmi()) GTEST_SKIP() << "byte permutes are needed";
  }
};

TEST_F(Curves, KernelsOfEveryShape) {
  int with = 0, all = 0;
  std::uint32_t seed = 1;
  const OtherWindow always(cpu::cpu_provider(), 32768), always_amx(emulated_amx_provider(), 32768);
  for (const Function& f : kFunctions) {
    for (const std::int64_t channels : {1, 5, 16, 24, 32, 40, 48, 61, 64, 80, 150}) {
      Scene s(seed++);
      Case k{.f = f, .channels = channels};
      k.out_scale = f.op == ir::Op::sigmoid && !f.times_x         ? 1 / 255.0F
                    : f.op == ir::Op::tanh || f.op == ir::Op::erf ? 1 / 127.0F
                                                                  : 0.04F;
      k.zero = f.op == ir::Op::sigmoid && !f.times_x ? 0 : 128;
      k.width = s.pick(1, 45), k.height = s.pick(1, 2);
      k.in = s.pick(0, 1) == 0 ? s.pick(1, 30) : s.pick(64, 120);
      k.kernel = s.pick(0, 2) == 0 ? 3 : 1;
      k.acc_scale = 0.03F / static_cast<float>(k.in * k.kernel);
      k.table = s.pick(0, 3) == 0, k.fused = s.pick(0, 1) == 0;
      k.threads = s.pick(1, 2);
      build(s, k);
      ++all;
      with += blocks_with(s) > 0 ? 1 : 0;
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), kTactic));
      EXPECT_RUNS(s.compare(always, kTactic));
      EXPECT_RUNS(s.compare(emulated_amx_provider(), kAmx));
      EXPECT_RUNS(s.compare(always_amx, kAmx));
    }
  }
  std::printf("%d of %d regions take a curve\n", with, all);
  EXPECT_GT(with * 10, all * 8);
}

// Many pixels: the epilogue runs among the next tile's dots. Some groups are open, and are right only because they are computed as
// written.
TEST_F(Curves, OpenGroupsAmongDots) {
  int differs = 0;
  const OtherWindow never(cpu::cpu_provider(), 1), always(cpu::cpu_provider(), 32768);
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    Scene s(seed);
    Case k{.f = kFunctions[0], .out_scale = 0.03F, .zero = 128, .acc_scale = 2e-4F};
    constexpr std::int64_t kChannels[] = {64, 32, 48, 16, 10, 80};  // one vector: up to 8 pixels a tile
    k.channels = kChannels[seed % 6];
    k.height = 34, k.width = 33, k.in = seed % 4 == 0 ? 3 : 16, k.kernel = seed % 3 == 0 ? 1 : 3;
    build(s, k);
    ASSERT_GT(blocks_with(s), 0);
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), kTactic));
    EXPECT_RUNS(s.compare(always, kTactic));
    const auto why = s.compare(never, kTactic);
    differs += why.empty() ? 0 : 1;
  }
  EXPECT_GT(differs, 0) << "no value was open, so nothing was tested";
}

TEST_F(Curves, KernelsBehindCodes) {
  int with = 0, all = 0;
  std::uint32_t seed = 1;
  const OtherWindow always(cpu::cpu_provider(), 32768), always_amx(emulated_amx_provider(), 32768);
  for (const std::int64_t channels : {1, 15, 16, 40, 64, 150}) {
    for (const std::int64_t width : {1, 7, 45, 1100}) {
      Scene s(seed++);
      build_coded(s, {.channels = channels, .width = width, .in = seed % 2 == 0 ? 64 : 192, .half = static_cast<int>(seed % 3)});
      ++all;
      with += blocks_with(s) > 0 ? 1 : 0;
      EXPECT_RUNS(s.compare(cpu::cpu_provider(), kTactic));
      EXPECT_RUNS(s.compare(always, kTactic));
      EXPECT_RUNS(s.compare(emulated_amx_provider(), kAmx));
      EXPECT_RUNS(s.compare(always_amx, kAmx));
    }
  }
  EXPECT_GT(with * 10, all * 7) << with << " of " << all;
}

// Channels whose scale or bias leaves no bound keep the written form.
TEST_F(Curves, RefusedBlocks) {
  struct Odd {
    float value;
    std::size_t operand;  ///< 0: the scale of channel 3, 1: the bias of channel 70
    int blocks;           ///< of two that take the curve
  };
  for (const Odd odd :
       {Odd{INFINITY, 0, 0}, Odd{INFINITY, 1, 0}, Odd{NAN, 0, 1}, Odd{NAN, 1, 1}, Odd{3e38F, 0, 0}, Odd{-3e38F, 1, 0},
        Odd{1e7F, 0, 2}, Odd{-1e7F, 0, 2}, Odd{0, 0, 2}, Odd{1e-40F, 0, 2}, Odd{1e7F, 1, 1}, Odd{-4e4F, 1, 1}}) {
    Scene s(7);
    build(s, {.f = kFunctions[0], .channels = 128});
    const auto& ref = s.stage().operands[odd.operand].ref;
    const auto buffer = static_cast<std::size_t>(ref.buffer);
    const std::size_t at = static_cast<std::size_t>(ref.offset) + (odd.operand == 0 ? 3 : 70);
    const auto before = s.plan().buffers[buffer].data.data<float>()[at];
    auto& bytes = s.memory[buffer];  // the same constant between guards
    const auto guard = (bytes.size() - 128 * sizeof(float)) / 2;
    ASSERT_EQ(std::memcmp(bytes.data() + guard + at * 4, &before, 4), 0);
    std::memcpy(bytes.data() + guard + at * 4, &odd.value, 4);
    s.plan().buffers[buffer].data.mutable_data<float>()[at] = odd.value;
    EXPECT_EQ(blocks_with(s), odd.blocks) << odd.value << " as operand " << odd.operand;
    EXPECT_RUNS(s.compare(cpu::cpu_provider(), kTactic));
    EXPECT_RUNS(s.compare(emulated_amx_provider(), kAmx));
  }
}

}  // namespace
}  // namespace octavo::testing
