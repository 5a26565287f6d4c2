// sink-quantize:  M(quantize_q(x), c...) ==> quantize_q(M(x, dequantize_q(c)...)), M any operator that views move through
//   Why    codes stay at the edges of the graph: a typed result is quantized where it leaves the graph, so both placements of its
//          quantize become equal.
//   Exact  bit for bit: quantize works element by element and, with scale > 0, is non-decreasing; q gives every code back (checked
//          by enumeration where other codes or padding codes come in).
//   Needs  q per tensor, all quantized operands by the same q; the conditions of the moving law of M.
//   Order  none; drop-requantize takes the other direction only where no operand is a `quantize`.

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct SinkQuantize final : rewrite::Rule {
  std::string_view name() const override { return "sink-quantize"; }
  std::string_view equation() const override { return "M(quantize_q(x)) ==> quantize_q(M(x))"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node m = g.node(id);
    const MovingLaw* law = find_move(m.op);
    if (law == nullptr || ir::is_float(g.type(m.outputs[0]).dtype)) return rewrite::no_match();
    std::optional<ir::Quantizer> q;
    std::set<std::string> origin;
    for (const ir::ValueId in : m.inputs) {
      const ir::Node& p = g.producer(in);
      if (p.op != ir::Op::quantize || p.quantizer->type != g.type(m.outputs[0]).dtype) continue;
      if (q && !(*q == *p.quantizer))
        return rewrite::refuse(because<cause::operands_quantized_differently>(ir::to_string(*q), ir::to_string(*p.quantizer)));
      q = *p.quantizer;
      origin.insert(p.origin.begin(), p.origin.end());
    }
    if (!q) return rewrite::no_match();
    if (!q->per_tensor()) return rewrite::refuse(because<cause::quantizer_per_axis>(ir::to_string(*q)));
    const Move moved = law->push(g, m, {Label::Kind::dequantize, *q, std::nullopt});
    if (!moved) return rewrite::refuse(moved.error());

    std::vector<ir::ValueId> operands = m.inputs;
    // Codes that go through dequantize and must come back through quantize: padding, and operands that are no quantize.
    bool comes_back = moved->attrs == m.attrs || (m.op == ir::Op::pad && gives_back(*q, ir::get_float(m.attrs, "value", 0)));
    ir::DType type = ir::DType::f32;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!moved->operands[i]) continue;
      const ir::Node& p = g.producer(operands[i]);
      if (p.op == ir::Op::quantize) type = g.type(p.inputs[0]).dtype;
      if (p.op == ir::Op::constant && !p.quantizer) {
        for (std::int64_t k = 0; k < p.payload.size() && comes_back; ++k) comes_back = gives_back(*q, p.payload.at(k));
      } else if (p.op != ir::Op::quantize) {
        comes_back = comes_back && gives_back(*q);
      }
    }
    if (!comes_back && !gives_back(*q)) return rewrite::refuse(because<cause::codes_do_not_come_back>(ir::to_string(*q)));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!moved->operands[i]) continue;
      const ir::Node& p = g.producer(operands[i]);
      const ir::DType have = p.op == ir::Op::quantize ? g.type(p.inputs[0]).dtype : ir::DType::f32;
      if (have != type || !ir::is_float(have))
        return rewrite::refuse(because<cause::operand_types_differ>(ir::name_of(type), ir::name_of(have)));
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!moved->operands[i]) continue;
      if (g.producer(operands[i]).op == ir::Op::quantize) {
        operands[i] = g.producer(operands[i]).inputs[0];
      } else {
        operands[i] = g.add_quantizer(ir::Op::dequantize, operands[i], *q, {ir::DType::f32, g.type(operands[i]).shape}, origin);
      }
    }
    const ir::ValueId y = copy_moved(g, id, *moved, std::move(operands));
    const ir::ValueId codes = g.add_quantizer(ir::Op::quantize, y, *q, g.type(m.outputs[0]), origin);
    substitute(g, m.outputs[0], codes, /*join_origin=*/false);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_quantize() {
  static const SinkQuantize law;
  return law;
}

}  // namespace octavo::quant
