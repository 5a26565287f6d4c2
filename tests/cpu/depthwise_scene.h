// A depthwise convolution with requantization in a Scene: shared by the tests of its tactics.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {

using Ints = std::vector<std::int64_t>;

struct Depthwise {
  std::int64_t n = 1, c = 64, h = 5, w = 7;
  Ints kernel{3, 3}, strides{1, 1}, dilations{1, 1}, pads{1, 1, 1, 1};
  int zero = 7, gap = 0, threads = 1;
  float scale = 2e-3F;  ///< of accumulators; negative: no single fma requantizes
  ir::DType out = ir::DType::u8;
};

inline std::int64_t out_size(const Depthwise& k, std::size_t d) {
  return ((d == 0 ? k.h : k.w) + k.pads[d] + k.pads[d + 2] - k.dilations[d] * (k.kernel[d] - 1) - 1) / k.strides[d] + 1;
}

inline void build(Scene& s, const Depthwise& k, region::BufferKind kind = region::BufferKind::arena) {
  auto& st = s.stage();
  auto& a = st.anchor;
  a.op = ir::Op::conv;
  a.integer = true;
  a.facts = testing::facts(a.op, {{"strides", k.strides}, {"pads", k.pads}, {"dilations", k.dilations}, {"group", k.c}});
  auto x = s.nhwc(ir::DType::u8, {k.n, k.c, k.h, k.w}, kind, k.gap);
  x.quantizer = ir::per_tensor(ir::DType::u8, 0.02F, k.zero);
  a.inputs = {x};
  a.weights = s.tensor(ir::DType::s8, {k.c, 1, k.kernel[0], k.kernel[1]}, region::BufferKind::constant);
  st.space = {k.n, k.c, out_size(k, 0), out_size(k, 1)};
  s.plan().threads = k.threads;
  s.requantize(1, k.scale, k.out);
  st.stores = {s.nhwc(k.out, st.space, region::BufferKind::arena, k.gap)};
}

/// Behind each instruction `op` of the program: what `add` makes of its value is read instead of it.
template <class Add>
void add_behind(program::Program& p, program::Op op, const Add& add) {
  const auto code = std::move(p.code);
  p.code.clear();
  std::vector<int> renamed;
  for (program::Instr i : code) {
    for (int& a : i.args) a = a < 0 ? a : renamed[static_cast<std::size_t>(a)];
    p.code.push_back(i);
    const int v = static_cast<int>(p.code.size()) - 1;
    renamed.push_back(i.op == op ? add(v) : v);
  }
  for (auto& o : p.outputs) o.value = renamed[static_cast<std::size_t>(o.value)];
}

/// A constant of each channel that is added to the sums before anything else, as files with biases of integers have it.
inline void add_integer_bias(Scene& s, int most) {
  using program::Op;
  auto& st = s.stage();
  std::vector<std::int32_t> bias(static_cast<std::size_t>(st.space[1]));
  for (auto& b : bias) b = s.pick(-most, most);
  st.operands.push_back({s.constant_along(bias, st.space, 1), {}});
  auto& p = st.program;
  const int operand = static_cast<int>(st.operands.size()) - 1;
  p.operand_count = operand + 1;
  add_behind(p, Op::acc_i, [&](int v) { return p.push(Op::add_i, v, p.load(Op::load_i, operand)); });
}

/// A leaky relu between scale and bias and the division of the scene's requantization.
inline void leak(Scene& s, float alpha) {
  using program::Op;
  auto& p = s.stage().program;
  add_behind(p, Op::fma, [&](int v) { return p.push(Op::sel_lt, v, p.imm_f(0), p.push(Op::mul, v, p.imm_f(alpha)), v); });
}

/// A pair behind the pair, over something in between: none, a clip, a leaky relu, or sqrt(|x|). The first code is an output as well
/// if `both`.
inline void round_again(Scene& s, int between, bool both, ir::DType type) {
  using program::Op;
  auto& st = s.stage();
  auto& p = st.program;
  const auto first = p.outputs[0];
  int v = p.push(Op::i2f, p.push(Op::sub_i, first.value, p.imm_i(first.type == ir::DType::u8 ? 3 : 0)));
  v = p.push(Op::mul, v, p.imm_f(0.37F));
  if (between == 1) v = p.push(Op::min, p.push(Op::max, v, p.imm_f(0)), p.imm_f(23.7F));
  if (between == 2) v = p.push(Op::sel_lt, v, p.imm_f(0), p.push(Op::mul, v, p.imm_f(0.1F)), v);
  if (between == 3) v = p.push(Op::sqrt, p.push(Op::max, v, p.push(Op::mul, v, p.imm_f(-1))));
  const int lo = type == ir::DType::u8 ? -7 : -128;
  v = p.push(Op::div, v, p.imm_f(0.211F));
  v = p.push(Op::min, p.push(Op::max, v, p.imm_f(static_cast<float>(lo))), p.imm_f(static_cast<float>(lo + 255)));
  v = p.push(Op::f2i, v);
  if (type == ir::DType::u8) v = p.push(Op::add_i, v, p.imm_i(7));
  if (both) {
    p.outputs.push_back({v, type});
    st.stores.push_back(s.nhwc(type, st.space));
  } else {
    p.outputs[0] = {v, type};
    st.stores[0] = s.nhwc(type, st.space);
  }
}

/// Empty, or what is wrong and with which shape; "skip: ..." without the instruction set.
inline std::string run(Scene& s, const Depthwise& k, std::string_view tactic) {
  const std::string why = s.compare(cpu::cpu_provider(), std::string(tactic));
  if (why.empty()) return why;
  return why + fmt::format("; n{} c{} {}x{} k{}x{} s{}x{} d{}x{} p{},{},{},{} zx{} gap{} threads{}; {}", k.n, k.c, k.h, k.w,
                           k.kernel[0], k.kernel[1], k.strides[0], k.strides[1], k.dilations[0], k.dilations[1], k.pads[0],
                           k.pads[1], k.pads[2], k.pads[3], k.zero, k.gap, k.threads, ir::name_of(k.out));
}

}  // namespace octavo::testing
