// Writes one ONNX operator as several IR operators. Each call emits a node. After the first error nothing is emitted any more, and
// `finish` returns that error.
//
//   Compose c(n);
//   const ValueId norm = c.sqrt(c.reduce(Op::reduce_mean, c.mul(x, x), {axis}, true));
//   return c.finish(c.div(x, norm));
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/import/node_context.h"

namespace octavo::onnx {

class Compose {
 public:
  explicit Compose(NodeContext& n) : n_(n) {}

  [[nodiscard]] bool ok() const { return !error_; }
  [[nodiscard]] Shape shape(ValueId v) const { return v == ir::kNone ? Shape{} : n_.shape_of(v); }
  [[nodiscard]] DType dtype(ValueId v) const { return v == ir::kNone ? DType::f32 : n_.type_of(v).dtype; }

  /// Any operator with one result (of several: the first).
  ValueId op(Op op, std::vector<ValueId> inputs, Attrs attrs = {});
  std::vector<ValueId> many(Op op, std::vector<ValueId> inputs, std::size_t results, Attrs attrs = {});

  ValueId constant(Tensor t) { return n_.add_constant(std::move(t)); }
  /// One number in the element type of `like`.
  ValueId number(double value, ValueId like);
  /// False, and an error from here on: more elements than a constant that import makes may have.
  bool fits(const Shape& shape);
  ValueId integers(Shape shape, const Ints& values) { return constant(Tensor::of<std::int64_t>(std::move(shape), values)); }
  /// 0 1 2 ... along dimension `axis` of `rank`, the others 1.
  ValueId counting(std::int64_t count, std::int64_t axis, std::int64_t rank);
  ValueId filled(DType type, Shape shape, double value);
  ValueId mask(Shape shape, const std::vector<bool>& values);

  ValueId add(ValueId a, ValueId b) { return op(Op::add, {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op(Op::sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op(Op::mul, {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op(Op::div, {a, b}); }
  ValueId sqrt(ValueId v) { return op(Op::sqrt, {v}); }
  ValueId exp(ValueId v) { return op(Op::exp, {v}); }
  ValueId log(ValueId v) { return op(Op::log, {v}); }
  ValueId neg(ValueId v) { return op(Op::neg, {v}); }
  ValueId matmul(ValueId a, ValueId b) { return op(Op::matmul, {a, b}); }
  ValueId equal(ValueId a, ValueId b) { return op(Op::equal, {a, b}); }
  ValueId less(ValueId a, ValueId b) { return op(Op::less, {a, b}); }
  ValueId both(ValueId a, ValueId b) { return op(Op::logical_and, {a, b}); }
  ValueId either(ValueId a, ValueId b) { return op(Op::logical_or, {a, b}); }
  ValueId negated(ValueId v) { return op(Op::logical_not, {v}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return op(Op::where, {condition, a, b}); }
  ValueId softmax(ValueId v, std::int64_t axis) { return op(Op::softmax, {v}, {{"axis", axis}}); }
  ValueId reduce(Op kind, ValueId v, Ints axes, bool keep) {
    return axes.empty() ? v : op(kind, {v}, {{"axes", std::move(axes)}, {"keepdims", std::int64_t{keep}}});
  }
  ValueId cast(ValueId v, DType to);
  ValueId reshape(ValueId v, Shape shape);
  ValueId transpose(ValueId v, Ints perm);
  ValueId expand(ValueId v, Shape shape);
  ValueId concat(std::vector<ValueId> parts, std::int64_t axis);
  /// [begin, end) along one axis, with a step (negative: from begin down to end + 1).
  ValueId slice(ValueId v, std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
  ValueId gather(ValueId v, ValueId indices, std::int64_t axis) { return op(Op::gather, {v, indices}, {{"axis", axis}}); }
  /// Each element along `axis` `times` times in a row.
  ValueId repeat(ValueId v, std::int64_t axis, std::int64_t times);
  /// Negative indices count from the end of `extent`; s64.
  ValueId wrapped(ValueId indices, std::int64_t extent);

  void fail(Error e) {
    if (!error_) error_ = std::move(e);
  }
  [[nodiscard]] Status status() const { return error_ ? Status(tl::unexpected<Error>(*error_)) : Status(); }
  [[nodiscard]] Result<ValueId> value(ValueId v) const { return error_ ? Result<ValueId>(tl::unexpected<Error>(*error_)) : v; }
  /// Sets result 0.
  [[nodiscard]] Status finish(ValueId v) { return n_.result(value(v)); }

 private:
  NodeContext& n_;
  std::optional<Error> error_;
};

}  // namespace octavo::onnx
