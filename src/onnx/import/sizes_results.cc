// Which sizes the results of an IR operator have: Sizes::follow, after it was emitted.
#include <algorithm>

#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

Status Sizes::follow(NodeContext& n, Op op, const std::vector<ValueId>& inputs, const Attrs& attrs, std::vector<ValueId>& results) {
  if (plain_ > 0) return {};
  ir::Graph& g = n.graph();
  if (!open_operand(inputs)) {
    if (numbers_.empty() && counts_.empty()) return {};
    if (results.size() != 1 || g.is_constant(results[0]) || open(results[0])) return {};
    auto numbers = numbers_of(n, op, inputs, results[0]);
    if (!numbers) return {};
    if (std::all_of(numbers->begin(), numbers->end(), [](const Number& x) { return x.known(); })) {
      Tensor t(DType::f64, n.shape_of(results[0]));
      for (std::size_t i = 0; i < numbers->size(); ++i) t.mutable_data<double>()[i] = (*numbers)[i].least;
      const DType type = n.type_of(results[0]).dtype;
      Compose c(n);
      results[0] = c.cast(c.constant(std::move(t)), type);
      return c.status();
    }
    if (!counts_.contains(results[0])) numbers_[results[0]] = std::move(*numbers);
    return {};
  }
  const ValueId x = inputs[0];
  Extents out;
  const auto keeps_rank = [&](std::size_t lost_from) {
    for (const auto& [d, count] : extents(x)) {
      if (d < lost_from) out[d] = count;
    }
  };
  if (ir::has_trait(op, ir::kPointwise) || op == Op::bitwise) {
    const std::size_t most = rank(g, results[0]);
    for (const ValueId v : inputs) {
      if (v == ir::kNone) continue;
      for (const auto& [d, count] : extents(v)) out[most - rank(g, v) + d] = count;
    }
    for (const ValueId r : results) set(r, out);
    return {};
  }
  switch (op) {
    case Op::transpose: {
      const Ints perm = ir::get_ints(attrs, "perm");
      for (std::size_t d = 0; d < perm.size(); ++d) {
        if (open(x, static_cast<std::size_t>(perm[d]))) out[d] = extents(x).at(static_cast<std::size_t>(perm[d]));
      }
      break;
    }
    case Op::expand:
    case Op::tile:
      for (const auto& [d, count] : extents(x)) out[rank(g, results[0]) - rank(g, x) + d] = count;
      break;
    case Op::gather: {
      const auto axis = static_cast<std::size_t>(ir::get_int(attrs, "axis", 0));
      const std::size_t ids = rank(g, inputs[1]);
      for (const auto& [d, count] : extents(x)) {
        if (d != axis) out[d < axis ? d : d - 1 + ids] = count;
      }
      for (const auto& [d, count] : extents(inputs[1])) out[axis + d] = count;
      break;
    }
    case Op::gather_elements: out = extents(inputs[1]); break;
    case Op::gather_nd: {
      const std::size_t ids = rank(g, inputs[1]);
      const auto length = static_cast<std::size_t>(n.shape_of(inputs[1]).back());
      for (const auto& [d, count] : extents(inputs[1])) {
        if (d + 1 < ids) out[d] = count;
      }
      for (const auto& [d, count] : extents(x)) {
        if (d >= length) out[ids - 1 + d - length] = count;
      }
      break;
    }
    case Op::reduce_sum:
    case Op::reduce_prod:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_l2:
    case Op::reduce_mean:
    case Op::arg_max: {
      Ints axes = ir::get_ints(attrs, "axes");
      if (op == Op::arg_max) axes = {ir::get_int(attrs, "axis", 0)};
      const bool keep = ir::get_int(attrs, "keepdims", 1) != 0;
      for (const auto& [d, count] : extents(x)) {
        const auto before =
            std::count_if(axes.begin(), axes.end(), [&, d = d](std::int64_t a) { return a < static_cast<std::int64_t>(d); });
        if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end()) continue;
        out[keep ? d : d - static_cast<std::size_t>(before)] = count;
      }
      break;
    }
    case Op::top_k: {
      const auto axis = static_cast<std::size_t>(ir::get_int(attrs, "axis", static_cast<std::int64_t>(rank(g, x)) - 1));
      out = extents(x);
      out.erase(axis);
      for (const ValueId r : results) set(r, out);
      return {};
    }
    case Op::matmul:
    case Op::gemm: {
      const std::size_t most = rank(g, results[0]);
      const std::size_t a = rank(g, x), b = rank(g, inputs[1]);
      for (const auto& [d, count] : extents(x)) {
        if (a == 1 || d + 1 == a) continue;
        out[b == 1 ? d : most - a + d] = count;
      }
      for (const auto& [d, count] : extents(inputs[1])) {
        if (b == 1 || d + 2 == b) continue;
        out[d + 1 == b ? most - 1 : most - b + d + (a == 1 ? 1 : 0)] = count;
      }
      break;
    }
    case Op::non_max_suppression:
    case Op::non_zero: return {};  // their results have sizes of their own
    case Op::dynamic_quantize:
      out = extents(x);
      set(results[0], out);
      return {};
    case Op::roi_align: out = extents(inputs[1]); break;
    case Op::det: keeps_rank(rank(g, x) - 2); break;
    default: out = extents(x); break;  // the dimensions stay
  }
  set(results[0], out);
  return {};
}

}  // namespace octavo::onnx
