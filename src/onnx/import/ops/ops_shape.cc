// Constants and what is known from static shapes: Constant, Shape, Size, ConstantOfShape, Range, NonZero, Cast.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/half.h"
#include "onnx/import/importer.h"
#include "onnx/import/registry.h"
#include "onnx/model/held.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

Status give(NodeContext& n, Tensor t) {
  n.set(0, n.add_constant(std::move(t)));
  return {};
}

Status constant(NodeContext& n) {
  if (const pb::TensorProto* proto = n.attr_tensor("value")) {
    DType type{};
    OCTAVO_TRY(Tensor t, n.importer().tensor(*proto, type));
    n.declare(0, type);
    return give(n, std::move(t));
  }
  if (n.has_attr("value_float")) return give(n, Tensor::scalar(n.attr_float("value_float", 0)));
  if (n.has_attr("value_int")) return give(n, Tensor::scalar(n.attr_int("value_int", 0)));
  if (n.has_attr("value_floats")) {
    const std::vector<float> v = n.attr_floats("value_floats");
    return give(n, Tensor::of<float>({static_cast<std::int64_t>(v.size())}, v));
  }
  if (n.has_attr("value_ints")) {
    const Ints v = n.attr_ints("value_ints");
    return give(n, Tensor::of<std::int64_t>({static_cast<std::int64_t>(v.size())}, v));
  }
  OCTAVO_CHECK(n.finish_attributes());
  return n.bad("it has no value");
}

Status shape(NodeContext& n) {
  const auto rank = n.rank(0);
  const auto clamp = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 && v >= -rank ? v + rank : v, 0, rank); };
  const std::int64_t start = clamp(n.attr_int("start", 0));
  const std::int64_t end = std::max(start, clamp(n.attr_int("end", rank)));
  if (sized_operands(n)) return sized_shape(n, static_cast<std::size_t>(start), static_cast<std::size_t>(end));
  const Ints dims(n.shape(0).begin() + start, n.shape(0).begin() + end);
  return give(n, Tensor::of<std::int64_t>({end - start}, dims));
}

Status size(NodeContext& n) {
  if (sized_operands(n)) return sized_size(n);
  return give(n, Tensor::scalar(ir::count(n.shape(0))));
}

Status constant_of_shape(NodeContext& n) {
  Tensor value = Tensor::scalar(0.0F);
  n.declare(0, DType::f32);
  if (const pb::TensorProto* proto = n.attr_tensor("value")) {
    DType type{};
    OCTAVO_TRY(value, n.importer().tensor(*proto, type));
    n.declare(0, type);
    if (value.size() != 1) return n.bad("the value is {}, needs one element", ir::to_string(value.type()));
  }
  if (sized_by_data(n, {0})) return sized_constant_of_shape(n, n.add_constant(value.reshaped({1})));
  OCTAVO_TRY(const Shape dims, n.constant_ints(0, "the shape"));
  OCTAVO_CHECK(checked_count(dims, n.where()));
  const ValueId one = n.add_constant(value.reshaped(Shape(dims.size(), 1)));
  return n.result(n.emit(Op::expand, {one}, {{"shape", dims}}));
}

template <class T>
Status range_of(NodeContext& n) {
  constexpr double kMost = 1e8;
  const T first = n.constant(0)->data<T>()[0], limit = n.constant(1)->data<T>()[0], step = n.constant(2)->data<T>()[0];
  using Wide = std::conditional_t<std::is_integral_v<T>, __int128, double>;  // the difference of two numbers of 64 bits
  const Wide apart = Wide{limit} - Wide{first}, each = Wide{step};
  double count = 0;
  if constexpr (std::is_integral_v<T>) {
    if ((apart > 0) == (each > 0)) count = static_cast<double>((apart + each - (each > 0 ? 1 : -1)) / each);
  } else {
    count = std::max(0.0, std::ceil(apart / each));
  }
  if (!(count <= kMost)) return n.bad("start {}, limit {}, delta {} give {} elements", first, limit, step, count);
  Tensor out(ir::DTypeOf<T>::value, {static_cast<std::int64_t>(count)});
  auto to = out.mutable_data<T>();
  T value = first;
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = value;
    if (i + 1 < to.size()) value = static_cast<T>(value + step);  // what is behind the last may not fit the type
  }
  return give(n, std::move(out));
}

