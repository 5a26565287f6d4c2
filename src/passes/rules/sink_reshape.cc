// sink-reshape:  f(reshape(y), c) ==> reshape(f(y, c)), y a matrix that a gemm computes
//   Why    a product of tokens with a weight is a gemm between two reshapes. Bias, residual Add and activation behind the second
//          reshape would be separate regions with a pass over memory each; before the reshape they can join the region of the gemm.
//   Exact  bit for bit: f computes each element from the same elements.
//   Needs  f is pointwise (no rounding to codes: laws move those, and no BatchNormalization: it names an axis); y is a gemm or pointwise
//          operators behind one, and the reshape keeps its columns; each other operand has the reshape's shape (it is reshaped, too), one
//          element, or one a column; the result has the reshape's shape.
//   Order  before merge-reshape and drop-identity, which remove what is left between two reshapes.
#include <algorithm>
#include <vector>

#include "passes/behind_gemm.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using ir::Shape;

struct SinkReshape final : rewrite::Rule {
  std::string_view name() const override { return "sink-reshape"; }
  std::string_view equation() const override { return "f(reshape(y), c) ==> reshape(f(y, c)), y a matrix that a gemm computes"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (!moves_freely(n.op) || n.outputs.size() != 1) return rewrite::no_match();
    const Shape shape = g.type(n.outputs[0]).shape;
    const auto reshaped = [&](ir::ValueId v) {
      return v != ir::kNone && g.producer(v).op == Op::reshape && g.type(v).shape == shape && from_gemm(g, g.producer(v).inputs[0]);
    };
    const auto found = std::find_if(n.inputs.begin(), n.inputs.end(), reshaped);
    if (found == n.inputs.end()) return rewrite::no_match();
    const Shape matrix = g.type(g.producer(*found).inputs[0]).shape;
    if (shape.empty() || shape.back() != matrix.back()) return rewrite::no_match();
    // What becomes of each operand: its shape as an operand of the matrix.
    std::vector<Shape> shapes;
    for (const ir::ValueId v : n.inputs) {
      const Shape own = v == ir::kNone ? Shape{} : g.type(v).shape;
      const std::int64_t count = ir::count(own);
      if (own == shape) {
        shapes.push_back(matrix);
      } else if (count == 1) {
        shapes.push_back(own.size() <= 2 ? own : Shape{1});
      } else if (one_a_column(own, shape.back())) {
        shapes.push_back(own.size() <= 2 ? own : Shape{count});
      } else {
        return rewrite::no_match();
      }
    }
    std::vector<ir::ValueId> inputs;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const ir::ValueId v = n.inputs[i];
      if (v == ir::kNone || g.type(v).shape == shapes[i]) {
        inputs.push_back(v);
      } else if (const ir::Node& from = g.producer(v); from.op == Op::reshape && g.type(from.inputs[0]).shape == shapes[i]) {
        inputs.push_back(from.inputs[0]);
      } else {
        inputs.push_back(ir::add_inferred(g, Op::reshape, {v}, {{"shape", shapes[i]}}, n.origin));
      }
    }
    const ir::ValueId f = ir::add_inferred(g, n.op, inputs, n.attrs, n.origin);
    const ir::ValueId y = ir::add_inferred(g, Op::reshape, {f}, {{"shape", shape}}, n.origin, g.value(n.outputs[0]).name);
    g.value(f).range = g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_reshape() {
  static const SinkReshape rule;
  return rule;
}

}  // namespace octavo::passes
