// view-before-quantize:  quantize_q(x) ==> quantize_q(view_q(x))
//   Why    the rounding of a typed result then moves to the producers like every other view, and meets the views of other readers;
//          `quantize` itself only names the codes. merge-quantize removes the views that found nothing to move through.
//   Exact  bit for bit: q gives every one of its codes back, decided by enumeration in the arithmetic type.
//   Needs  x is float, not constant, and not already on the grid; its type holds the values of the codes; something reads the codes
//          other than the dequantize of a pair.
//   Order  before merge-quantize, which runs when no other law applies any more.

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct ViewBeforeQuantize final : rewrite::Rule {
  std::string_view name() const override { return "view-before-quantize"; }
  std::string_view equation() const override { return "quantize_q(x) ==> quantize_q(view_q(x))"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node n = g.node(id);
    if (n.op != ir::Op::quantize || g.is_constant(n.inputs[0])) return rewrite::no_match();
    const ir::TensorType type = g.type(n.inputs[0]);
    const ir::Quantizer q = ir::as_u8(ir::collapse_axis(*n.quantizer));
    if (!ir::is_float(type.dtype) || q.type == ir::DType::s32) return rewrite::no_match();
    if (read_in_pairs(g, n)) return rewrite::no_match();
    if (fixed_by(g, grids, n.inputs[0], q)) return rewrite::no_match();
    if (!holds(type.dtype, q))
      return rewrite::refuse(because<cause::type_rounds_values>(ir::name_of(type.dtype), ir::to_string(q)));
    if (!gives_back(q)) return rewrite::refuse(because<cause::codes_do_not_come_back>(ir::to_string(q)));
    const ir::ValueId view = g.add_quantizer(ir::Op::view, n.inputs[0], q, type, n.origin);
    g.node(id).inputs[0] = view;
    g.touch();
    return rewrite::applied();
  }

 private:
  /// Nothing sees the codes: pair-quantize-dequantize makes views of all readers.
  static bool read_in_pairs(const ir::Graph& g, const ir::Node& n) {
    if (g.output_uses(n.outputs[0]) > 0) return false;
    for (const auto& [user, slot] : g.users(n.outputs[0])) {
      const ir::Node& reader = g.node(user);
      if (reader.op != ir::Op::dequantize || !(ir::collapse_axis(*reader.quantizer) == ir::collapse_axis(*n.quantizer)))
        return false;
    }
    return true;
  }
};

}  // namespace

const rewrite::Rule& view_before_quantize() {
  static const ViewBeforeQuantize law;
  return law;
}

}  // namespace octavo::quant
