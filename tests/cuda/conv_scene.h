// One int8 convolution with an epilogue, its plan and its memory: what tests and the GPU program of kernel families run.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "program/math.h"
#include "reference/oracle_provider.h"
#include "region/host_kernel.h"
#include "region/region.h"

namespace octavo::testing {

struct ConvCase {
  std::int64_t n = 1, c = 64, h = 8, w = 8, o = 64, kh = 1, kw = 1, stride = 1, pad = 0, dilation = 1, groups = 1;
  std::string style = "relu";  ///< see program_of
  int zero = 0;                ///< of the activations
  int gap = 0;                 ///< channels of other data between pixels of input, residual and first store
  int lead = 0;                ///< bytes of other data in front of each input image
  std::string name;
  [[nodiscard]] std::int64_t out_h() const { return (h + 2 * pad - dilation * (kh - 1) - 1) / stride + 1; }
  [[nodiscard]] std::int64_t out_w() const { return (w + 2 * pad - dilation * (kw - 1) - 1) / stride + 1; }
  [[nodiscard]] double macs() const { return static_cast<double>(n * out_h() * out_w() * o * (c / groups) * kh * kw); }
  [[nodiscard]] std::string text() const {
    return fmt::format("n{} c{} {}x{} o{} k{}x{} s{} p{} d{} g{} z{} gap{} {}", n, c, h, w, o, kh, kw, stride, pad, dilation,
                       groups, zero, gap, style);
  }
};

class ConvScene {
 public:
  region::Region region;
  region::Plan plan;
  std::vector<std::vector<std::byte>> memory;  ///< of each buffer; stores begin as 0xA5

  /// `fill`: give activations and residuals random codes (large shapes fill them on the GPU).
  ConvScene(const ConvCase& k, unsigned seed, bool fill = true) : rng_(seed), fill_(fill) {
    region.stages.emplace_back();
    region::Stage& s = region.stages[0];
    s.space = {k.n, k.o, k.out_h(), k.out_w()};
    s.anchor.op = ir::Op::conv, s.anchor.integer = true;
    s.anchor.facts = ir::Window{.strides = {k.stride, k.stride},
                                .dilations = {k.dilation, k.dilation},
                                .pads = {k.pad, k.pad, k.pad, k.pad},
                                .group = k.groups};
    region::TensorRef x = nhwc(ir::DType::u8, {k.n, k.c, k.h, k.w}, k.gap);
    if (k.lead > 0) {  // a slice of rows: images lie farther apart, and begin anywhere
      x.offset += k.lead, x.strides[0] += k.lead;
      plan.buffers.back().bytes = (plan.buffers.back().bytes + k.n * k.lead + 3) / 4 * 4;  // memory comes in whole words
      memory.back().resize(memory.back().size() + static_cast<std::size_t>(k.n * k.lead) + 4, std::byte{3});
    }
    x.quantizer = ir::per_tensor(ir::DType::u8, 0.02F, k.zero);
    s.anchor.inputs = {x};
    const ir::Shape weights{k.o, k.c / k.groups, k.kh, k.kw};
    ir::Tensor w(ir::DType::s8, weights);
    for (auto& v : w.mutable_data<std::int8_t>()) v = static_cast<std::int8_t>(pick(-127, 127));
    s.anchor.weights = constant(w, weights, ir::dense_strides(weights));
    depth_ = static_cast<double>(k.c / k.groups * k.kh * k.kw);
    program_of(k);
    program::mark(region.stages[0].program);
  }

  /// Runs the reference on the memory.
  void run_reference() {
    region::Memory m;
    for (auto& b : memory) m.base.push_back(b.data());
    const region::Provider& oracle = reference::oracle_provider();
    region.tactic = oracle.offers(region, plan).front().tactic;
    const auto kernel = region::as_host_kernel(oracle.load(region, plan, {}));
    (*kernel)->run(m, 0, 1, {});
  }

 private:
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }

