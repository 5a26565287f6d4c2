// Operators of several operands with numpy broadcasting.
#include <array>

#include "onnx/registry.h"

namespace octavo::onnx {
namespace {

template <Op op>
Status binary(NodeContext& n) {
  return n.result(n.emit(op, {n.in(0), n.in(1)}));
}

/// Max, Min, Sum of any number of operands, from the left.
template <Op op>
Status fold_left(NodeContext& n) {
  ValueId y = n.in(0);
  for (std::size_t i = 1; i < n.operands(); ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
    OCTAVO_TRY(y, n.emit(op, {y, n.in(i)}));
  }
  return n.result(y);
}

Status mean(NodeContext& n) {
  OCTAVO_CHECK(fold_left<Op::add>(n));
  if (n.operands() == 1) return {};
  return n.result(n.emit(Op::div, {n.out(0), n.scalar(static_cast<float>(n.operands()))}));
}

/// The exponent may have another type than the base (opset 12).
Status pow(NodeContext& n) {
  OCTAVO_TRY(const ValueId exponent, n.cast(n.in(1), n.type(0).dtype));
  return n.result(n.emit(Op::pow, {n.in(0), exponent}));
}

Status mod(NodeContext& n) {
  const bool fmod = n.attr_int("fmod", 0) != 0;
  if (!fmod && ir::is_float(n.type(0).dtype)) return n.bad("fmod=0 is for integers, the operand is {}", ir::to_string(n.type(0)));
  return n.result(n.emit(Op::mod, {n.in(0), n.in(1)}, {{"fmod", std::int64_t{fmod}}}));
}

/// a xor b = (a or b) and not (a and b).
Status logical_xor(NodeContext& n) {
  OCTAVO_TRY(const ValueId either, n.emit(Op::logical_or, {n.in(0), n.in(1)}));
  OCTAVO_TRY(ValueId both, n.emit(Op::logical_and, {n.in(0), n.in(1)}));
  OCTAVO_TRY(both, n.emit(Op::logical_not, {both}));
  return n.result(n.emit(Op::logical_and, {either, both}));
}

Status where(NodeContext& n) {
  n.declare(0, n.declared(1));
  return n.result(n.emit(Op::where, {n.in(0), n.in(1), n.in(2)}));
}

constexpr std::array kRows{
    OpRow{"Add", "", 7, 0, 2, 2, binary<Op::add>},
    OpRow{"Sub", "", 7, 0, 2, 2, binary<Op::sub>},
    OpRow{"Mul", "", 7, 0, 2, 2, binary<Op::mul>},
    OpRow{"Div", "", 7, 0, 2, 2, binary<Op::div>},
    OpRow{"Pow", "", 7, 0, 2, 2, pow},
    OpRow{"Mod", "", 10, 0, 2, 2, mod},
    OpRow{"Max", "", 1, 0, 1, -1, fold_left<Op::max>},
    OpRow{"Min", "", 1, 0, 1, -1, fold_left<Op::min>},
    OpRow{"Sum", "", 1, 0, 1, -1, fold_left<Op::add>},
    OpRow{"Mean", "", 1, 0, 1, -1, mean},
    OpRow{"PRelu", "", 7, 0, 2, 2, binary<Op::prelu>},
    OpRow{"Equal", "", 7, 0, 2, 2, binary<Op::equal>},
    OpRow{"Less", "", 7, 0, 2, 2, binary<Op::less>},
    OpRow{"LessOrEqual", "", 12, 0, 2, 2, binary<Op::less_equal>},
    OpRow{"Greater", "", 7, 0, 2, 2, binary<Op::greater>},
    OpRow{"GreaterOrEqual", "", 12, 0, 2, 2, binary<Op::greater_equal>},
    OpRow{"And", "", 7, 0, 2, 2, binary<Op::logical_and>},
    OpRow{"Or", "", 7, 0, 2, 2, binary<Op::logical_or>},
    OpRow{"Xor", "", 7, 0, 2, 2, logical_xor},
    OpRow{"Where", "", 9, 0, 3, 3, where},
};

}  // namespace

Family elementwise_ops() {
  return kRows;
}

}  // namespace octavo::onnx
