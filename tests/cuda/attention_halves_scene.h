// Attention in float16 or bfloat16 as one region of three stages: for the tests of its kernels, under emulation and on a GPU.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing::halves {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

struct Sizes {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, features = 16, columns = 16;
};
enum class Layout {
  plain,    ///< rows of one head one after the other
  between,  ///< heads lie between rows
  one_row,  ///< queries, keys and values are columns of one row of memory, as one product leaves them; needs as many keys as queries
  turned,   ///< keys are neighbours, of keys and values
  repeated,  ///< one head of keys and values for all
};
enum class Mask {
  none,
  keys,    ///< numbers to add, [batch, keys]
  whole,   ///< the same, [batch, queries, keys]
  truth,   ///< true: the score stays, false: -inf, [queries, keys] bytes
  causal,  ///< a constant of 0 and -inf to add, [queries, keys]: query i may attend key j up to i + keys - queries, and where `lost` not the first keys
};
/// What the programs do.
struct Forms {
  DType type = DType::f16, scores = DType::f32, stored = DType::f16;
  float scale = 0.125F;  ///< of scores; 1: none
  bool divides = false;  ///< by 1 / scale
  Mask mask = Mask::none;
  bool lost = false;     ///< the mask leaves some queries nothing; others lose about half of the keys
  bool scaled = false;   ///< probabilities are multiplied with a number
  bool zeros = false;    ///< NaNs among probabilities become 0
  bool counted = false;  ///< probabilities are multiplied with a number for each query
  Layout layout = Layout::between;
  float values = 2;         ///< all are within this
  bool whole_sums = false;  ///< of float16 matrices are not rounded to it: as where float32 layers may be float16
  bool unwritten = false;   ///< scores and probabilities have no memory: for kernels that are timed, and not compared
  /// What results may differ by, beside a step of their type: exponentials and probabilities are rounded, half a unit each; a score that is summed in
  /// another order may be rounded the other way, which counts where scores are stored in 16 bits.
  [[nodiscard]] float tolerance(const Sizes& n) const {
    const auto unit = [](DType t) { return t == DType::bf16 ? 0x1p-8F : t == DType::f16 ? 0x1p-10F : 0x1p-20F; };
    const float largest = values * values * static_cast<float>(n.features) * std::abs(scale);
    return values * (counted ? 4.0F : 1.0F) *
               (unit(type) + 2 * (type == DType::f16 ? unit(type) : unit(scores)) * std::min(largest, 8.0F)) +
           2e-5F;
  }
};

inline std::byte* bytes_of(Scene& s, const region::TensorRef& t) {
  return s.memory[static_cast<std::size_t>(t.buffer)].data() + 64;
}

