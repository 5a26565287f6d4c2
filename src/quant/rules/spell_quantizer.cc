// spell-quantizer:  view with s8(s, z) ==> view with u8(s, z + 128);  coded constant u8(s, z) ==> s8(s, z - 128);
//                   per-axis with equal entries ==> per tensor
//   Why    one spelling for one meaning, so that equal quantizers compare equal. Kernels store activations as u8 and weights as s8.
//   Exact  bit for bit: type, zero point and codes shift together, the values stay. Equal entries read every channel alike.
//   Needs  nothing. `quantize` and `dequantize` keep their declared type: their codes are seen from outside.
//   Order  none.
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct SpellQuantizer final : rewrite::Rule {
  std::string_view name() const override { return "spell-quantizer"; }
  std::string_view equation() const override { return "s8(s, z) ==> u8(s, z + 128) on views, the reverse on coded constants"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (!n.quantizer) return rewrite::no_match();
    ir::Quantizer q = ir::collapse_axis(*n.quantizer);
    if (n.op == ir::Op::view) q = ir::as_u8(q);
    if (n.op == ir::Op::constant) q = ir::as_s8(q);
    if (q == *n.quantizer) return rewrite::no_match();
    if (n.op == ir::Op::constant && q.type != n.quantizer->type) n.payload = shifted(n.payload, q.type);
    n.quantizer = std::move(q);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& spell_quantizer() {
  static const SpellQuantizer law;
  return law;
}

}  // namespace octavo::quant
