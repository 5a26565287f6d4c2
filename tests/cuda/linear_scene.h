// A linear layer, or a convolution, of float16 or bfloat16 with the epilogues that transformers have: what tests of its kernels and the program that times
// them run.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "cpu/scalar_region.h"
#include "program/math.h"

namespace octavo::testing {

struct LinearCase {
  ir::DType type = ir::DType::f16;
  std::int64_t rows = 1, depth = 64, columns = 64;  ///< rows: of the product, or images
  std::string style = "bias";                       ///< bias, gelu, residual, codes, two (f32 and the type)
  std::int64_t h = 1, w = 1, kernel = 1, stride = 1, pad = 0;
  int gap = 0;  ///< channels of other data behind each pixel of the input
  /// Sums of products' magnitudes are below.
  static constexpr float kLargest = 4;
  [[nodiscard]] std::int64_t out(std::int64_t v) const { return (v + 2 * pad - kernel) / stride + 1; }
  [[nodiscard]] double products() const {
    return static_cast<double>(rows * out(h) * out(w) * columns) * static_cast<double>(depth * kernel * kernel);
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} {}x{}x{} image {}x{} kernel {}/{} pad {} gap {} {}", ir::name_of(type), rows, depth, columns, h, w,
                       kernel, stride, pad, gap, style);
  }
  /// Products are exact in f32. A matrix unit adds 16 of them to a sum in an order that nobody says, 18 roundings at most; the contract adds one term after
  /// the other. Each of these is at most 2^-23 of what the magnitudes add up to. The program's slope is at most 1.2, and it rounds a few times.
  [[nodiscard]] float tolerance() const {
    const auto steps = static_cast<float>(kernel * kernel * ((depth + 15) / 16)),
               terms = static_cast<float>(kernel * kernel * depth);
    return std::ldexp(1.2F * kLargest * (18 * steps + terms) + 32, -23);
  }
};

inline void build(Scene& s, const LinearCase& c) {
  using program::Op;
  auto& st = s.stage();
  st.space = {c.rows, c.columns, c.out(c.h), c.out(c.w)};
  st.anchor.op = ir::Op::conv;
  st.anchor.facts = ir::Window{.strides = {c.stride, c.stride}, .dilations = {1, 1}, .pads = {c.pad, c.pad, c.pad, c.pad}};
  const auto nhwc = [&](ir::DType type, const ir::Shape& dims, region::BufferKind kind, int gap = 0) {
    return s.tensor(type, dims, kind, {0, 2, 3, 1}, gap, 1);
  };
  st.anchor.inputs = {nhwc(c.type, {c.rows, c.depth, c.h, c.w}, region::BufferKind::input, c.gap)};
  const float weight = LinearCase::kLargest / static_cast<float>(c.depth * c.kernel * c.kernel);
  st.anchor.weights = s.tensor(c.type, {c.columns, c.depth, c.kernel, c.kernel}, region::BufferKind::constant, {}, 0, weight);
  program::Program& p = st.program;
  program::ProgramOps m{p};
  const auto operand = [&](const region::TensorRef& r) {
    st.operands.push_back({r, {}});
    return p.load(Op::load_f, static_cast<int>(st.operands.size()) - 1);
  };
  int y = m.add(p.push(Op::acc_f), operand(s.along(ir::DType::f32, st.space, 1)));
  const auto store = [&](ir::DType type, int value) {
    p.outputs.push_back({value, type});
    st.stores.push_back(nhwc(type, st.space, region::BufferKind::arena));
  };
  if (c.style == "gelu") {
    const int erf = program::erf(m, m.div(y, m.imm(1.4140625F)));
    y = m.mul(m.mul(y, m.add(m.imm(1), erf)), m.imm(0.5F));
  } else if (c.style == "residual") {
    y = m.add(y, operand(nhwc(c.type, st.space, region::BufferKind::input)));
  }
  if (c.style == "two") store(ir::DType::f32, y);
  if (c.style == "codes") {
    // A sum that differs within the tolerance is another code only where its quotient lies next to the middle of two.
    const int q = m.div(y, m.imm(0.5F));
    store(ir::DType::u8, m.add_i(m.f2i(m.min(m.max(q, m.imm(-8)), m.imm(8))), m.imm_i(128)));
  } else {
    store(c.type, y);
  }
}

}  // namespace octavo::testing
