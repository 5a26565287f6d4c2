// move-dequantize:  dequantize_q(M(c)) ==> M(dequantize_q(c)), M any operator that views move through
//   Why    codes stay at the edges of the graph. The operators between are expressed once, on values, on whichever side of M the
//          DequantizeLinear was written. Nothing is lost: M over values on a grid is M over codes.
//   Exact  bit for bit: dequantize works element by element and, with scale > 0, is increasing. Padding codes become their values.
//   Needs  the conditions of the moving law of M, with dequantize in the place of the view.
//   Order  none; it ends at an input, a `quantize`, a constant or an operator that makes codes.
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveDequantize final : rewrite::Rule {
  std::string_view name() const override { return "move-dequantize"; }
  std::string_view equation() const override { return "dequantize_q(M(c)) ==> M(dequantize_q(c))"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != ir::Op::dequantize) return rewrite::no_match();
    const ir::NodeId below = g.value(n.inputs[0]).producer;
    const MovingLaw* law = find_move(g.node(below).op);
    if (law == nullptr) return rewrite::no_match();
    const Move moved = law->push(g, g.node(below), {Label::Kind::dequantize, *n.quantizer, std::nullopt});
    if (!moved) return rewrite::refuse(moved.error());

    std::vector<ir::ValueId> operands = g.node(below).inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!moved->operands[i]) continue;
      const ir::TensorType type{ir::DType::f32, g.type(operands[i]).shape};
      operands[i] = g.add_quantizer(ir::Op::dequantize, operands[i], *moved->operands[i], type, n.origin);
    }
    substitute(g, n.outputs[0], copy_moved(g, below, *moved, std::move(operands)), /*join_origin=*/false);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& move_dequantize() {
  static const MoveDequantize law;
  return law;
}

}  // namespace octavo::quant
