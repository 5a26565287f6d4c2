// Speed of the generated convolutions, one thread: each layer beside the machine's vpdpbusd peak, measured in the same rounds.
//   octavo_conv_bench [--layer=TEXT] [--tactic=TEXT] [--rounds=N] [--copies=N]
// Prints the fastest round of each (a busy machine only ever slows a round down), and the median over rounds of layer / peak of the
// same round. MACs are nominal (padding included). Buffers of a layer rotate through N copies (8). Every layer's result is checked
// at 200 random elements first; a wrong one ends the program with 1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/jit/emitter.h"
#include "cpu/provider.h"
#include "program/math.h"
#include "region/host_kernel.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;
using program::Op;

enum class Tail { plain, residual, table, silu, raw };

struct Layer {
  std::string name;
  std::int64_t c, h, o, kernel, stride = 1, groups = 1, batch = 1;
  Tail tail = Tail::plain;
  int zero = 0;
};

double seconds(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

/// GMAC/s of back-to-back vpdpbusd on 24 accumulators.
class Peak {
 public:
  Peak() {
    code_.mov(code_.rax, kLoops);
    code_.align(32);
    Xbyak::Label again;
    code_.L(again);
    for (int u = 0; u < 4; ++u) {
      for (int r = 0; r < 24; ++r) code_.vpdpbusd(Xbyak::Zmm(r), Xbyak::Zmm(24 + r % 4), Xbyak::Zmm(28 + r % 4));
    }
    code_.dec(code_.rax);
    code_.jnz(again, Xbyak::CodeGenerator::T_NEAR);
    code_.vzeroupper();
    code_.ret();
    code_.ready(Xbyak::CodeArray::PROTECT_RE);
  }
  double measure() const {
    const auto a = Clock::now();
    code_.getCode<void (*)()>()();
    return 96.0 * 64 * kLoops / seconds(a, Clock::now()) / 1e9;
  }

 private:
  static constexpr int kLoops = 2000;
  cpu::jit::Code code_;
};

class Bench {
 public:
  Bench(const Layer& layer, int copies) : layer_(layer), copies_(copies) { build(); }

  [[nodiscard]] double gmac() const {
    return static_cast<double>(layer_.batch * layer_.o * out() * out() * (layer_.c / layer_.groups) * layer_.kernel *
                               layer_.kernel) /
           1e9;
  }
  [[nodiscard]] std::int64_t out() const { return (layer_.h + 2 * (layer_.kernel / 2) - layer_.kernel) / layer_.stride + 1; }

  std::string prepare(std::string_view tactic_part) {
    const auto& provider = cpu::cpu_provider();
    for (const auto& offer : provider.offers(region_, plan_)) {
      if (offer.tactic.name().find(tactic_part) == std::string::npos) continue;
      if (!offer.refusal.empty()) return spelled(offer.refusal);
      region_.tactic = offer.tactic;
    }
    if (region_.tactic.none()) return "no such tactic";
    auto made = provider.compile(region_, plan_, region_.tactic);
    if (!made) return made.error().message;
    for (const auto& t : made->constants) {
      packed_.push_back(copy(t.bytes()));
      region_.packed.push_back(static_cast<region::BufferId>(plan_.buffers.size()));
      region::Buffer b;
      b.kind = region::BufferKind::constant;
      b.bytes = static_cast<std::int64_t>(t.bytes().size());
      plan_.buffers.push_back(b);
    }
    std::vector<const std::byte*> at;
    for (const auto& p : packed_) at.push_back(aligned(p));
    auto kernel = region::as_host_kernel(provider.load(region_, plan_, {at, {}, {}}));
    if (!kernel) return kernel.error().message;
    kernel_ = std::move(*kernel);
    scratch_.resize(kernel_->scratch_bytes() + 64);
    run(0);
    return check();
  }

  void run(int copy_index) const {
    const region::Worker worker{0, 1, const_cast<std::byte*>(aligned(scratch_))};
    kernel_->run(memory_[static_cast<std::size_t>(copy_index) % memory_.size()], 0, kernel_->tasks(), worker);
  }
  [[nodiscard]] std::string tactic() const { return region_.tactic.name(); }

 private:
  static const std::byte* aligned(const std::vector<std::byte>& v) {
    return v.data() + (64 - reinterpret_cast<std::uintptr_t>(v.data()) % 64) % 64;
  }
  static std::vector<std::byte> copy(std::span<const std::byte> bytes) {
    std::vector<std::byte> v(bytes.size() + 192);
    std::memcpy(const_cast<std::byte*>(aligned(v)), bytes.data(), bytes.size());
    return v;
  }

  region::TensorRef add(ir::DType type, const ir::Shape& dims, std::vector<std::int64_t> strides, region::BufferKind kind,
                        ir::Tensor data = {}) {
    region::TensorRef r;
    r.buffer = static_cast<region::BufferId>(plan_.buffers.size());
    r.dtype = type;
    r.dims = dims;
    r.strides = std::move(strides);
    region::Buffer b;
    b.kind = kind;
    b.data = std::move(data);
    b.bytes = static_cast<std::int64_t>(b.data.empty() ? ir::count(dims) * static_cast<std::int64_t>(ir::size_of(type))
                                                       : static_cast<std::int64_t>(b.data.bytes().size()));
    plan_.buffers.push_back(b);
    return r;
  }
  static std::vector<std::int64_t> nhwc(const ir::Shape& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }

  void build() {
    const Layer& k = layer_;
    const std::int64_t pad = k.kernel / 2;
    auto& st = region_.stages.emplace_back();
    const ir::Shape xs{k.batch, k.c, k.h, k.h}, ys{k.batch, k.o, out(), out()}, ws{k.o, k.c / k.groups, k.kernel, k.kernel};
    st.anchor.op = ir::Op::conv;
    st.anchor.integer = true;
    using Ints = std::vector<std::int64_t>;
    st.anchor.facts = *ir::facts_of(
        ir::Op::conv,
        {{"strides", Ints{k.stride, k.stride}}, {"pads", Ints{pad, pad, pad, pad}}, {"dilations", Ints{1, 1}}, {"group", k.groups}},
        4);
    auto x = add(ir::DType::u8, xs, nhwc(xs), region::BufferKind::arena);
    x.quantizer = ir::per_tensor(ir::DType::u8, 0.02F, k.zero);
    st.anchor.inputs = {x};
    ir::Tensor w(ir::DType::s8, ws);
    for (auto& v : w.mutable_data<std::int8_t>()) v = static_cast<std::int8_t>(rng_());
    st.anchor.weights = add(ir::DType::s8, ws, ir::dense_strides(ws), region::BufferKind::constant, w);
    st.space = ys;
    const auto vector = [&](float lo, float hi) {
      ir::Tensor t(ir::DType::f32, {k.o});
      for (auto& v : t.mutable_data<float>()) v = std::uniform_real_distribution<float>(lo, hi)(rng_);
      return add(ir::DType::f32, ys, {0, 1, 0, 0}, region::BufferKind::constant, t);
    };
    auto& p = st.program;
    const float scale = 30.0F / (80.0F * 80.0F * std::sqrt(static_cast<float>(ir::count(ws) / k.o)));
    st.operands = {{vector(scale, 2 * scale), {}}, {vector(-5, 5), {}}};
    int v = p.push(Op::acc_i);
    if (k.tail != Tail::raw) {
      v = p.push(Op::fma, p.push(Op::i2f, v), p.load(Op::load_f, 0), p.load(Op::load_f, 1));
      if (k.tail == Tail::residual) {
        st.operands.push_back({add(ir::DType::u8, ys, nhwc(ys), region::BufferKind::arena), {}});
        const int r = p.push(Op::mul, p.push(Op::i2f, p.push(Op::sub_i, p.load(Op::load_i, 2), p.imm_i(3))), p.imm_f(0.021F));
        v = p.push(Op::add, v, r);
      }
      if (k.tail == Tail::silu) {
        program::ProgramOps ops{p};
        v = p.push(Op::mul, v, program::sigmoid(ops, v));
      } else if (k.tail != Tail::table) {
        v = p.push(Op::max, v, p.imm_f(0));
      }
      v = p.push(Op::div, v, p.imm_f(k.tail == Tail::silu ? 0.06F : 0.37F));
      v = p.push(Op::min, p.push(Op::max, v, p.imm_f(-3)), p.imm_f(252));
      v = p.push(Op::add_i, p.push(Op::f2i, v), p.imm_i(3));
      if (k.tail == Tail::table) {
        program::Table t{};
        for (std::size_t i = 0; i < 256; ++i) t[i] = static_cast<std::uint8_t>((i * i) >> 8);
        p.tables.push_back(t);
        v = p.push_imm(Op::table, 0, v);
      }
    }
    const auto type = k.tail == Tail::raw ? ir::DType::s32 : ir::DType::u8;
    p.outputs = {{v, type}};
    p.operand_count = static_cast<int>(st.operands.size());
    st.stores = {add(type, ys, nhwc(ys), region::BufferKind::arena)};
    allocate();
  }

  void allocate() {
    for (int copy_index = 0; copy_index < copies_; ++copy_index) {
      auto& m = memory_.emplace_back();
      for (const auto& b : plan_.buffers) {
        auto& bytes = storage_.emplace_back(static_cast<std::size_t>(b.bytes) + 256);
        auto* at = const_cast<std::byte*>(aligned(bytes)) + 64;
        if (b.kind == region::BufferKind::constant) {
          std::memcpy(at, b.data.bytes().data(), b.data.bytes().size());
        } else {
          for (std::int64_t i = 0; i < b.bytes; ++i) at[i] = static_cast<std::byte>(rng_());
        }
        m.base.push_back(at);
      }
    }
  }

  std::string check() {
    const auto& st = region_.stages.front();
    const auto& m = memory_.front();
    const auto &x = st.anchor.inputs[0], &w = *st.anchor.weights, &y = st.stores[0];
    const std::int64_t pad = layer_.kernel / 2, ic = layer_.c / layer_.groups, oc = layer_.o / layer_.groups;
    std::vector<program::Scalar> operands(st.operands.size()), result(1), scratch;
    for (int round = 0; round < 200; ++round) {
      const std::int64_t n = static_cast<std::int64_t>(rng_() % static_cast<unsigned>(layer_.batch)),
                         o = static_cast<std::int64_t>(rng_() % static_cast<unsigned>(layer_.o));
      const auto r = static_cast<std::int64_t>(rng_() % static_cast<unsigned>(out())),
                 q = static_cast<std::int64_t>(rng_() % static_cast<unsigned>(out()));
      program::Scalar acc{};
      acc.i = 0;
      for (std::int64_t i = 0; i < ic; ++i) {
        for (std::int64_t a = 0; a < layer_.kernel; ++a) {
          for (std::int64_t b = 0; b < layer_.kernel; ++b) {
            const std::int64_t yy = r * layer_.stride + a - pad, xx = q * layer_.stride + b - pad;
            if (yy < 0 || xx < 0 || yy >= layer_.h || xx >= layer_.h) continue;
            const auto code =
                static_cast<std::uint8_t>(m.at(x)[n * x.strides[0] + yy * x.strides[2] + xx * x.strides[3] + (o / oc) * ic + i]);
            const auto weight = static_cast<std::int8_t>(m.at(w)[((o * ic + i) * layer_.kernel + a) * layer_.kernel + b]);
            acc.i += (code - layer_.zero) * weight;
          }
        }
      }
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const auto& ref = st.operands[k].ref;
        const auto* at = m.at(ref) + (n * ref.strides[0] + o * ref.strides[1] + r * ref.strides[2] + q * ref.strides[3]) *
                                         static_cast<std::int64_t>(ir::size_of(ref.dtype));
        if (ref.dtype == ir::DType::u8) {
          operands[k].i = static_cast<std::uint8_t>(*at);
        } else {
          std::memcpy(&operands[k].f, at, 4);
        }
      }
      program::interpret(st.program, acc, operands, result, scratch);
      const auto* got =
          m.at(y) + (n * y.strides[0] + o + r * y.strides[2] + q * y.strides[3]) * static_cast<std::int64_t>(ir::size_of(y.dtype));
      std::int32_t value = static_cast<std::uint8_t>(*got);
      if (y.dtype == ir::DType::s32) std::memcpy(&value, got, 4);
      if (value != result[0].i) return fmt::format("wrong at n{} c{} y{} x{}: {} instead of {}", n, o, r, q, value, result[0].i);
    }
    return "";
  }

  Layer layer_;
  int copies_;
  std::mt19937 rng_{1};
  region::Region region_;
  region::Plan plan_;
  std::vector<std::vector<std::byte>> packed_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<region::Memory> memory_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<region::HostKernel> kernel_;
};

