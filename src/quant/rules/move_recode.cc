// move-recode:  dequantize_q2(quantize_q1(M(x))) ==> M(dequantize_q2(quantize_q1(x))), q1 and q2 unequal
//   Why    a pair with unequal parameters is a function of one element, like a view, so it moves to the producers like a view.
//   Exact  bit for bit: r = dequantize_q2 after quantize_q1 works element by element and, with both scales > 0, is non-decreasing.
//   Needs  both per tensor; the conditions of the moving law of M, with r in the place of the view (relu and clip are refused).
//   Order  none; equal parameters are pair-quantize-dequantize's.
#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveRecode final : rewrite::Rule {
  std::string_view name() const override { return "move-recode"; }
  std::string_view equation() const override { return "dequantize_q2(quantize_q1(M(x))) ==> M(dequantize_q2(quantize_q1(x)))"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != ir::Op::dequantize || g.producer(n.inputs[0]).op != ir::Op::quantize) return rewrite::no_match();
    const ir::Node q = g.producer(n.inputs[0]);
    const ir::NodeId below = g.value(q.inputs[0]).producer;
    const MovingLaw* law = find_move(g.node(below).op);
    if (law == nullptr || ir::collapse_axis(*q.quantizer) == ir::collapse_axis(*n.quantizer)) return rewrite::no_match();
    if (!q.quantizer->per_tensor() || !n.quantizer->per_tensor()) return rewrite::refuse(because<cause::pair_per_axis>());
    const Move moved = law->push(g, g.node(below), {Label::Kind::recode, *n.quantizer, *q.quantizer});
    if (!moved) return rewrite::refuse(moved.error());

    std::vector<ir::ValueId> operands = g.node(below).inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!moved->operands[i]) continue;
      const ir::Shape shape = g.type(operands[i]).shape;
      operands[i] = g.add_quantizer(ir::Op::quantize, operands[i], *q.quantizer, {q.quantizer->type, shape}, q.origin);
      operands[i] = g.add_quantizer(ir::Op::dequantize, operands[i], *n.quantizer, {ir::DType::f32, shape}, n.origin);
    }
    substitute(g, n.outputs[0], copy_moved(g, below, *moved, std::move(operands)), /*join_origin=*/false);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& move_recode() {
  static const MoveRecode law;
  return law;
}

}  // namespace octavo::quant
