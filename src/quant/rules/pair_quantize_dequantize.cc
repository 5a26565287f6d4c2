// pair-quantize-dequantize:  dequantize_q(quantize_q(x)) ==> view_q(x)
//   Why    the pair says how its reader sees x, and is no computation of its own; as a view it can move, be merged and be removed.
//   Exact  bit for bit: the definition of a view. u8 with zero point z + 128 stands for s8 with z.
//   Needs  equal scale, zero point, axis and arithmetic type. Unequal parameters read the codes as other values: both nodes stay.
//          A float16 or bfloat16 x is cast to the float32 of the result first, which is exact.
//   Order  none; quantize stays when something else reads its codes.

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct PairQuantizeDequantize final : rewrite::Rule {
  std::string_view name() const override { return "pair-quantize-dequantize"; }
  std::string_view equation() const override { return "dequantize_q(quantize_q(x)) ==> view_q(x)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node& dq = g.node(id);
    if (dq.op != ir::Op::dequantize || g.producer(dq.inputs[0]).op != ir::Op::quantize) return rewrite::no_match();
    const ir::Node& q = g.producer(dq.inputs[0]);
    const ir::Quantizer to = ir::collapse_axis(*q.quantizer), from = ir::collapse_axis(*dq.quantizer);
    if (!(to == from)) return rewrite::refuse(because<cause::pair_of_two_quantizers>(ir::to_string(to), ir::to_string(from)));
    const ir::TensorType x = g.type(q.inputs[0]), y = g.type(dq.outputs[0]);
    if (!ir::is_float(x.dtype) || x.dtype == ir::DType::f64)
      return rewrite::refuse(because<cause::pair_changes_type>(ir::to_string(x), ir::to_string(y)));
    if (to.type == ir::DType::s32) return rewrite::refuse(because<cause::codes_are_s32>());

    std::set<std::string> origin = dq.origin;
    origin.insert(q.origin.begin(), q.origin.end());
    ir::ValueId in = q.inputs[0];
    if (x.dtype != y.dtype) in = ir::add_inferred(g, ir::Op::cast, {in}, {{"to", std::string(ir::name_of(y.dtype))}}, origin);
    const ir::ValueId view = g.add_quantizer(ir::Op::view, in, ir::as_u8(to), y, std::move(origin));
    substitute(g, g.node(id).outputs[0], view, /*join_origin=*/false);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& pair_quantize_dequantize() {
  static const PairQuantizeDequantize law;
  return law;
}

}  // namespace octavo::quant