std::vector<Layer> layers() {
  return {
      {"3x3 256->256 @14", 256, 14, 256, 3},
      {"3x3 256->256 @14 zx", 256, 14, 256, 3, 1, 1, 1, Tail::plain, 3},
      {"3x3 64->64 @56", 64, 56, 64, 3},
      {"3x3 128->128 @28", 128, 28, 128, 3},
      {"3x3 512->512 @7", 512, 7, 512, 3},
      {"1x1 256->64 @56", 256, 56, 64, 1},
      {"1x1 1024->256 @14", 1024, 14, 256, 1},
      {"1x1 256->1024 @14 +add", 256, 14, 1024, 1, 1, 1, 1, Tail::residual},
      {"1x1 64->256 @56", 64, 56, 256, 1},
      {"1x1 64->256 @56 +add", 64, 56, 256, 1, 1, 1, 1, Tail::residual},
      {"1x1 64->256 @56 raw s32", 64, 56, 256, 1, 1, 1, 1, Tail::raw},
      {"1x1 512->1024 /2 @28", 512, 28, 1024, 1, 2},
      {"1x1 16->96 @112", 16, 112, 96, 1},
      {"1x1 96->24 @56", 96, 56, 24, 1},
      {"1x1 144->24 @56 +add", 144, 56, 24, 1, 1, 1, 1, Tail::residual},
      {"7x7/2 3->64 @224", 3, 224, 64, 7, 2},
      {"3x3/2 3->32 @224", 3, 224, 32, 3, 2},
      {"3x3/2 3->16 @640 table", 3, 640, 16, 3, 2, 1, 1, Tail::table},
      {"3x3/2 3->16 @640 silu", 3, 640, 16, 3, 2, 1, 1, Tail::silu},
      {"1x1 32->32 @160 silu", 32, 160, 32, 1, 1, 1, 1, Tail::silu},
      {"1x1 64->64 @80 silu", 64, 80, 64, 1, 1, 1, 1, Tail::silu},
      {"3x3 64->64 @80 silu", 64, 80, 64, 3, 1, 1, 1, Tail::silu},
      {"3x3 32->32 @80 table", 32, 80, 32, 3, 1, 1, 1, Tail::table},
      {"3x3 16->16 @160 table", 16, 160, 16, 3, 1, 1, 1, Tail::table},
      {"1x1 32->32 @160 table", 32, 160, 32, 1, 1, 1, 1, Tail::table},
      {"1x1 64->64 @80 table", 64, 80, 64, 1, 1, 1, 1, Tail::table},
      {"fc 2048->1000 n1", 2048, 1, 1000, 1},
      {"fc 2048->1000 n8", 2048, 1, 1000, 1, 1, 1, 8},
      {"dw 3x3 32 @112", 32, 112, 32, 3, 1, 32},
      {"dw 3x3 96 @112/2", 96, 112, 96, 3, 2, 96},
      {"dw 3x3 144 @56", 144, 56, 144, 3, 1, 144},
      {"dw 3x3 144 @56/2", 144, 56, 144, 3, 2, 144},
      {"dw 3x3 192 @28", 192, 28, 192, 3, 1, 192},
      {"dw 3x3 192 @28/2", 192, 28, 192, 3, 2, 192},
      {"dw 3x3 384 @14", 384, 14, 384, 3, 1, 384},
      {"dw 3x3 576 @14", 576, 14, 576, 3, 1, 576},
      {"dw 3x3 576 @14/2", 576, 14, 576, 3, 2, 576},
      {"dw 3x3 960 @7", 960, 7, 960, 3, 1, 960},
      {"dw 5x5 240 @28", 240, 28, 240, 5, 1, 240},
  };
}

