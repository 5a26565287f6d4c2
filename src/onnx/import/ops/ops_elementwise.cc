// Operators of several operands with numpy broadcasting.
#include <array>

#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// Operand 1. Up to opset 6 it repeats only when `broadcast` is 1, with its first dimension at `axis` (the last ones by default).
Result<ValueId> second(NodeContext& n) {
  if (n.opset() > 6) return n.in(1);
  const bool broadcast = n.attr_int("broadcast", 0) != 0;
  const std::int64_t axis = n.attr_int("axis", n.rank(0) - n.rank(1));
  n.ignore({"consumed_inputs"});
  if (!broadcast) {
    if (n.shape(0) == n.shape(1)) return n.in(1);
    return n.bad("operands {} and {} without broadcast=1", ir::to_string(n.shape(0)), ir::to_string(n.shape(1)));
  }
  Shape shape = n.shape(1);
  if (axis < 0 || axis + n.rank(1) > n.rank(0)) return n.bad("axis {} for operands of rank {} and {}", axis, n.rank(0), n.rank(1));
  shape.insert(shape.end(), static_cast<std::size_t>(n.rank(0) - n.rank(1) - axis), 1);
  return n.reshape(n.in(1), shape);
}

template <Op op>
Status binary(NodeContext& n) {
  OCTAVO_TRY(const ValueId b, second(n));
  return n.result(n.emit(op, {n.in(0), b}));
}

/// Up to opset 6 a slope of several entries has one a channel.
Status prelu(NodeContext& n) {
  ValueId slope = n.in(1);
  if (n.opset() < 7) {
    n.ignore({"consumed_inputs"});
    if (n.rank(1) == 1 && n.shape(1)[0] != 1 && n.rank(0) > 2) {
      Shape along(static_cast<std::size_t>(n.rank(0)) - 1, 1);
      along[0] = n.shape(1)[0];
      OCTAVO_TRY(slope, n.reshape(slope, along));
    }
  }
  return n.result(n.emit(Op::prelu, {n.in(0), slope}));
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
  OCTAVO_TRY(ValueId exponent, second(n));
  OCTAVO_TRY(exponent, n.cast(exponent, n.type(0).dtype));
  return n.result(n.emit(Op::pow, {n.in(0), exponent}));
}

Status mod(NodeContext& n) {
  const bool fmod = n.attr_int("fmod", 0) != 0;
  if (!fmod && n.opset() < 28 && ir::is_float(n.type(0).dtype))
    return n.bad("fmod=0 is for integers up to opset 27, the operand is {}", ir::to_string(n.type(0)));
  return n.result(n.emit(Op::mod, {n.in(0), n.in(1)}, {{"fmod", std::int64_t{fmod}}}));
}

/// a xor b = (a or b) and not (a and b).
Status logical_xor(NodeContext& n) {
  OCTAVO_TRY(const ValueId b, second(n));
  OCTAVO_TRY(const ValueId either, n.emit(Op::logical_or, {n.in(0), b}));
  OCTAVO_TRY(ValueId both, n.emit(Op::logical_and, {n.in(0), b}));
  OCTAVO_TRY(both, n.emit(Op::logical_not, {both}));
  return n.result(n.emit(Op::logical_and, {either, both}));
}

Status where(NodeContext& n) {
  n.declare(0, n.declared(1));
  return n.result(n.emit(Op::where, {n.in(0), n.in(1), n.in(2)}));
}

constexpr std::array kElementwiseRows{
    OpRow{"Add", "", 1, 0, 2, 2, binary<Op::add>},
    OpRow{"Sub", "", 1, 0, 2, 2, binary<Op::sub>},
    OpRow{"Mul", "", 1, 0, 2, 2, binary<Op::mul>},
    OpRow{"Div", "", 1, 0, 2, 2, binary<Op::div>},
    OpRow{"Pow", "", 1, 0, 2, 2, pow},
    OpRow{"Mod", "", 10, 0, 2, 2, mod},
    OpRow{"Max", "", 1, 0, 1, -1, fold_left<Op::max>},
    OpRow{"Min", "", 1, 0, 1, -1, fold_left<Op::min>},
    OpRow{"Sum", "", 1, 0, 1, -1, fold_left<Op::add>},
    OpRow{"Mean", "", 1, 0, 1, -1, mean},
    OpRow{"PRelu", "", 1, 0, 2, 2, prelu},
    OpRow{"Equal", "", 1, 0, 2, 2, binary<Op::equal>},
    OpRow{"Less", "", 1, 0, 2, 2, binary<Op::less>},
    OpRow{"LessOrEqual", "", 12, 0, 2, 2, binary<Op::less_equal>},
    OpRow{"Greater", "", 1, 0, 2, 2, binary<Op::greater>},
    OpRow{"GreaterOrEqual", "", 12, 0, 2, 2, binary<Op::greater_equal>},
    OpRow{"And", "", 1, 0, 2, 2, binary<Op::logical_and>},
    OpRow{"Or", "", 1, 0, 2, 2, binary<Op::logical_or>},
    OpRow{"Xor", "", 1, 0, 2, 2, logical_xor},
    OpRow{"Where", "", 9, 0, 3, 3, where},
};

}  // namespace

Family elementwise_ops() {
  return kElementwiseRows;
}

}  // namespace octavo::onnx
