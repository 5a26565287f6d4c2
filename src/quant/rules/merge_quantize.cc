// merge-quantize:  quantize_q(view_q(x)) ==> quantize_q(x)
//   Why    one rounding instead of two equal ones: a typed result straight from its producer.
//   Exact  bit for bit: q gives every one of its codes back, decided by enumeration in the arithmetic type.
//   Needs  equal scale, zero point (u8 and s8 spelled alike), axis and arithmetic type.
//   Order  last, when no other law applies any more: view-before-quantize is its inverse.

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MergeQuantize final : rewrite::Rule {
  std::string_view name() const override { return "merge-quantize"; }
  std::string_view equation() const override { return "quantize_q(view_q(x)) ==> quantize_q(x)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::quantize || g.producer(n.inputs[0]).op != ir::Op::view) return rewrite::no_match();
    const ir::Node& view = g.producer(n.inputs[0]);
    const ir::Quantizer a = ir::as_u8(ir::collapse_axis(*n.quantizer)), b = ir::as_u8(ir::collapse_axis(*view.quantizer));
    if (!(a == b)) return rewrite::refuse(because<cause::view_and_quantizer_differ>(ir::to_string(b), ir::to_string(a)));
    if (!gives_back(a)) return rewrite::refuse(because<cause::codes_do_not_come_back>(ir::to_string(a)));
    n.origin.insert(view.origin.begin(), view.origin.end());
    n.inputs[0] = view.inputs[0];
    g.touch();
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_quantize() {
  static const MergeQuantize law;
  return law;
}

}  // namespace octavo::quant
