// drop-requantize:  quantize_q(dequantize_q(c)) ==> c;  quantize_q(M(dequantize_q(c)...)) ==> M(c...)
//   Why    codes that pass through unchanged need no arithmetic at all.
//   Exact  bit for bit: q gives every one of its codes back, decided by enumeration in the arithmetic type.
//   Needs  equal parameters and type at every leaf, at least one of which is no constant; M only moves or selects elements (relu
//          and clip have no form on codes). Codes of another type are a copy that shifts by 128, which stays written as quantize
//          and dequantize.
//   Order  none; sink-quantize takes the other direction only where an operand is a `quantize`.

#include <cmath>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropRequantize final : rewrite::Rule {
  std::string_view name() const override { return "drop-requantize"; }
  std::string_view equation() const override { return "quantize_q(M(dequantize_q(c))) ==> M(c)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != ir::Op::quantize) return rewrite::no_match();
    const ir::Quantizer q = ir::collapse_axis(*n.quantizer);
    const ir::Node& p = g.producer(n.inputs[0]);
    if (p.op == ir::Op::dequantize) {
      const ir::Quantizer from = ir::collapse_axis(*p.quantizer);
      if (!(from == q)) return rewrite::refuse(because<cause::quantizers_differ>(ir::to_string(from), ir::to_string(q)));
    }
    bool leaf = false;
    if (!has_codes(g, n.inputs[0], q, leaf) || !leaf) return rewrite::no_match();
    if (!gives_back(q)) return rewrite::refuse(because<cause::codes_do_not_come_back>(ir::to_string(q)));
    substitute(g, n.outputs[0], codes_of(g, n.inputs[0], q));
    return rewrite::applied();
  }

 private:
  static bool moves_codes(ir::Op op) { return op != ir::Op::relu && op != ir::Op::clip && find_move(op) != nullptr; }

  /// The operands of m in codes, or nothing if m cannot work on codes of q.
  static std::optional<Moved> pushed(const ir::Graph& g, const ir::Node& m, const ir::Quantizer& q) {
    if (!moves_codes(m.op)) return std::nullopt;
    const Move moved = find_move(m.op)->push(g, m, {Label::Kind::view, q, std::nullopt});
    if (!moved || moved->attrs != m.attrs) return std::nullopt;  // a padding value that is no code
    Moved out = *moved;
    if (m.op == ir::Op::pad && adds_constant(m)) {
      if (!q.per_tensor()) return std::nullopt;
      const auto value = static_cast<float>(ir::get_float(m.attrs, "value"));
      out.attrs["value"] = static_cast<double>(ir::quantize_one(value, q.scale[0], q.zero_point[0], q.lo(), q.hi(), q.arith));
    }
    return out;
  }

  /// True if v is made of codes of q by moving alone; `leaf` is set when one of them is not constant.
  static bool has_codes(const ir::Graph& g, ir::ValueId v, const ir::Quantizer& q, bool& leaf) {
    const ir::Node& n = g.producer(v);
    if (n.op == ir::Op::dequantize) {
      leaf = true;
      return ir::collapse_axis(*n.quantizer) == q;
    }
    if (n.op == ir::Op::constant) return n.quantizer && ir::as_s8(ir::collapse_axis(*n.quantizer)) == ir::as_s8(q);
    const auto moved = pushed(g, n, q);
    if (!moved) return false;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (moved->operands[i] && !has_codes(g, n.inputs[i], *moved->operands[i], leaf)) return false;
    }
    return true;
  }

  static ir::ValueId codes_of(ir::Graph& g, ir::ValueId v, const ir::Quantizer& q) {
    const ir::Node n = g.producer(v);
    if (n.op == ir::Op::dequantize) return n.inputs[0];
    if (n.op == ir::Op::constant) {
      const bool respell = n.quantizer->type != q.type && ir::is_int8(q.type);
      return g.add_constant(respell ? shifted(n.payload, q.type) : n.payload);
    }
    const Moved moved = *pushed(g, n, q);
    std::vector<ir::ValueId> operands = n.inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (moved.operands[i]) operands[i] = codes_of(g, operands[i], *moved.operands[i]);
    }
    return copy_moved(g, g.value(v).producer, moved, std::move(operands));
  }
};

}  // namespace

const rewrite::Rule& drop_requantize() {
  static const DropRequantize law;
  return law;
}

}  // namespace octavo::quant