  int buffer(std::int64_t bytes, region::BufferKind kind, int fill) {
    region::Buffer b;
    b.kind = kind, b.bytes = bytes;
    plan.buffers.push_back(b);
    memory.emplace_back(static_cast<std::size_t>(fill_ || kind == region::BufferKind::constant ? bytes + 64 : 0),
                        static_cast<std::byte>(0xA5));
    if (fill != 0 && fill_) {
      for (auto& v : memory.back()) v = static_cast<std::byte>(pick(0, 3) == 0 ? pick(0, 1) * 255 : pick(0, 255));
    }
    return static_cast<int>(plan.buffers.size()) - 1;
  }
  region::TensorRef nhwc(ir::DType type, const ir::Shape& d, int gap, bool written = false) {
    const std::int64_t pixel = d[1] + gap, size = static_cast<std::int64_t>(ir::size_of(type));
    region::TensorRef r;
    r.buffer = buffer(d[0] * d[2] * d[3] * pixel * size, region::BufferKind::arena, written ? 0 : 1);
    r.offset = gap / 2 * size, r.dtype = type, r.dims = d;
    r.strides = {d[2] * d[3] * pixel, 1, d[3] * pixel, pixel};
    return r;
  }
  region::TensorRef constant(const ir::Tensor& t, const ir::Shape& dims, const std::vector<std::int64_t>& strides) {
    region::TensorRef r;
    r.buffer = buffer(static_cast<std::int64_t>(t.bytes().size()), region::BufferKind::constant, 0);
    plan.buffers.back().data = t;
    std::memcpy(memory.back().data(), t.bytes().data(), t.bytes().size());
    r.dtype = t.dtype(), r.dims = dims, r.strides = strides;
    return r;
  }
  /// An operand with a value a channel.
  int along(ir::DType type, float lo, float hi) {
    region::Stage& s = region.stages[0];
    ir::Tensor t(type, {s.space[1]});
    for (std::int64_t i = 0; i < s.space[1]; ++i) {
      const float v = std::uniform_real_distribution<float>(lo, hi)(rng_);
      if (type == ir::DType::s32)
        t.mutable_data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(v);
      else
        t.mutable_data<float>()[static_cast<std::size_t>(i)] = v;
    }
    s.operands.push_back({constant(t, {1, s.space[1], 1, 1}, {0, 1, 0, 0}), {}});
    return static_cast<int>(s.operands.size()) - 1;
  }
  int residual(ir::DType type, int gap, std::int64_t div = 1) {
    region::Stage& s = region.stages[0];
    ir::Shape d = s.space;
    for (const std::size_t k : {2, 3}) d[k] = (d[k] - 1) / div + 1;
    auto ref = nhwc(type, d, gap);
    if (type == ir::DType::f32 && fill_) {
      for (std::size_t i = 0; i + 4 <= memory.back().size(); i += 4) {
        const float v = std::uniform_real_distribution<float>(-3, 3)(rng_);
        std::memcpy(memory.back().data() + i, &v, 4);
      }
    }
    ref.dims = s.space;
    s.operands.push_back({ref, div == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1, 1, div, div}});
    return static_cast<int>(s.operands.size()) - 1;
  }
  void store(ir::DType type, int value, int gap) {
    region::Stage& s = region.stages[0];
    s.program.outputs.push_back({value, type});
    s.stores.push_back(nhwc(type, s.space, gap, true));
  }

  int quantized(program::ProgramOps& m, int y, float scale, int zero, int lo = 0, int hi = 255) {
    y = m.div(y, m.imm(scale));
    y = m.max(y, m.imm(static_cast<float>(lo - zero)));
    y = m.min(y, m.imm(static_cast<float>(hi - zero)));
    const int code = m.f2i(y);
    return zero == 0 ? code : m.add_i(code, m.imm_i(zero));
  }

  /// relu: fma, relu, one code. bias: an s32 bias, any zero point. residual: a code, dequantized, plus a dequantized code, relu.
  /// float: f32 and code. mixed: codes and f32 added, f32 and code. silu. rest: f32 residual of half the size, f16 and s8 stores.
  void program_of(const ConvCase& k) {
    region::Stage& s = region.stages[0];
    program::Program& p = s.program;
    program::ProgramOps m{p};
    const float unit = 2.0F / (100.0F * 73.0F * static_cast<float>(std::sqrt(depth_)));  // sums become about -2..2
    const int acc = p.push(program::Op::acc_i);
    const auto affine = [&] {
      const int scale = p.load(program::Op::load_f, along(ir::DType::f32, unit * 0.5F, unit)),
                bias = p.load(program::Op::load_f, along(ir::DType::f32, -1, 1));
      return m.fma(m.i2f(acc), scale, bias);
    };
    const auto biased = [&] {
      const int sum = m.add_i(acc, p.load(program::Op::load_i, along(ir::DType::s32, -2000, 2000)));
      return m.mul(m.i2f(sum), p.load(program::Op::load_f, along(ir::DType::f32, unit * 0.5F, unit)));
    };
    if (k.style == "relu") {
      store(ir::DType::u8, quantized(m, m.max(affine(), m.imm(0)), 0.0117F, 0), k.gap);
    } else if (k.style == "bias") {
      store(ir::DType::u8, quantized(m, biased(), 0.0213F, 117), k.gap);
    } else if (k.style == "residual") {
      const int code = quantized(m, biased(), 0.0213F, 117);
      const int r = m.sub_i(p.load(program::Op::load_i, residual(ir::DType::u8, k.gap)), m.imm_i(103));
      const int y = m.add(m.mul(m.i2f(m.sub_i(code, m.imm_i(117))), m.imm(0.0213F)), m.mul(m.i2f(r), m.imm(0.0171F)));
      store(ir::DType::u8, quantized(m, m.max(y, m.imm(0)), 0.0237F, 0), k.gap);
    } else if (k.style == "float") {
      const int y = affine();
      store(ir::DType::f32, y, 0);
      store(ir::DType::u8, quantized(m, y, 0.0213F, 128), k.gap);
    } else if (k.style == "mixed") {
      const int r = m.sub_i(p.load(program::Op::load_i, residual(ir::DType::u8, k.gap)), m.imm_i(103));
      const int z = p.load(program::Op::load_f, residual(ir::DType::f32, k.gap));
      const int y = m.add(m.add(affine(), m.mul(m.i2f(r), m.imm(0.0171F))), z);
      store(ir::DType::f32, y, k.gap);
      store(ir::DType::u8, quantized(m, y, 0.0413F, 128), k.gap);
    } else if (k.style == "silu") {
      const int y = affine();
      store(ir::DType::u8, quantized(m, m.mul(y, program::sigmoid(m, y)), 0.0141F, 20), k.gap);
    } else {
      const int y = m.add(affine(), p.load(program::Op::load_f, residual(ir::DType::f32, k.gap, 2)));
      store(ir::DType::f16, y, 0);
      store(ir::DType::s8, quantized(m, p.push(program::Op::nan0, y), 0.0213F, 3, -128, 127), k.gap);
    }
  }

  std::mt19937 rng_;
  bool fill_;
  double depth_ = 1;
};

}  // namespace octavo::testing
