#include "onnx/import/compose.h"

#include <numeric>

#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {

ValueId Compose::op(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  return many(op, std::move(inputs), 1, std::move(attrs))[0];
}

std::vector<ValueId> Compose::many(Op op, std::vector<ValueId> inputs, std::size_t results, Attrs attrs) {
  if (!error_) {
    if (auto out = n_.emit_many(op, std::move(inputs), std::move(attrs))) {
      out->resize(std::max(results, out->size()), ir::kNone);
      return *out;
    } else {
      error_ = out.error();
    }
  }
  return std::vector<ValueId>(results, ir::kNone);
}

bool Compose::fits(const Shape& shape) {
  if (error_) return false;
  if (const auto count = checked_constant(shape, n_.where()); !count) error_ = count.error();
  return ok();
}

ValueId Compose::filled(DType type, Shape shape, double value) {
  if (!fits(shape)) return ir::kNone;
  Tensor t(DType::f64, std::move(shape));
  for (double& v : t.mutable_data<double>()) v = value;
  return cast(constant(std::move(t)), type);
}

ValueId Compose::number(double value, ValueId like) {
  return filled(dtype(like), {}, value);
}

ValueId Compose::counting(std::int64_t count, std::int64_t axis, std::int64_t rank) {
  if (!fits({count})) return ir::kNone;
  Ints values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  Shape shape(static_cast<std::size_t>(rank), 1);
  shape[static_cast<std::size_t>(axis)] = count;
  return integers(shape, values);
}

ValueId Compose::mask(Shape shape, const std::vector<bool>& values) {
  if (error_) return ir::kNone;
  Tensor t(DType::boolean, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<std::uint8_t>()[i] = values[i];
  return constant(std::move(t));
}

ValueId Compose::cast(ValueId v, DType to) {
  if (error_ || dtype(v) == to) return v;
  return op(Op::cast, {v}, {{"to", std::string(ir::name_of(to))}});
}

ValueId Compose::reshape(ValueId v, Shape to) {
  if (error_ || shape(v) == to) return v;
  return op(Op::reshape, {v}, {{"shape", std::move(to)}});
}

ValueId Compose::transpose(ValueId v, Ints perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return v;
  return op(Op::transpose, {v}, {{"perm", std::move(perm)}});
}

ValueId Compose::expand(ValueId v, Shape to) {
  if (error_ || shape(v) == to) return v;
  return op(Op::expand, {v}, {{"shape", std::move(to)}});
}

ValueId Compose::concat(std::vector<ValueId> parts, std::int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return op(Op::concat, std::move(parts), {{"axis", axis}});
}

ValueId Compose::slice(ValueId v, std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  if (error_) return v;
  Ints starts(shape(v).size(), 0), ends = shape(v), steps(shape(v).size(), 1);
  const auto a = static_cast<std::size_t>(axis);
  if (begin == 0 && end == ends[a] && step == 1) return v;
  starts[a] = begin;
  ends[a] = end;
  steps[a] = step;
  return op(Op::slice, {v}, {{"starts", starts}, {"ends", ends}, {"steps", steps}});
}

ValueId Compose::repeat(ValueId v, std::int64_t axis, std::int64_t times) {
  if (error_ || times == 1) return v;
  Shape with = shape(v), wide, out = with;
  const auto a = static_cast<std::size_t>(axis);
  with.insert(with.begin() + axis + 1, 1);
  wide = with;
  wide[a + 1] = times;
  out[a] *= times;
  return reshape(expand(reshape(v, with), wide), out);
}

ValueId Compose::wrapped(ValueId indices, std::int64_t extent) {
  const ValueId i = cast(indices, DType::s64);
  const ValueId zero = number(0, i);
  return where(less(i, zero), add(i, number(static_cast<double>(extent), i)), i);
}

}  // namespace octavo::onnx
