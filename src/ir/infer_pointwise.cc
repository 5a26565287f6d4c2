// Types of element-wise operators, and of the quantization operators.
#include "ir/infer.h"

namespace octavo::ir::detail {
namespace {

Result<Types> unary(const Inference& at) {
  const DType t = at.in(0).dtype;
  switch (at.op()) {
    case Op::logical_not: OCTAVO_CHECK(at.need(t == DType::boolean, "the operand must be bool")); break;
    case Op::cast: {
      OCTAVO_TRY(const std::string to, at.text("to", ""));
      DType result{};
      if (!parse_dtype(to, result)) return at.error("attribute to is \"{}\", not the name of a type", to);
      return Types{{result, at.shape(0)}};
    }
    case Op::relu:
    case Op::clip:
    case Op::abs:
    case Op::neg:
    case Op::sign: OCTAVO_CHECK(at.need(t != DType::boolean, "the operand must be a number")); break;
    default: OCTAVO_CHECK(at.need_float(0)); break;
  }
  for (const std::string_view key : {"min", "max", "alpha", "beta", "gamma"}) OCTAVO_CHECK(at.number(key));
  return Types{at.in(0)};
}

Result<Types> affine(const Inference& at) {
  OCTAVO_CHECK(at.need_float(0));
  OCTAVO_CHECK(at.need(at.rank(0) >= 2, "the data needs a channel axis 1"));
  for (const std::size_t i : {1U, 2U}) {
    OCTAVO_CHECK(at.need_float(i));
    if (at.shape(i) != Shape{at.shape(0)[1]}) return at.error("operand {} must be [{}], one entry a channel", i, at.shape(0)[1]);
  }
  return Types{at.in(0)};
}

Result<Types> several(const Inference& at) {
  const bool choose = at.op() == Op::where;
  const std::size_t a = choose ? 1 : 0;
  const DType t = at.in(a).dtype;
  if (t != at.in(a + 1).dtype) return at.error("operands are {} and {}; cast one first", name_of(t), name_of(at.in(a + 1).dtype));
  OCTAVO_TRY(Shape shape, broadcast(at, at.shape(a), at.shape(a + 1)));
  switch (at.op()) {
    case Op::where: {
      OCTAVO_CHECK(at.need(at.in(0).dtype == DType::boolean, "the condition must be bool"));
      OCTAVO_TRY(shape, broadcast(at, at.shape(0), shape));
      return Types{{t, shape}};
    }
    case Op::logical_and:
    case Op::logical_or:
      OCTAVO_CHECK(at.need(t == DType::boolean, "the operands must be bool"));
      return Types{{DType::boolean, shape}};
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal: return Types{{DType::boolean, shape}};
    case Op::prelu:
      OCTAVO_CHECK(at.need_float(0));
      if (shape != at.shape(0))
        return at.error("the slope {} must broadcast to the data {}", to_string(at.shape(1)), to_string(at.shape(0)));
      return Types{{t, shape}};
    default: OCTAVO_CHECK(at.need(t != DType::boolean, "the operands must be numbers")); return Types{{t, shape}};
  }
}

}  // namespace

Result<Types> infer_pointwise(const Inference& at) {
  if (at.op() == Op::affine) return affine(at);
  return info(at.op()).max_inputs == 1 ? unary(at) : several(at);
}

Result<Types> infer_quantization(const Inference& at) {
  const TensorType& x = at.in(0);
  if (at.op() == Op::dynamic_quantize) {
    OCTAVO_CHECK(at.need_float(0));
    return Types{{DType::u8, x.shape}, {DType::f32, {}}, {DType::u8, {}}};
  }
  if (at.op() == Op::quantize_rt || at.op() == Op::dequantize_rt) {
    OCTAVO_CHECK(at.need_float(1));
    const DType codes = at.op() == Op::quantize_rt ? at.in(2).dtype : x.dtype;
    if (is_float(codes) || codes == DType::boolean || codes != at.in(2).dtype)
      return at.error("codes and zero point must have one integer type");
    if (at.op() == Op::quantize_rt) OCTAVO_CHECK(at.need_float(0));
    if (at.shape(1) != at.shape(2))
      return at.error("scale {} and zero point {} differ in shape", to_string(at.shape(1)), to_string(at.shape(2)));
    if (count(at.shape(1)) != 1) {
      OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), 1));
      const std::int64_t channels = x.shape[static_cast<std::size_t>(axis)];
      if (at.shape(1) != Shape{channels})
        return at.error("scale {} must be one entry, or [{}] for axis {}", to_string(at.shape(1)), channels, axis);
    }
    return Types{{at.op() == Op::quantize_rt ? codes : at.in(1).dtype, x.shape}};
  }
  if (!at.node().quantizer) return at.error("the node has no quantizer");
  const Quantizer& q = *at.node().quantizer;
  OCTAVO_CHECK(check_quantizer(q, x.shape));
  switch (at.op()) {
    case Op::view:
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.need(q.type != DType::s32, "a view needs an 8- or 16-bit quantizer"));
      return Types{x};
    case Op::quantize:
      if (!is_float(x.dtype) && x.dtype != DType::s32)
        return at.error("operand 0 is {}, needs a float type or s32", name_of(x.dtype));
      return Types{{q.type, x.shape}};
    default:
      if (x.dtype != q.type) return at.error("the codes are {}, the quantizer says {}", name_of(x.dtype), name_of(q.type));
      return Types{{DType::f32, x.shape}};  // q.arith says how the product is rounded; the IR holds it in f32, exactly
  }
}

}  // namespace octavo::ir::detail
