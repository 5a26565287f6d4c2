// sink-scale:  matmul(mul(x, a), y) ==> mul(matmul(x, y), a), a one constant number; the same for y
//   Why    exporters scale Q and K by a root of 1 / sqrt(d) each, in front of their product. There each is a pass over memory, and stands between
//          the layers that compute Q and K and the transposes that become strides; behind the product it joins the scores' region.
//   Exact  no: one rounding a term of the sum moves to one of the result. |difference| <= (depth + 3) 2^-23 sum |x a y|, for numbers whose products
//          neither overflow nor become subnormal.
//   Needs  float32 values that the network computes, both of them (a constant matrix takes the number into its weights or its epilogue); a is finite
//          and not 0; nothing else reads the scaled tensor.
//   Order  before attention is recognized; two numbers behind one product become one (fold-constants).
#include <cmath>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

struct SinkScale final : rewrite::Rule {
  std::string_view name() const override { return "sink-scale"; }
  std::string_view equation() const override {
    return "matmul(mul(x, a), y) ==> mul(matmul(x, y), a), a one constant number; the same for y";
  }
  bool exact() const override { return false; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::matmul || g.type(n.outputs[0]).dtype != ir::DType::f32) return rewrite::no_match();
    if (g.is_constant(n.inputs[0]) || g.is_constant(n.inputs[1])) return rewrite::no_match();
    std::vector<ir::ValueId> operands = n.inputs;
    float factor = 1;
    std::set<std::string> origin;
    for (ir::ValueId& v : operands) {
      const ir::Node& scaled = g.producer(v);
      if (scaled.op != Op::mul || g.use_count(v) != 1) continue;
      for (const std::size_t slot : {0U, 1U}) {
        const ir::ValueId a = scaled.inputs[slot], x = scaled.inputs[1 - slot];
        if (!g.is_constant(a) || g.is_constant(x) || g.producer(a).quantizer || g.type(a).dtype != ir::DType::f32 ||
            ir::count(g.type(a).shape) != 1 || g.type(x).shape != g.type(v).shape)
          continue;
        const float value = g.payload(a).data<float>()[0];
        if (!std::isfinite(value) || !std::isnormal(factor * value)) continue;
        factor *= value;
        origin.insert(scaled.origin.begin(), scaled.origin.end());
        v = x;
        break;
      }
    }
    if (operands == n.inputs) return rewrite::no_match();
    const ir::ValueId product = ir::add_inferred(g, Op::matmul, operands, n.attrs, n.origin);
    g.node(g.value(product).producer).name = n.name;
    ir::Tensor number(ir::DType::f32, {});
    number.mutable_data<float>()[0] = factor;
    const ir::ValueId y =
        ir::add_inferred(g, Op::mul, {product, g.add_constant(std::move(number))}, {}, origin, g.value(n.outputs[0]).name);
    g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_scale() {
  static const SinkScale rule;
  return rule;
}

}  // namespace octavo::passes