int main_(int argc, char** argv) {
  std::string only, part = ".jit";
  int rounds = 80, copies = 8;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.rfind("--layer=", 0) == 0)
      only = a.substr(8);
    else if (a.rfind("--tactic=", 0) == 0)
      part = a.substr(9);
    else if (a.rfind("--rounds=", 0) == 0)
      rounds = std::stoi(a.substr(9));
    else if (a.rfind("--copies=", 0) == 0)
      copies = std::max(1, std::stoi(a.substr(9)));
    else {
      fmt::print(stderr, "usage: octavo_conv_bench [--layer=TEXT] [--tactic=TEXT] [--rounds=N] [--copies=N]\n");
      return 2;
    }
  }
  const Peak peak;
  fmt::print("{:<26} {:>9} {:>9} {:>9} {:>7} {:>7}  tactic\n", "layer", "us", "GMAC/s", "peak", "ratio", "median");
  for (const Layer& layer : layers()) {
    if (layer.name.find(only) == std::string::npos) continue;
    Bench bench(layer, copies);
    if (const auto why = bench.prepare(part); !why.empty()) {
      fmt::print("{:<26} {}\n", layer.name, why);
      if (why.rfind("wrong", 0) == 0) return 1;
      continue;
    }
    double once = 1;
    for (int i = 0; i < 5; ++i) {
      const auto a = Clock::now();
      bench.run(i);
      once = std::min(once, seconds(a, Clock::now()));
    }
    const int calls = std::max(1, static_cast<int>(2.5e-4 / once));
    std::vector<double> ratio, time, top;
    for (int r = 0; r < rounds; ++r) {
      const double before = peak.measure();
      const auto a = Clock::now();
      for (int i = 0; i < calls; ++i) bench.run(i);
      const double t = seconds(a, Clock::now()) / calls, after = peak.measure();
      top.push_back(std::max(before, after));
      time.push_back(t);
      ratio.push_back(bench.gmac() / t / top.back());
    }
    const auto median = [](std::vector<double> v) {
      std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
      return v[v.size() / 2];
    };
    const double fastest = *std::min_element(time.begin(), time.end()), best_peak = *std::max_element(top.begin(), top.end());
    fmt::print("{:<26} {:>9.1f} {:>9.1f} {:>9.1f} {:>6.1f}% {:>6.1f}%  {}\n", layer.name, fastest * 1e6, bench.gmac() / fastest,
               best_peak, 100 * bench.gmac() / fastest / best_peak, 100 * median(ratio), bench.tactic());
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::main_(argc, argv);
}
