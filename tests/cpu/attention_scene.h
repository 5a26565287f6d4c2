// Attention on 8-bit codes as one region of three stages: for the tests of kernels of every device.
#pragma once

#include <array>
#include <vector>

#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing::attention {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

struct Sizes {
  std::int64_t batch, heads, queries, keys, features, columns;
};
/// What the programs do: sums count in `unit`, may be rounded in steps of `step`, may be divided by or multiplied with a number, and a mask may be added;
/// probabilities are rounded in steps of `probability`, after a product with a number where `scaled`.
struct Forms {
  float unit = 0.01F, step = 0;
  enum { nothing, product, quotient } after = nothing;
  float by = 1;
  bool mask = false, scaled = false;
  bool signed_scores = false;  ///< codes of scores have a sign and no zero point
  bool guarded = false;        ///< behind softmax NaN becomes 0, and what is left is rounded again
  float probability = 1.0F / 255;
  std::array<std::int32_t, 4> zero{128, 128, 128, 128};  ///< of queries, keys, probabilities, values
};

inline int clamped(program::Program& p, int v, float step, float lo, float hi) {
  v = p.push(Op::nan0, p.push(Op::div, v, p.imm_f(step)));
  return p.push(Op::f2i, p.push(Op::min, p.push(Op::max, v, p.imm_f(lo)), p.imm_f(hi)));
}

inline void set(Scene& s, const Sizes& n, const Forms& forms, bool between) {
  const std::vector<int> heads_between = between ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{},
                         turned_between = between ? std::vector<int>{0, 3, 1, 2} : std::vector<int>{};
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const auto codes = [&](Shape dims, const std::vector<int>& order, std::int32_t zero) {
    region::TensorRef t = s.tensor(DType::u8, std::move(dims), BufferKind::arena, order);
    t.quantizer = ir::Quantizer{};
    t.quantizer->type = DType::u8;
    t.quantizer->scale = {0.1F};
    t.quantizer->zero_point = {zero};
    return t;
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.integer = product.anchor.integer = true;
  scores.anchor.inputs = {codes({n.batch, n.heads, n.queries, n.features}, heads_between, forms.zero[0]),
                          codes({n.batch, n.heads, n.features, n.keys}, turned_between, forms.zero[1])};
  auto& p = scores.program;
  int v = p.push(Op::mul, p.imm_f(forms.unit), p.push(Op::i2f, p.push(Op::acc_i)));
  if (forms.step > 0) {
    v = clamped(p, v, forms.step, -128, 127);
    if (!forms.signed_scores) v = p.push(Op::sub_i, p.push(Op::add_i, v, p.imm_i(128)), p.imm_i(128));
    v = p.push(Op::mul, p.imm_f(forms.step), p.push(Op::i2f, v));
  }
  if (forms.after != Forms::nothing) v = p.push(forms.after == Forms::product ? Op::mul : Op::div, v, p.imm_f(forms.by));
  if (forms.mask) {
    region::TensorRef mask = s.tensor(DType::f32, {n.batch, 1, n.queries, n.keys});
    mask.dims = scores.space;
    mask.strides = {n.queries * n.keys, 0, n.keys, 1};
    scores.operands.push_back({mask, {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  p.outputs = {{v, DType::f32}};
  scores.stores = {s.tensor(DType::f32, scores.space)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& q = softmax.program;
  int e = q.push(Op::acc_f);
  if (forms.scaled) e = q.push(Op::mul, e, q.imm_f(0.7F));
  const std::int32_t zero = forms.zero[2];
  e = clamped(q, e, forms.probability, static_cast<float>(-zero), static_cast<float>(255 - zero));
  if (zero != 0 || forms.guarded) e = q.push(Op::add_i, e, q.imm_i(zero));
  if (forms.guarded) {
    const int one = q.imm_f(1), none = q.imm_f(0), number = q.push(Op::sel_eq, 0, 0, one, none);
    const int value = q.push(Op::mul, q.imm_f(forms.probability), q.push(Op::i2f, q.push(Op::sub_i, e, q.imm_i(zero))));
    const int kept = q.push(Op::sel_eq, q.push(Op::sub, one, number), none, value, none);
    e = clamped(q, kept, forms.probability, static_cast<float>(-zero), static_cast<float>(255 - zero));
    e = q.push(Op::add_i, e, q.imm_i(zero));
  }
  q.outputs = {{e, DType::u8}};
  softmax.stores = {codes(scores.space, {}, zero)};

  product.anchor.inputs = {softmax.stores[0], codes({n.batch, n.heads, n.keys, n.columns}, heads_between, forms.zero[3])};
  auto& o = product.program;
  const int sum = o.push(Op::mul, o.imm_f(0.001F), o.push(Op::i2f, o.push(Op::acc_i)));
  o.outputs = {{o.push(Op::add_i, clamped(o, sum, 0.05F, -128, 127), o.imm_i(128)), DType::u8}};
  product.stores = {codes(product.space, heads_between, 128)};
}

}  // namespace octavo::testing::attention
