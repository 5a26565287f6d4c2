#include "region/counted.h"

#include <algorithm>
#include <cstring>

#include "region/stage_graph.h"

namespace octavo::region {
namespace {

using ir::Op;

constexpr int kAll = -1;  // of an input: its elements do not follow the dimension, all may be read

/// Which dimension of an operand is dimension k of a space of `rank`, as ONNX broadcasts. Nothing: none, and it is not repeated either.
std::optional<int> aligned(const TensorRef& t, std::size_t rank, int k, std::int64_t room) {
  const int i = k - static_cast<int>(rank - t.dims.size());
  if (t.dims.size() > rank) return std::nullopt;
  if (i < 0 || t.dims[static_cast<std::size_t>(i)] == 1) return kAll;
  return t.dims[static_cast<std::size_t>(i)] == room ? std::optional(i) : std::nullopt;
}

/// Dimension k of a result without the dimensions `axes`, before they were taken away.
std::optional<int> before_reduction(const ir::Shape& axes, bool keepdims, int k) {
  const auto reduced = [&](int d) { return std::find(axes.begin(), axes.end(), d) != axes.end(); };
  if (keepdims) return reduced(k) ? std::nullopt : std::optional(k);
  int d = 0;
  for (int left = k;; ++d) {
    if (reduced(d)) continue;
    if (left-- == 0) return d;
  }
}

/// Which dimension of anchor input `input` the elements along dimension k of the stage's result are made from, one from one; kAll: all of the input is read
/// for any of them. Nothing: unknown.
std::optional<int> dim_of_input(const Stage& s, std::size_t input, int k) {
  const Anchor& a = s.anchor;
  const TensorRef& t = a.inputs[input];
  const std::size_t rank = s.space.size();
  const std::int64_t room = s.space[static_cast<std::size_t>(k)];
  const auto not_along = [&](std::int64_t axis) { return axis == k ? std::nullopt : std::optional(k); };
  if (ir::has_trait(a.op, ir::kPointwise) || a.op == Op::bitwise) {
    const bool scales = a.op == Op::quantize_rt || a.op == Op::dequantize_rt || a.op == Op::affine;
    return scales && input > 0 && !t.dims.empty() ? std::nullopt : aligned(t, rank, k, room);
  }
  if (ir::has_trait(a.op, ir::kImages)) {
    if (k != 0) return std::nullopt;
    return input == 0 ? 0 : kAll;
  }
  switch (a.op) {
    case Op::math:
    case Op::bit_cast:
    case Op::expand: return aligned(t, rank, k, room);
    case Op::reshape: return t.dims == s.space ? std::optional(k) : std::nullopt;  // a copy
    case Op::resize_nearest: {
      const auto& index = a.as<ir::ResizeNearest>().index;
      const auto d = static_cast<std::size_t>(k);
      return d < index.size() && !index[d].empty() ? std::nullopt : std::optional(k);
    }
    case Op::gemm:
      if (k != 0) return std::nullopt;
      if (input == 0) return 0;
      return input == 2 ? aligned(t, rank, k, room) : kAll;
    case Op::matmul:
      if (a.inputs[0].dims.size() < 2 || a.inputs[1].dims.size() < 2 || k + 1 == static_cast<int>(rank)) return std::nullopt;
      if (k + 2 == static_cast<int>(rank)) return input == 0 ? static_cast<int>(t.dims.size()) - 2 : kAll;
      return aligned(t, rank, k, room);
    case Op::softmax:
    case Op::log_softmax: return not_along(a.as<ir::Along>().axis);
    case Op::cumulate: return not_along(a.as<ir::Cumulate>().axis);
    case Op::top_k: return not_along(a.as<ir::TopK>().axis);
    case Op::layer_norm:
      if (k >= a.as<ir::LayerNorm>().axis) return std::nullopt;
      return input == 0 ? k : kAll;
    case Op::reduce_mean:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_prod:
    case Op::reduce_l2: return before_reduction(a.as<ir::Reduction>().axes, a.as<ir::Reduction>().keepdims, k);
    case Op::arg_max: return before_reduction({a.as<ir::ArgMax>().axis}, a.as<ir::ArgMax>().keepdims, k);
    case Op::transpose: return static_cast<int>(a.as<ir::Transpose>().perm[static_cast<std::size_t>(k)]);
    case Op::gather: {
      const auto& g = a.as<ir::Gather>();
      const int axis = static_cast<int>(g.axis), ids = a.inputs.size() > 1 ? static_cast<int>(a.inputs[1].dims.size()) : 1;
      const bool of_ids = k >= axis && k < axis + ids;
      if (of_ids && !g.indices.empty()) return std::nullopt;
      if (input == 1) return of_ids ? k - axis : kAll;
      return of_ids ? kAll : k < axis ? k : k - ids + 1;
    }
    case Op::gather_elements: return input == 0 && k == a.as<ir::Gather>().axis ? kAll : k;
    case Op::gather_nd: {
      const int ids = static_cast<int>(a.inputs[1].dims.size());
      if (a.as<ir::Gather>().batch_dims != 0 || k + 1 >= ids) return std::nullopt;
      return input == 1 ? k : kAll;
    }
    case Op::roi_align:
      if (k != 0) return std::nullopt;
      return input == 0 ? kAll : 0;
    case Op::non_zero:  // what its operand says, not what readers of its results need (searches_counted)
      if (a.inputs.size() != 2) return std::nullopt;
      return input == 0 ? k : kAll;
    default: return std::nullopt;
  }
}

/// Do the elements of dimension k lie one behind the other, each in a part of the memory of its own?
bool outermost(const TensorRef& t, int k) {
  const std::int64_t step = t.strides[static_cast<std::size_t>(k)];
  for (std::size_t d = 0; d < t.dims.size(); ++d) {
    if (static_cast<int>(d) == k || t.dims[d] == 1) continue;
    if (static_cast<int>(d) < k || t.strides[d] < 0 || t.strides[d] * t.dims[d] > step) return false;
  }
  return true;
}

bool set_dim(TensorRef& t, int k, std::int64_t room, std::int64_t extent) {
  if (k == kAll) return true;
  if (k < 0 || static_cast<std::size_t>(k) >= t.dims.size() || t.dims[static_cast<std::size_t>(k)] != room) return false;
  t.dims[static_cast<std::size_t>(k)] = extent;
  return true;
}

/// Lists of the facts that have an entry for each dimension of the result.
void set_facts(ir::Facts& facts, std::size_t k, std::int64_t room, std::int64_t extent) {
  const auto set = [&](ir::Shape& list) {
    if (k < list.size() && list[k] == room) list[k] = extent;
  };
  if (auto* reshape = std::get_if<ir::Reshape>(&facts)) set(reshape->shape);
  if (auto* resize = std::get_if<ir::Resize>(&facts)) set(resize->sizes);
}

}  // namespace

bool all_or_nothing(const Region& r) {
  return r.count >= 0 && r.stages.back().counted < 0;
}

bool searches_counted(const Region& r) {
  return r.stages.size() == 1 && r.stages[0].anchor.op == Op::non_zero && r.stages[0].anchor.inputs.size() == 2;
}

std::int64_t room_of(const Region& r) {
  return all_or_nothing(r) ? 1 : r.stages.back().space[static_cast<std::size_t>(r.stages.back().counted)];
}

const std::string& count_of(const Region& r, const Plan& plan) {
  const Buffer& b = plan.buffers[static_cast<std::size_t>(r.count)];
  return b.binding < 0 ? b.name : plan.outputs[static_cast<std::size_t>(b.binding)].name;
}

std::int64_t counted_extent(const Region& r, const Memory& memory) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  std::int64_t count = 0;
  std::memcpy(&count, memory.base[static_cast<std::size_t>(r.count)], sizeof(count));
  count = std::clamp<std::int64_t>(count, 0, kMost);
  return std::min((count * r.count_times + r.count_per - 1) / r.count_per, room_of(r));
}

