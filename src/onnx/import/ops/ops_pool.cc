// MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"
#include "onnx/import/window.h"

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
  Attrs attrs{{"kernel", w.kernel}, {"strides", w.strides}, {"dilations", w.dilations}, {"pads", with_ceil(w)}};
  const std::int64_t column_major = n.attr_int("storage_order", 0);
  if (n.wants(0) || !n.wants(1)) {
    OCTAVO_CHECK(n.result(n.emit(Op::max_pool, {n.in(0)}, attrs)));
  }
  if (!n.wants(1)) return {};
  attrs["column_major"] = column_major;
  OCTAVO_TRY(const ValueId indices, n.emit(Op::max_pool_index, {n.in(0)}, attrs));
  n.set(1, indices);
  return {};
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

/// |x|^p, or the p-th root of v.
ValueId power(Compose& c, ValueId x, std::int64_t p) {
  if (p == 1) return c.op(Op::abs, {x});
  if (p == 2) return c.mul(x, x);
  return c.op(Op::pow, {c.op(Op::abs, {x}), c.number(static_cast<double>(p), x)});
}
ValueId root(Compose& c, ValueId v, std::int64_t p) {
  if (p == 1) return v;
  if (p == 2) return c.sqrt(v);
  return c.op(Op::pow, {v, c.number(1.0 / static_cast<double>(p), v)});
}

/// (sum of |x|^p over the window)^(1/p); the sum is the average, pads counted, times the window's size.
Status lp_pool(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  const std::int64_t p = n.attr_int("p", 2);
  if (p < 1) return n.bad("p is {}, must be 1 or more", p);
  OCTAVO_TRY(const Window w, read_window(n, Shape(n.shape(0).begin() + 2, n.shape(0).end()), {}, true));
  const ValueId average = c.op(Op::avg_pool, {power(c, n.in(0), p)},
                               {{"kernel", w.kernel},
                                {"strides", w.strides},
                                {"dilations", w.dilations},
                                {"pads", with_ceil(w)},
                                {"count_include_pad", std::int64_t{1}}});
  return c.finish(root(c, c.mul(average, c.number(static_cast<double>(ir::count(w.kernel)), average)), p));
}

Status global_lp_pool(NodeContext& n) {
  Compose c(n);
  const std::int64_t p = n.attr_int("p", 2);
  if (p < 1) return n.bad("p is {}, must be 1 or more", p);
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  Ints axes;
  for (std::int64_t d = 2; d < n.rank(0); ++d) axes.push_back(d);
  return c.finish(root(c, c.reduce(Op::reduce_sum, power(c, n.in(0), p), axes, true), p));
}

constexpr std::array kPoolRows{
    OpRow{"LpPool", "", 2, 0, 1, 1, lp_pool},
    OpRow{"GlobalLpPool", "", 2, 0, 1, 1, global_lp_pool},
    OpRow{"MaxPool", "", 1, 0, 1, 1, max_pool},
    OpRow{"AveragePool", "", 1, 0, 1, 1, average_pool},
    OpRow{"GlobalMaxPool", "", 1, 0, 1, 1, global_max_pool},
    OpRow{"GlobalAveragePool", "", 1, 0, 1, 1, global_average_pool},
};

}  // namespace

Family pool_ops() {
  return kPoolRows;
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
