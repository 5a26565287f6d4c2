#include "onnx/import/coded.h"

#include <cstring>

namespace octavo::onnx {
namespace {

using ir::Shape;
using ir::Tensor;

Tensor transposed(const Tensor& t, const std::vector<std::int64_t>& perm, const Shape& shape) {
  Tensor out(t.dtype(), shape);
  const Shape from = ir::dense_strides(t.shape());
  const std::size_t bytes = ir::size_of(t.dtype());
  const std::byte* source = t.bytes().data();
  std::byte* target = out.mutable_bytes().data();
  Shape index(shape.size(), 0);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * from[static_cast<std::size_t>(perm[d])];
    std::memcpy(target + static_cast<std::size_t>(i) * bytes, source + static_cast<std::size_t>(at) * bytes, bytes);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

/// Where dimension `axis` of `from` is in `to`, if it is there as a whole: the same extent with the same number of elements before
/// it.
int moved_axis(const Shape& from, const Shape& to, int axis) {
  std::int64_t before = 1;
  for (int i = 0; i < axis; ++i) before *= from[static_cast<std::size_t>(i)];
  std::int64_t here = 1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (here == before && to[i] == from[static_cast<std::size_t>(axis)]) return static_cast<int>(i);
    here *= to[i];
  }
  return -1;
}

}  // namespace

bool is_plain_constant(const ir::Graph& g, ir::ValueId v) {
  return g.is_constant(v) && !g.producer(v).quantizer;
}
bool is_coded_constant(const ir::Graph& g, ir::ValueId v) {
  return g.is_constant(v) && g.producer(v).quantizer.has_value();
}

std::optional<ir::ValueId> move_coded(ir::Graph& g, const ir::Node& n, const ir::TensorType& result) {
  if ((n.op != ir::Op::transpose && n.op != ir::Op::reshape) || !is_coded_constant(g, n.inputs[0])) return std::nullopt;
  const ir::Node& source = g.producer(n.inputs[0]);
  ir::Quantizer q = *source.quantizer;
  Tensor codes;
  if (n.op == ir::Op::transpose) {
    const auto perm = ir::get_ints(n.attrs, "perm");
    codes = transposed(source.payload, perm, result.shape);
    for (std::size_t d = 0; d < perm.size() && !q.per_tensor(); ++d) {
      if (perm[d] == source.quantizer->axis) q.axis = static_cast<int>(d);
    }
  } else {
    if (!q.per_tensor()) {
      q.axis = moved_axis(source.payload.shape(), result.shape, q.axis);
      if (q.axis < 0) return std::nullopt;
    }
    codes = source.payload.reshaped(result.shape);
  }
  auto origin = source.origin;
  origin.insert(n.origin.begin(), n.origin.end());
  const ir::ValueId v = g.add_constant(std::move(codes), "", std::move(q));
  g.node(g.value(v).producer).origin = std::move(origin);
  return v;
}

}  // namespace octavo::onnx