std::vector<std::int64_t> counted_extents(std::int64_t room) {
  std::vector<std::int64_t> out;
  for (std::int64_t e = 1; e < room; e *= 2) {
    out.push_back(e);
    if (e > 1 && e / 2 * 3 < room) out.push_back(e / 2 * 3);
  }
  return out;
}

std::optional<std::vector<int>> counted_dims(const Region& r, const std::vector<std::size_t>& results) {
  if (std::any_of(r.stages.begin(), r.stages.end(), [](const Stage& s) { return s.anchor.op == Op::non_zero; }))
    return std::nullopt;
  constexpr int kUnknown = -2;
  std::vector<int> dims(r.stages.size(), kUnknown);
  std::int64_t room = -1;
  bool fits = true;
  /// `what` is a tensor that stage s stores, and its dimension k is the counted one.
  const auto is = [&](std::size_t s, const TensorRef& what, int k) {
    if (k < 0 || static_cast<std::size_t>(k) >= r.stages[s].space.size() || static_cast<std::size_t>(k) >= what.dims.size()) {
      fits = false;
      return;
    }
    const std::int64_t extent = r.stages[s].space[static_cast<std::size_t>(k)];
    if (room < 0) room = extent;
    fits = fits && extent == room && what.dims[static_cast<std::size_t>(k)] == room && (dims[s] == kUnknown || dims[s] == k);
    dims[s] = k;
  };
  std::size_t next = 0;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) {
      if (!leaves(r, {s, j})) continue;
      if (next >= results.size()) return std::nullopt;
      const auto k = static_cast<int>(results[next++]);
      const TensorRef& t = r.stages[s].stores[j];
      is(s, t, k);
      if (!fits || !outermost(t, k)) return std::nullopt;
    }
  }
  for (std::size_t s = r.stages.size(); s-- > 0;) {
    if (dims[s] == kUnknown) return std::nullopt;
    const Stage& stage = r.stages[s];
    for (std::size_t i = 0; i < input_count(stage); ++i) {
      const auto from = forwarded_from(r, s, input_of(stage, i));
      if (!from) continue;
      const auto k = i < stage.anchor.inputs.size() ? dim_of_input(stage, i, dims[s]) : std::optional(dims[s]);
      if (!k || *k == kAll) return std::nullopt;
      is(from->stage, input_of(stage, i), *k);
      if (!fits) return std::nullopt;
    }
  }
  return fits && room > 1 ? std::optional(dims) : std::nullopt;
}

