// Attention on floats as one region of three stages, its matrices of float32 or bfloat16: for the tests of kernels.
#pragma once

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing::float_attention {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

struct Sizes {
  std::int64_t batch, heads, queries, keys, features, columns;
};
/// What the programs do beside passing on: sums are scaled by `scale` (1: not), a mask [keys] or [queries, keys] is added, all three results are rounded
/// to `codes`. Probabilities are multiplied with a number where `scaled`, or rounded to bfloat16 where `rounded`, as the planner writes it; results are stored
/// in the matrices' type where `small`, otherwise in float32.
struct Programs {
  float scale = 1;
  bool divides = false;
  enum { none, keys, whole } mask = none;
  bool codes = false, scaled = false, small = false, rounded = false;
};

inline int coded(program::Program& p, int v, float scale) {
  v = p.push(Op::nan0, p.push(Op::div, v, p.imm_f(scale)));
  v = p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(-128)), p.imm_f(127)));
  return p.push(Op::mul, p.imm_f(scale), p.push(Op::i2f, v));
}

/// Strides as exporters leave them where `between`: heads lie between rows, and the keys are stored like the queries.
inline void set(Scene& s, DType type, const Sizes& n, const Programs& programs, bool between, float scale = 2.0F) {
  const std::vector<int> plain, heads_between = between ? std::vector<int>{0, 2, 1, 3} : plain,
                                turned_between = between ? std::vector<int>{0, 3, 1, 2} : plain;
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const auto matrix = [&](DType of, Shape dims, const std::vector<int>& order) {
    return s.tensor(of, std::move(dims), BufferKind::arena, order, 0, scale);
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.inputs = {matrix(type, {n.batch, n.heads, n.queries, n.features}, heads_between),
                          matrix(type, {n.batch, n.heads, n.features, n.keys}, turned_between)};
  auto& p = scores.program;
  int v = p.push(Op::acc_f);
  if (programs.scale != 1) v = p.push(programs.divides ? Op::div : Op::mul, v, p.imm_f(programs.scale));
  if (programs.codes) v = coded(p, v, 0.05F);
  if (programs.mask != Programs::none) {
    const bool whole = programs.mask == Programs::whole;
    region::TensorRef mask = matrix(DType::f32, whole ? Shape{n.batch, 1, n.queries, n.keys} : Shape{n.batch, 1, 1, n.keys}, plain);
    mask.dims = scores.space;
    mask.strides = {whole ? n.queries * n.keys : n.keys, 0, whole ? n.keys : 0, 1};
    scores.operands.push_back({mask, {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  p.outputs = {{v, DType::f32}};
  scores.stores = {matrix(DType::f32, scores.space, plain)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& q = softmax.program;
  int e = q.push(Op::acc_f);
  if (programs.scaled) e = q.push(Op::mul, e, q.imm_f(0.7F));
  if (programs.rounded) e = q.push(Op::to_bf16, e);
  if (programs.codes) e = coded(q, e, 1.0F / 255);
  q.outputs = {{e, type}};
  softmax.stores = {matrix(type, scores.space, plain)};

  product.anchor.inputs = {softmax.stores[0], matrix(type, {n.batch, n.heads, n.keys, n.columns}, heads_between)};
  auto& o = product.program;
  const DType stored = programs.small ? type : DType::f32;
  o.outputs = {{programs.codes ? coded(o, o.push(Op::acc_f), 0.02F) : o.push(Op::acc_f), stored}};
  product.stores = {matrix(stored, product.space, heads_between)};
}

/// Overwrites element `at` of a tensor's buffer.
inline void put(Scene& s, const region::TensorRef& t, std::int64_t at, float value) {
  std::byte* const bytes = s.memory[static_cast<std::size_t>(t.buffer)].data() + 64;
  const std::uint16_t small = f32_to_bf16(value);
  if (t.dtype == DType::bf16) std::memcpy(bytes + at * 2, &small, 2);
  if (t.dtype == DType::f32) std::memcpy(bytes + at * 4, &value, 4);
}

/// What a scene with a whole mask has of what is extreme. 0: a causal mask; 1: one that also forbids all keys to query 3; 2 and 3: what is no number, in each
/// matrix and in the mask. Other kinds change nothing.
inline void put_extremes(Scene& s, const Sizes& n, int kind) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const auto& stages = s.region().stages;
  const region::TensorRef& mask = stages[0].operands[0].ref;
  for (std::int64_t q = 0; q < n.queries && kind <= 1; ++q) {
    for (std::int64_t k = kind == 1 && q == 3 ? 0 : q + 1; k < n.keys; ++k) put(s, mask, q * n.keys + k, -kInf);
  }
  if (kind == 2) put(s, stages[0].anchor.inputs[0], 21, kNan), put(s, stages[2].anchor.inputs[1], 5, kInf);
  if (kind == 3) put(s, stages[0].anchor.inputs[1], 7, kInf), put(s, mask, 2, -1e30F), put(s, mask, 50, kInf);
}

}  // namespace octavo::testing::float_attention
