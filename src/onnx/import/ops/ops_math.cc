// Functions of one or two operands that have no kernels of their own: trigonometry, bits, classification, Hardmax, OneHot.
#include <array>
#include <limits>

#include "base/whole_number.h"
#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"
#include "onnx/model/held.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The operator's name in lower case is the function's.
Status math(NodeContext& n) {
  std::string function = n.proto().op_type();
  for (char& ch : function) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  return n.result(n.emit(Op::math, {n.in(0)}, {{"function", function}}));
}

/// BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot.
Status bitwise(NodeContext& n) {
  std::string function = n.proto().op_type().substr(std::string_view("Bitwise").size());
  for (char& ch : function) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  std::vector<ValueId> operands{n.in(0)};
  if (n.operands() > 1) operands.push_back(n.in(1));
  return n.result(n.emit(Op::bitwise, std::move(operands), {{"function", function}}));
}

Status bit_shift(NodeContext& n) {
  const std::string direction = n.attr_text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return n.bad("direction \"{}\" is not LEFT or RIGHT", direction);
  return n.result(n.emit(Op::bitwise, {n.in(0), n.in(1)}, {{"function", std::string(direction == "LEFT" ? "left" : "right")}}));
}

/// The bits of the file's type, so a value that the IR holds wider goes back to that type first.
Status bit_cast(NodeContext& n) {
  Compose c(n);
  const auto code = static_cast<std::int32_t>(n.attr_int("to", 0));
  const auto to = dtype_of(code);
  if (!to) return n.unsupported("a cast to {}; {}", onnx_type_name(code), type_advice(code));
  const DType from = n.declared(0);
  for (const DType t : {*to, from}) {
    if (is_small(t) && ir::small_bits(t) < 8) return n.unsupported("BitCast of {}: elements that share a byte", ir::name_of(t));
  }
  if (ir::size_of(*to) != ir::size_of(from)) return n.bad("{} and {} differ in size", ir::name_of(from), ir::name_of(*to));
  n.declare(0, *to);
  const ValueId narrow = c.cast(n.in(0), from);
  ValueId y = c.op(Op::bit_cast, {narrow}, {{"to", std::string(ir::name_of(*to))}});
  y = c.cast(y, held(*to));
  return c.finish(y);
}

Status is_nan(NodeContext& n) {
  Compose c(n);
  return c.finish(c.negated(c.equal(n.in(0), n.in(0))));
}

Status is_inf(NodeContext& n) {
  Compose c(n);
  const bool positive = n.attr_int("detect_positive", 1) != 0, negative = n.attr_int("detect_negative", 1) != 0;
  const ValueId above = c.equal(n.in(0), c.number(kInf, n.in(0))), below = c.equal(n.in(0), c.number(-kInf, n.in(0)));
  if (positive && negative) return c.finish(c.either(above, below));
  if (positive || negative) return c.finish(positive ? above : below);
  return c.finish(c.both(above, below));  // never
}

/// x + bias below -lambd, x - bias above lambd, else 0.
Status shrink(NodeContext& n) {
  Compose c(n);
  const ValueId x = n.in(0);
  const double bias = static_cast<double>(n.attr_float("bias", 0.0F)), lambd = static_cast<double>(n.attr_float("lambd", 0.5F));
  if (!ir::is_float(c.dtype(x))) return n.unsupported("the operand is {}; cast it to float around Shrink", ir::name_of(c.dtype(x)));
  const ValueId b = c.number(bias, x), zero = c.number(0, x);
  const ValueId low = c.less(x, c.number(-lambd, x)), high = c.less(c.number(lambd, x), x);
  return c.finish(c.where(low, c.add(x, b), c.where(high, c.sub(x, b), zero)));
}

/// a * sigmoid(alpha * a) * b
Status swiglu(NodeContext& n) {
  Compose c(n);
  const float alpha = n.attr_float("alpha", 1.0F);
  const ValueId a = n.in(0);
  if (c.shape(a) != c.shape(n.in(1)))
    return n.bad("A is {} and B {}; they must agree", ir::to_string(c.shape(a)), ir::to_string(c.shape(n.in(1))));
  const ValueId inner = alpha == 1.0F ? a : c.mul(a, c.number(static_cast<double>(alpha), a));
  return c.finish(c.mul(c.mul(a, c.op(Op::sigmoid, {inner})), n.in(1)));
}

