// code-constant:  dequantize(codes) ==> coded constant;  quantize(constant) ==> codes;  view(constant) ==> coded constant
//   Why    weights become one form, which integer kernels read, whether the file has codes + DequantizeLinear or floats + a pair.
//   Exact  bit for bit: the same scalar formulas run now instead of later. 8-bit codes are spelled s8 (u8 shifted by 128).
//   Needs  the operand is a constant. An initializer that serves two readers gives each its own coded constant.
//   Order  none; view(coded constant) is left to merge-view where the view changes nothing.
#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct CodeConstant final : rewrite::Rule {
  std::string_view name() const override { return "code-constant"; }
  std::string_view equation() const override { return "dequantize(codes), view(constant) ==> coded constant"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);  // a copy: adding nodes moves the original
    const bool quantizes = n.op == ir::Op::view || n.op == ir::Op::quantize;
    if ((!quantizes && n.op != ir::Op::dequantize) || !g.is_constant(n.inputs[0])) return rewrite::no_match();
    const ir::Node constant = g.producer(n.inputs[0]);
    const ir::Quantizer& q = *n.quantizer;
    const std::string& name = g.value(n.inputs[0]).name;

    ir::ValueId result = ir::kNone;
    if (!quantizes) {
      result = add_coded(g, constant.payload, q, name);
    } else {
      if (!ir::is_float(g.type(n.inputs[0]).dtype)) return rewrite::refuse(because<cause::constant_not_float>());
      if (n.op == ir::Op::view && constant.quantizer && ir::fixes(q, *constant.quantizer)) return rewrite::no_match();
      ir::Tensor codes = encode(values_of(constant), q);
      if (n.op == ir::Op::view && !holds(g.type(n.inputs[0]).dtype, q))
        return rewrite::refuse(because<cause::constant_type_rounds>());
      result = n.op == ir::Op::view ? add_coded(g, std::move(codes), q, name) : g.add_constant(std::move(codes), name);
    }
    if (g.type(result).dtype != g.type(n.outputs[0]).dtype) g.value(result).type.dtype = g.type(n.outputs[0]).dtype;
    substitute(g, n.outputs[0], result);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& code_constant() {
  static const CodeConstant law;
  return law;
}

}  // namespace octavo::quant