std::optional<Region> clipped(const Region& r, std::int64_t extent) {
  Region out = r;
  out.count = -1;
  const std::int64_t room = room_of(r);
  for (std::size_t n = 0; n < out.stages.size(); ++n) {
    Stage& s = out.stages[n];
    const int k = s.counted;
    const auto at = static_cast<std::size_t>(k);
    if (k < 0 || at >= s.space.size() || s.space[at] != room) return std::nullopt;
    for (std::size_t i = 0; i < s.anchor.inputs.size(); ++i) {
      const auto d = dim_of_input(r.stages[n], i, k);
      if (!d || !set_dim(s.anchor.inputs[i], *d, room, extent)) return std::nullopt;
    }
    s.space[at] = extent;
    for (Operand& o : s.operands) {
      if (o.ref.dims.size() != r.stages[n].space.size() || (!o.div.empty() && o.div[at] != 1)) return std::nullopt;
      if (o.ref.dims[at] == room) o.ref.dims[at] = extent;
    }
    for (TensorRef& t : s.stores) {
      if (t.dims.empty() && searches_counted(r)) continue;  // how many it finds
      if (!set_dim(t, k, room, extent)) return std::nullopt;
    }
    set_facts(s.anchor.facts, at, room, extent);
    if (!check_shapes(s)) return std::nullopt;
  }
  return out;
}

}  // namespace octavo::region
