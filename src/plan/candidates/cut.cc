#include "plan/candidates/cut.h"

#include <cstring>
#include <optional>

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

Tensor cut(const Tensor& t, std::size_t axis, Range range) {
  ir::Shape dims = t.shape();
  dims[axis] = range.second - range.first;
  Tensor out(t.dtype(), dims);
  std::int64_t outer = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= dims[d];
  const std::int64_t row = outer == 0 ? 0 : static_cast<std::int64_t>(t.bytes().size()) / outer, step = row / t.shape()[axis];
  for (std::int64_t o = 0; o < outer; ++o) {
    std::memcpy(out.mutable_bytes().data() + o * step * dims[axis], t.bytes().data() + o * row + range.first * step,
                static_cast<std::size_t>(step * dims[axis]));
  }
  return out;
}

}  // namespace

std::optional<ir::Quantizer> cut(std::optional<ir::Quantizer> q, std::size_t axis, Range range) {
  if (!q || q->per_tensor() || q->axis != static_cast<std::int64_t>(axis)) return q;
  q->scale = {q->scale.begin() + range.first, q->scale.begin() + range.second};
  q->zero_point = {q->zero_point.begin() + range.first, q->zero_point.begin() + range.second};
  return q;
}

ValueId cut_constant(Graph& g, ValueId v, std::size_t axis, Range range) {
  if (v == ir::kNone) return v;
  const Node n = g.producer(v);
  const std::string name = g.value(v).name;
  return g.add_constant(cut(n.payload, axis, range), name, cut(n.quantizer, axis, range));
}

}  // namespace octavo::plan
