// sink-transpose:  f(transpose(reshape(y)), c) ==> transpose(f(reshape(y), c)), y a matrix that a gemm computes
//   Why    networks that compute linear layers between convolutions (ConvNeXt) turn their result into an image before they scale it and add the
//          residual. In front of the transpose both can join the region of the gemm; behind it they are a pass over memory.
//   Exact  bit for bit: f computes each element from the same elements.
//   Needs  f is pointwise (no rounding to codes: laws move those, and no BatchNormalization: it names an axis); y is a gemm or pointwise
//          operators behind one, and the reshape keeps its columns; nothing else reads the transpose; each other operand has the result's
//          shape (it is transposed back), one element, or one a column; the result has the transpose's shape. Where the transpose makes no
//          image of rows (columns to dimension 1), an operand of the result's shape must be a transpose by the same permutation, which goes:
//          another one would be copied, and of the rows of two gemms each would be moved to the other without end.
//   Order  before merge-transpose, which joins what is left, and sink-reshape, which takes f to the gemm.
#include <algorithm>
#include <vector>

#include "passes/behind_gemm.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using ir::Shape;

/// The reshape behind a transpose with one reader, or nothing.
const ir::Node* turned_rows(const ir::Graph& g, ir::ValueId v) {
  if (v == ir::kNone || g.producer(v).op != Op::transpose || g.users(v).size() != 1) return nullptr;
  const ir::Node& rows = g.producer(g.producer(v).inputs[0]);
  if (rows.op != Op::reshape) return nullptr;
  const Shape& matrix = g.type(rows.inputs[0]).shape;
  const bool keeps = matrix.size() == 2 && g.type(rows.outputs[0]).shape.back() == matrix.back();
  return keeps && from_gemm(g, rows.inputs[0]) ? &rows : nullptr;
}

/// 0, last, 1, 2, ...
bool makes_image(const std::vector<std::int64_t>& perm) {
  bool moved = perm.size() > 2 && perm[0] == 0 && perm[1] == static_cast<std::int64_t>(perm.size()) - 1;
  for (std::size_t k = 2; moved && k < perm.size(); ++k) moved = perm[k] == static_cast<std::int64_t>(k) - 1;
  return moved;
}

bool is_transposed(const ir::Graph& g, ir::ValueId v, const std::vector<std::int64_t>& perm) {
  const ir::Node& n = g.producer(v);
  return n.op == Op::transpose && ir::get_ints(n.attrs, "perm") == perm;
}

struct SinkTranspose final : rewrite::Rule {
  std::string_view name() const override { return "sink-transpose"; }
  std::string_view equation() const override {
    return "f(transpose(reshape(y)), c) ==> transpose(f(reshape(y), c)), y a matrix that a gemm computes";
  }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (!moves_freely(n.op) || n.outputs.size() != 1) return rewrite::no_match();
    const auto found = std::find_if(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId v) { return turned_rows(g, v) != nullptr; });
    if (found == n.inputs.end()) return rewrite::no_match();
    const Shape shape = g.type(*found).shape, rows = g.type(turned_rows(g, *found)->outputs[0]).shape;
    if (g.type(n.outputs[0]).shape != shape) return rewrite::no_match();
    const std::vector<std::int64_t> perm = ir::get_ints(g.producer(*found).attrs, "perm");
    std::vector<std::int64_t> back(perm.size());
    for (std::size_t k = 0; k < perm.size(); ++k) back[static_cast<std::size_t>(perm[k])] = static_cast<std::int64_t>(k);
    const auto columns = static_cast<std::size_t>(back.back());  // the dimension of the result that the matrix's columns are
    // An operand with one element a column.
    const auto of_columns = [&](const Shape& own) {
      const std::size_t behind = shape.size() - columns - 1;
      return own.size() > behind && own.size() <= shape.size() && own[own.size() - 1 - behind] == rows.back() &&
             ir::count(own) == rows.back();
    };
    for (const ir::ValueId v : n.inputs) {
      if (v == ir::kNone) continue;
      const Shape& own = g.type(v).shape;
      if (own != shape && ir::count(own) != 1 && !of_columns(own)) return rewrite::no_match();
      if (own == shape && !makes_image(perm) && !is_transposed(g, v, perm)) return rewrite::no_match();
    }
    std::vector<ir::ValueId> inputs;
    for (const ir::ValueId v : n.inputs) {
      const Shape own = v == ir::kNone ? Shape{} : g.type(v).shape;
      if (v == ir::kNone || (own != shape && ir::count(own) == 1)) {
        inputs.push_back(v);
      } else if (own == shape && is_transposed(g, v, perm)) {
        inputs.push_back(g.producer(v).inputs[0]);
      } else if (own == shape) {
        inputs.push_back(ir::add_inferred(g, Op::transpose, {v}, {{"perm", back}}, n.origin));
      } else {
        inputs.push_back(ir::add_inferred(g, Op::reshape, {v}, {{"shape", Shape{rows.back()}}}, n.origin));
      }
    }
    const ir::ValueId f = ir::add_inferred(g, n.op, inputs, n.attrs, n.origin);
    const ir::ValueId y = ir::add_inferred(g, Op::transpose, {f}, {{"perm", perm}}, n.origin, g.value(n.outputs[0]).name);
    g.value(f).range = g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_transpose() {
  static const SinkTranspose rule;
  return rule;
}

}  // namespace octavo::passes