/// 1 at the first maximum along the axis, 0 elsewhere; before opset 13 over all dimensions from `axis` on.
Status hardmax(NodeContext& n) {
  Compose c(n);
  const bool flattens = n.opset() < 13;
  const Shape shape = n.shape(0);
  OCTAVO_TRY(std::int64_t axis, n.axis(n.attr_int("axis", flattens ? 1 : -1), n.rank(0)));
  ValueId x = n.in(0);
  if (flattens) {
    const std::int64_t rows = ir::count(Shape(shape.begin(), shape.begin() + axis));
    x = c.reshape(x, {rows, rows == 0 ? 0 : ir::count(shape) / rows});
    axis = 1;
  }
  const ValueId best = c.op(Op::arg_max, {x}, {{"axis", axis}, {"keepdims", std::int64_t{1}}});
  OCTAVO_CHECK(c.status());
  const auto rank = static_cast<std::int64_t>(c.shape(x).size());
  const ValueId hit = c.equal(c.counting(c.shape(x)[static_cast<std::size_t>(axis)], axis, rank), best);
  return c.finish(c.reshape(c.where(hit, c.number(1, x), c.number(0, x)), shape));
}

/// indices, depth, values [off, on]
Status one_hot(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const double given, n.constant_scalar(1, "the depth"));  // of any type of numbers
  const std::int64_t depth = whole_number(given);
  if (depth < 0 || depth > (std::int64_t{1} << 31)) return n.bad("depth {} is impossible", depth);
  if (n.shape(2) != Shape{2}) return n.bad("values are {}, need [2]", ir::to_string(n.shape(2)));
  const std::int64_t rank = n.rank(0) + 1;
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), rank));
  n.declare(0, n.declared(2));
  Shape spread = n.shape(0);
  spread.insert(spread.begin() + axis, 1);
  const ValueId index = c.reshape(c.wrapped(n.in(0), depth), spread);
  const ValueId hit = c.equal(c.counting(depth, axis, rank), index);
  const ValueId off = c.reshape(c.slice(n.in(2), 0, 0, 1), {}), on = c.reshape(c.slice(n.in(2), 0, 1, 2), {});
  return c.finish(c.where(hit, on, off));
}

constexpr std::array kMathRows{
    OpRow{"Tan", "", 7, 0, 1, 1, math},
    OpRow{"Asin", "", 7, 0, 1, 1, math},
    OpRow{"Acos", "", 7, 0, 1, 1, math},
    OpRow{"Atan", "", 7, 0, 1, 1, math},
    OpRow{"Sinh", "", 9, 0, 1, 1, math},
    OpRow{"Cosh", "", 9, 0, 1, 1, math},
    OpRow{"Asinh", "", 9, 0, 1, 1, math},
    OpRow{"Acosh", "", 9, 0, 1, 1, math},
    OpRow{"Atanh", "", 9, 0, 1, 1, math},
    OpRow{"BitwiseAnd", "", 18, 0, 2, 2, bitwise},
    OpRow{"BitwiseOr", "", 18, 0, 2, 2, bitwise},
    OpRow{"BitwiseXor", "", 18, 0, 2, 2, bitwise},
    OpRow{"BitwiseNot", "", 18, 0, 1, 1, bitwise},
    OpRow{"BitShift", "", 11, 0, 2, 2, bit_shift},
    OpRow{"BitCast", "", 26, 0, 1, 1, bit_cast},
    OpRow{"IsNaN", "", 9, 0, 1, 1, is_nan},
    OpRow{"IsInf", "", 10, 0, 1, 1, is_inf},
    OpRow{"Shrink", "", 9, 0, 1, 1, shrink},
    OpRow{"SwiGLU", "", 28, 0, 2, 2, swiglu},
    OpRow{"Hardmax", "", 1, 0, 1, 1, hardmax},
    OpRow{"OneHot", "", 9, 0, 3, 3, one_hot},
};

}  // namespace

Family math_ops() {
  return kMathRows;
}

}  // namespace octavo::onnx
