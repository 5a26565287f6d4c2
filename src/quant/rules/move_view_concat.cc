// move-view-concat:  q(concat(x, y...)) ==> concat(q(x), q(y)...)
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written. A concat
//          whose operands are only partly labelled has no label below it and stays.
//   Exact  bit for bit: each element goes through the same q.
//   Needs  nothing; per axis along the concatenated axis each operand gets its own entries.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewConcat final : MovingLaw {
  std::string_view name() const override { return "move-view-concat"; }
  std::string_view equation() const override { return "q(concat(x, y...)) ==> concat(q(x), q(y)...)"; }
  ir::Op op() const override { return ir::Op::concat; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    Moved moved = on_operands(m, label, label.q.axis);
    const std::int64_t axis = ir::get_int(m.attrs, "axis");
    if (label.q.per_tensor() || label.q.axis != axis) return moved;
    std::int64_t from = 0;
    for (std::size_t i = 0; i < m.inputs.size(); ++i) {
      const std::int64_t to = from + g.type(m.inputs[i]).shape[static_cast<std::size_t>(axis)];
      if (from == to) {  // an empty operand has no entries of its own; any per-tensor quantizer reads nothing
        moved.operands[i] = std::nullopt;
        continue;
      }
      ir::Quantizer& q = *moved.operands[i];
      q.scale.assign(label.q.scale.begin() + from, label.q.scale.begin() + to);
      q.zero_point.assign(label.q.zero_point.begin() + from, label.q.zero_point.begin() + to);
      q = ir::collapse_axis(q);
      from = to;
    }
    return moved;
  }
};

}  // namespace

const MovingLaw& move_view_concat() {
  static const MoveViewConcat law;
  return law;
}

}  // namespace octavo::quant
