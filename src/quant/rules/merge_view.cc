// merge-view:  view_q2(y) ==> y, where every value of y is known to be a value that q2 leaves alone
//   Why    a second pair on a value that already lies on the grid rounds nothing; doubled pairs are what exporters write most.
//   Exact  bit for bit: q2 maps each code's value to itself, decided by enumerating the codes in the arithmetic type. In bf16 even
//          q over q may change values; then both views stay.
//   Needs  y lies on a grid q1 (ir::find_grids) that q2 fixes: equal parameters, s8 against u8 spelling, or a finer q2.
//   Order  none. Where q2 does not fix q1 both roundings are demanded and both stay.

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MergeView final : rewrite::Rule {
  std::string_view name() const override { return "merge-view"; }
  std::string_view equation() const override { return "view_q2(y on the grid of q1) ==> y, where q2 fixes q1"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::view) return rewrite::no_match();
    const ir::ValueId y = n.inputs[0];
    const ir::Quantizer* grid = grids.get(y);
    if (grid == nullptr) return rewrite::no_match();
    if (!ir::fixes(*n.quantizer, *grid)) {
      if (g.is_constant(y)) return rewrite::no_match();  // code-constant's
      return rewrite::refuse(because<cause::values_change>(ir::to_string(*n.quantizer), ir::to_string(*grid)));
    }
    substitute(g, n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_view() {
  static const MergeView law;
  return law;
}

}  // namespace octavo::quant