Status range(NodeContext& n) {
  if (sized_by_data(n, {0, 1, 2})) return sized_range(n);
  for (const std::size_t i : {0U, 1U, 2U}) {
    OCTAVO_TRY(const double v, n.constant_scalar(i, i == 0 ? "start" : i == 1 ? "limit" : "delta"));
    if (n.type(i).dtype != n.type(0).dtype) return n.bad("start, limit and delta differ in type");
    if (i == 2 && v == 0) return n.bad("delta is 0");
  }
  switch (n.type(0).dtype) {
    case DType::f32: return range_of<float>(n);
    case DType::s64: return range_of<std::int64_t>(n);
    case DType::s32: return range_of<std::int32_t>(n);
    case DType::s16: return range_of<std::int16_t>(n);
    default: return n.bad("Range of {} is not defined", ir::name_of(n.type(0).dtype));
  }
}

/// Constants are rounded to the narrow type; values at run time stay f32, which is more exact.
Status cast_to(NodeContext& n, DType to) {
  const DType from = n.declared(0);
  n.declare(0, to);
  const std::int64_t saturate = n.attr_int("saturate", 1);
  const std::string round_mode = n.attr_text("round_mode", "up");
  if (is_small(to) && from != to) {  // there and back, so that the value is one of the type's
    Attrs attrs{{"to", std::string(ir::name_of(to))}};
    if (ir::is_small_float(to)) attrs["saturate"] = saturate, attrs["round_mode"] = round_mode;
    OCTAVO_TRY(const ValueId v, n.emit(Op::cast, {n.in(0)}, std::move(attrs)));
    return n.result(n.cast(v, held(to)));
  }
  OCTAVO_TRY(const ValueId v, n.cast(n.in(0), held(to)));
  const bool narrow = (to == DType::f16 || to == DType::bf16) && from != to;
  if (!narrow) return n.result(v);
  if (!n.graph().is_constant(v)) {
    n.note(fmt::format("the cast to {} is left out: intermediate values stay f32", ir::name_of(to)));
    return n.result(v);
  }
  Tensor rounded = n.graph().payload(v).clone();
  for (float& x : rounded.mutable_data<float>()) x = to == DType::f16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x));
  return give(n, std::move(rounded));
}

Status cast(NodeContext& n) {
  const auto code = n.attr_int("to", 0);
  const auto to = code >= 0 && code < 1000 ? dtype_of(static_cast<std::int32_t>(code)) : std::nullopt;
  if (!to)
    return n.unsupported("a cast to {}; {}", onnx_type_name(static_cast<std::int32_t>(code)),
                         type_advice(static_cast<std::int32_t>(code)));
  return cast_to(n, *to);
}

Status cast_like(NodeContext& n) {
  return cast_to(n, n.declared(1));
}

constexpr std::array kShapeRows{
    OpRow{"Constant", "", 1, 0, 0, 0, constant}, OpRow{"Shape", "", 1, 0, 1, 1, shape},
    OpRow{"Size", "", 1, 0, 1, 1, size},         OpRow{"ConstantOfShape", "", 9, 0, 1, 1, constant_of_shape},
    OpRow{"Range", "", 11, 0, 3, 3, range},      OpRow{"NonZero", "", 9, 0, 1, 1, non_zero},
    OpRow{"Cast", "", 6, 0, 1, 1, cast},         OpRow{"CastLike", "", 15, 0, 2, 2, cast_like},
};

}  // namespace

Family shape_ops() {
  return kShapeRows;
}

}  // namespace octavo::onnx