inline void set(Scene& s, const Sizes& n, const Forms& f) {
  s.region().stages.assign(3, {});
  region::Stage &scores = s.region().stages[0], &softmax = s.region().stages[1], &product = s.region().stages[2];
  scores.space = softmax.space = {n.batch, n.heads, n.queries, n.keys};
  product.space = {n.batch, n.heads, n.queries, n.columns};
  const std::vector<int> heads_between{0, 2, 1, 3}, turned_between{0, 3, 1, 2}, turned{0, 1, 3, 2};
  const bool between = f.layout == Layout::between;
  const auto matrix = [&](DType type, Shape dims, const std::vector<int>& order, int gap = 0) {
    return s.tensor(type, std::move(dims), BufferKind::arena, order, gap, f.values);
  };
  scores.anchor.op = product.anchor.op = ir::Op::matmul;
  scores.anchor.facts = product.anchor.facts = ir::Product{};
  region::TensorRef q, k, v;
  if (f.layout == Layout::one_row) {
    const std::int64_t width = n.heads * (2 * n.features + n.columns);
    const region::TensorRef all = matrix(f.type, {n.batch, n.queries, width}, {});
    const auto part = [&](std::int64_t first, std::int64_t columns, bool as_columns) {
      region::TensorRef t = all;
      t.offset = 2 * first;
      t.dims = {n.batch, n.heads, n.keys, columns};
      t.strides = {n.queries * width, columns, width, 1};
      if (as_columns) std::swap(t.dims[2], t.dims[3]), std::swap(t.strides[2], t.strides[3]);
      return t;
    };
    q = part(0, n.features, false), k = part(n.heads * n.features, n.features, true);
    v = part(2 * n.heads * n.features, n.columns, false);
  } else {
    const bool across = f.layout == Layout::turned;
    const std::int64_t heads = f.layout == Layout::repeated ? 1 : n.heads;
    const int gap = static_cast<int>((8 - n.keys % 8) % 8);  // lines of keys begin at 16 bytes
    q = matrix(f.type, {n.batch, n.heads, n.queries, n.features}, between ? heads_between : std::vector<int>{});
    k = across ? matrix(f.type, {n.batch, heads, n.features, n.keys}, {}, gap)
               : matrix(f.type, {n.batch, heads, n.features, n.keys}, between ? turned_between : turned);
    v = across ? matrix(f.type, {n.batch, heads, n.keys, n.columns}, turned, gap)
               : matrix(f.type, {n.batch, heads, n.keys, n.columns}, between ? heads_between : std::vector<int>{});
    for (region::TensorRef* t : {&k, &v}) {
      if (heads == n.heads) continue;
      t->dims[1] = n.heads, t->strides[1] = 0;
    }
  }
  scores.anchor.inputs = {q, k};

  auto& p = scores.program;
  const auto rounded = [&](int value) {
    return f.scores == DType::f16 ? p.push(Op::to_f16, value) : f.scores == DType::bf16 ? p.push(Op::to_bf16, value) : value;
  };
  const auto product_of = [&](program::Program& of) {  // as the type of the matrices has it
    return f.type == DType::f16 && !f.whole_sums ? of.push(Op::to_f16, of.push(Op::acc_f)) : of.push(Op::acc_f);
  };
  int y = rounded(product_of(p));
  if (f.scale != 1) y = rounded(f.divides ? p.push(Op::div, y, p.imm_f(1 / f.scale)) : p.push(Op::mul, y, p.imm_f(f.scale)));
  const auto is_lost = [&](std::int64_t query) { return f.lost && query % 5 == 2; };
  const auto off = [&](std::int64_t query, std::int64_t key) {
    return is_lost(query) || (f.lost && (s.pick(0, 1) == 0 || (query % 5 == 3 && key < 40 && key + 1 < n.keys)));
  };
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (f.mask == Mask::keys || f.mask == Mask::whole) {
    const std::int64_t rows = f.mask == Mask::whole ? n.queries : 1;
    region::TensorRef mask = s.tensor(f.scores, {n.batch, 1, rows, n.keys});
    for (std::int64_t i = 0; f.lost && i < n.batch * rows * n.keys; ++i) {
      if (!off(rows == 1 ? 0 : i / n.keys % rows, i % n.keys)) continue;
      const std::uint16_t half = f.scores == DType::f16 ? f32_to_f16(kNothing) : f32_to_bf16(kNothing);
      if (f.scores == DType::f32)
        std::memcpy(bytes_of(s, mask) + 4 * i, &kNothing, 4);
      else
        std::memcpy(bytes_of(s, mask) + 2 * i, &half, 2);
    }
    mask.dims = scores.space;
    mask.strides = {rows * n.keys, 0, rows == 1 ? 0 : n.keys, 1};
    scores.operands.push_back({mask, {}});
    y = rounded(p.push(Op::add, y, p.load(Op::load_f, 0)));
  }
  if (f.mask == Mask::truth) {
    region::TensorRef mask = s.tensor(DType::u8, {n.queries, n.keys});
    for (std::int64_t i = 0; i < n.queries * n.keys; ++i) bytes_of(s, mask)[i] = std::byte(off(i / n.keys, i % n.keys) ? 0 : 1);
    mask.dims = scores.space;
    mask.strides = {0, 0, n.keys, 1};
    scores.operands.push_back({mask, {}});
    const int truth = p.push(Op::i2f, p.load(Op::load_i, 0));
    y = p.push(Op::sel_eq, truth, p.imm_f(0), p.imm_f(kNothing), y);
  }
  if (f.mask == Mask::causal) {
    region::TensorRef mask = s.tensor(DType::f32, {n.queries, n.keys}, BufferKind::constant);
    ir::Tensor& data = s.plan().buffers[static_cast<std::size_t>(mask.buffer)].data;
    for (std::int64_t i = 0; i < n.queries * n.keys; ++i) {
      const std::int64_t query = i / n.keys, key = i % n.keys;
      const bool nothing = key > query + n.keys - n.queries || (f.lost && key + 40 < query);
      data.mutable_data<float>()[i] = nothing ? kNothing : 0;
    }
    std::memcpy(bytes_of(s, mask), data.bytes().data(), data.bytes().size());
    mask.dims = scores.space;
    mask.strides = {0, 0, n.keys, 1};
    scores.operands.push_back({mask, {}});
    y = rounded(p.push(Op::add, y, p.load(Op::load_f, 0)));
  }
  const auto between_stages = [&](DType type) {
    region::TensorRef t = s.tensor(type, f.unwritten ? Shape{1} : scores.space);
    if (f.unwritten) {
      t.dims = scores.space;
      t.strides = {n.heads * n.queries * n.keys, n.queries * n.keys, n.keys, 1};
    }
    return t;
  };
  p.operand_count = static_cast<int>(scores.operands.size());
  p.outputs = {{y, f.scores}};
  scores.stores = {between_stages(f.scores)};

  softmax.anchor.op = ir::Op::softmax;
  softmax.anchor.facts = testing::facts(softmax.anchor.op, {{"axis", std::int64_t{3}}});
  softmax.anchor.inputs = {scores.stores[0]};
  auto& r = softmax.program;
  int e = r.push(Op::acc_f);
  if (f.zeros && f.divides) {  // where(not(e == e), 0, e), as exporters write it
    const int number = r.push(Op::sel_eq, e, e, r.imm_f(1), r.imm_f(0));
    e = r.push(Op::sel_eq, r.push(Op::sub, r.imm_f(1), number), r.imm_f(0), e, r.imm_f(0));
  } else if (f.zeros) {
    e = r.push(Op::nan0, e);
  }
  if (f.scaled) e = r.push(Op::mul, e, r.imm_f(0.7F));
  if (f.counted) {
    region::TensorRef counts = s.tensor(DType::f32, {n.batch, n.queries});
    counts.dims = softmax.space;
    counts.strides = {n.queries, 0, 1, 0};
    softmax.operands.push_back({counts, {}});
    r.operand_count = 1;
    e = r.push(Op::mul, e, r.load(Op::load_f, 0));
  }
  e = r.push(f.type == DType::f16 ? Op::to_f16 : Op::to_bf16, e);
  r.outputs = {{e, f.type}};
  softmax.stores = {between_stages(f.type)};

  product.anchor.inputs = {softmax.stores[0], v};
  auto& o = product.program;
  o.outputs = {{product_of(o), f.stored}};
  product.stores = {matrix(f.stored, product.space, f.layout == Layout::plain ? std::vector<int>{} : heads_between)};
}

}  // namespace octavo::testing::halves
