// MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool.
#include <algorithm>
#include <array>

#include "onnx/lower.h"
#include "onnx/registry.h"
#include "onnx/window.h"

namespace octavo::onnx {
namespace {

bool any(const Ints& list) {
  return std::any_of(list.begin(), list.end(), [](std::int64_t v) { return v != 0; });
}

Ints with_ceil(const Window& w) {
  Ints pads = w.pads;
  for (std::size_t k = 0; k < w.spatial(); ++k) pads[k + w.spatial()] += w.ceil_pads[k];
  return pads;
}

Status max_pool(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  const Shape extents(n.shape(0).begin() + 2, n.shape(0).end());
  OCTAVO_TRY(const Window w, read_window(n, extents, {}, true));
  n.ignore({"storage_order"});  // orders the Indices output, which is not covered
  return n.result(n.emit(Op::max_pool, {n.in(0)},
                         {{"kernel", w.kernel}, {"strides", w.strides}, {"dilations", w.dilations}, {"pads", with_ceil(w)}}));
}

Result<ValueId> global_pool(NodeContext& n, Op op, ValueId x) {
  const Shape& data = n.shape_of(x);
  if (data.size() < 3 || data.size() > 8) return n.bad("data {}: needs rank 3 to 8", ir::to_string(data));
  const Ints kernel(data.begin() + 2, data.end());
  const Ints ones(kernel.size(), 1), zeros(2 * kernel.size(), 0);
  Attrs attrs{{"kernel", kernel}, {"strides", ones}, {"dilations", ones}, {"pads", zeros}};
  if (op == Op::avg_pool) attrs["count_include_pad"] = std::int64_t{0};
  return n.emit(op, {x}, std::move(attrs));
}

Status average_pool(NodeContext& n) {
  return n.result(lower_average_pool(n, n.in(0)));
}
Status global_max_pool(NodeContext& n) {
  return n.result(global_pool(n, Op::max_pool, n.in(0)));
}
Status global_average_pool(NodeContext& n) {
  return n.result(lower_global_average(n, n.in(0)));
}

constexpr std::array kRows{
    OpRow{"MaxPool", "", 1, 0, 1, 1, max_pool},
    OpRow{"AveragePool", "", 1, 0, 1, 1, average_pool},
    OpRow{"GlobalMaxPool", "", 1, 0, 1, 1, global_max_pool},
    OpRow{"GlobalAveragePool", "", 1, 0, 1, 1, global_average_pool},
};

}  // namespace

Family pool_ops() {
  return kRows;
}

Result<ValueId> lower_global_average(NodeContext& n, ValueId x) {
  return global_pool(n, Op::avg_pool, x);
}

Result<ValueId> lower_average_pool(NodeContext& n, ValueId x) {
  const Shape data = n.shape_of(x);
  if (data.size() < 3 || data.size() > 8) return n.bad("data {}: needs rank 3 to 8", ir::to_string(data));
  OCTAVO_TRY(Window w, read_window(n, Shape(data.begin() + 2, data.end()), {}, true));
  bool include_pad = n.attr_int("count_include_pad", 0) != 0;
  if (include_pad && any(w.ceil_pads)) {
    // The file's own padding counts, what ceil_mode adds does not: pad with zeros first, then average without counting.
    Ints pads(2 * data.size(), 0);
    for (std::size_t k = 0; k < w.spatial(); ++k) {
      pads[2 + k] = w.pads[k];
      pads[data.size() + 2 + k] = w.pads[k + w.spatial()];
    }
    OCTAVO_TRY(x, n.emit(Op::pad, {x}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}}));
    w.pads.assign(2 * w.spatial(), 0);
    include_pad = false;
  }
  return n.emit(Op::avg_pool, {x},
                {{"kernel", w.kernel},
                 {"strides", w.strides},
                 {"dilations", w.dilations},
                 {"pads", with_ceil(w)},
                 {"count_include_pad", std::int64_t{include_pad}}});
}

}  // namespace octavo::onnx
