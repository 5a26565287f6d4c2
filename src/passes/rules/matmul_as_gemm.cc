// matmul-as-gemm:  matmul(x, w), w a constant matrix ==> reshape(gemm(reshape(x), w))
//   Why    kernels pack constant weights once, and take the rows of all batches as one matrix. As a product of two computed matrices each
//          batch reads the weights again: a sequence of one row a step reads them once a step.
//   Exact  bit for bit: each element of the result is the sum of the same products in the same order.
//   Needs  x of rank 2 or more and w a plain f32 constant of rank 2. Import does the same where w is an initializer; here w was computed from
//          constants.
//   Order  after fold-constants, which makes w.
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

struct MatmulAsGemm final : rewrite::Rule {
  std::string_view name() const override { return "matmul-as-gemm"; }
  std::string_view equation() const override { return "matmul(x, w), w a constant matrix ==> reshape(gemm(reshape(x), w))"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::matmul || g.is_constant(n.inputs[0]) || !g.is_constant(n.inputs[1])) return rewrite::no_match();
    const ir::ValueId w = n.inputs[1];
    if (g.producer(w).quantizer || g.type(w).dtype != ir::DType::f32 || g.type(w).shape.size() != 2) return rewrite::no_match();
    const ir::Shape x = g.type(n.inputs[0]).shape, y = g.type(n.outputs[0]).shape;
    if (g.type(n.inputs[0]).dtype != ir::DType::f32 || x.size() < 2 || ir::count(y) == 0) return rewrite::no_match();
    const std::string name = g.value(n.outputs[0]).name;
    ir::ValueId out = ir::kNone;
    if (x.size() == 2) {
      out = ir::add_inferred(g, Op::gemm, {n.inputs[0], w}, {}, n.origin, name);
    } else {
      const ir::ValueId rows =
          ir::add_inferred(g, Op::reshape, {n.inputs[0]}, {{"shape", ir::Shape{ir::count(x) / x.back(), x.back()}}}, n.origin);
      const ir::ValueId product = ir::add_inferred(g, Op::gemm, {rows, w}, {}, n.origin);
      g.node(g.value(product).producer).name = n.name;
      g.value(product).range = g.value(n.outputs[0]).range;
      out = ir::add_inferred(g, Op::reshape, {product}, {{"shape", y}}, n.origin, name);
    }
    g.value(out).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], out);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& matmul_as_gemm() {
  static const MatmulAsGemm rule;
  return rule;
}

}  // namespace octavo::passes
