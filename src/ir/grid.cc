#include "ir/grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

namespace octavo::ir {
namespace {

using Grid = std::optional<Quantizer>;

std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// One spelling for quantizers of equal meaning, so that equality of grids is equality of parameters.
Quantizer spelled(const Quantizer& q) {
  return collapse_axis(as_u8(q));
}
bool same_grid(const Quantizer& a, const Quantizer& b) {
  return spelled(a) == spelled(b);
}

bool channel_on_grid(const Quantizer& q, float x, std::int64_t channel) {
  return std::bit_cast<std::uint32_t>(view_one(q, x, channel)) == std::bit_cast<std::uint32_t>(x);  // -0 is no code's value
}
template <class Test>
bool every_channel(const Quantizer& q, Test&& test) {
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(q.entries()); ++c) {
    if (!test(c)) return false;
  }
  return true;
}
float value_of(const Quantizer& q, std::int64_t code, std::int64_t channel) {
  return dequantize_one(static_cast<std::int32_t>(code), q.scale_at(channel), q.zero_at(channel), q.arith);
}

/// The quantizer with its entries taken from `from` (indices along its axis) and its axis moved to `axis`.
template <class Index>
Quantizer select(const Quantizer& q, int axis, std::size_t entries, Index&& from) {
  Quantizer out{q.type, {}, {}, axis, q.arith};
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t k = from(i);
    out.scale.push_back(q.scale[k]);
    out.zero_point.push_back(q.zero_point[k]);
  }
  return out;
}
Quantizer on_axis(Quantizer q, std::int64_t axis) {
  q.axis = static_cast<int>(axis);
  return q;
}

/// Values of a narrower type than the arithmetic would be rounded once more and leave the grid.
bool holds(DType value, DType arith) {
  return value == DType::f32 || value == DType::f64 || value == arith;
}

/// Reading a value of the grid through its quantizer gives its code back. In float16 and bfloat16 a quotient may round to the next
/// code; then codes can be moved, but a value that was computed (even selected by max) cannot be told its code.
bool gives_back(const Quantizer& q) {
  if (q.arith == DType::f32) return true;
  return every_channel(q, [&](std::int64_t c) {
    for (std::int64_t code = q.lo(); code <= q.hi(); ++code) {
      if (quantize_one(value_of(q, code, c), q.scale_at(c), q.zero_at(c), q.lo(), q.hi(), q.arith) != code) return false;
    }
    return true;
  });
}

class Propagation {
 public:
  Propagation(const Graph& g, Grids& grids) : g_(g), grids_(grids) { grids_.of.resize(idx(g.value_capacity())); }

  void run() {
    for (const NodeId id : g_.order()) find(id);
  }

  void update(const Edits& edits) {
    for (const NodeId id : edits.nodes) {
      const Node& n = g_.node(id);
      for (const ValueId v : n.outputs) {
        if (n.dead) grids_.of[idx(v)].reset();
        readers(v);  // they may read a constant's elements, too
      }
      if (!n.dead) open_.insert(id);
    }
    for (const ValueId v : edits.values) {
      if (!g_.producer(v).dead) open_.insert(g_.value(v).producer);
      readers(v);
    }
    while (!open_.empty()) {
      const NodeId id = *open_.begin();
      open_.erase(open_.begin());
      if (find(id)) readers(g_.node(id).outputs[0]);
    }
  }

 private:
  /// Whether the grid of the node's result changed.
  bool find(NodeId id) {
    const Node& n = g_.node(id);
    if (n.outputs.size() != 1) return false;
    Grid grid = of(n);
    if (grid) grid = collapse_axis(*grid);
    Grid& known = grids_.of[idx(n.outputs[0])];
    if (known == grid) return false;
    known = std::move(grid);
    return true;
  }
  void readers(ValueId v) {
    for (const auto& [user, slot] : g_.users(v)) open_.insert(user);
  }

  const Quantizer* in(const Node& n, std::size_t i) const { return i < n.inputs.size() ? grids_.get(n.inputs[i]) : nullptr; }
  const Shape& shape(const Node& n, std::size_t i) const { return g_.type(n.inputs[i]).shape; }
  const TensorType& out(const Node& n) const { return g_.type(n.outputs[0]); }

  Grid of(const Node& n) const {
    switch (n.op) {
      case Op::constant:
        if (n.quantizer && (is_int8(n.quantizer->type) || n.quantizer->type == DType::s32)) return n.quantizer;
        return std::nullopt;
      case Op::view:
        // A wider quantizer that changes no value of an 8-bit grid leaves the value on that grid.
        if (in(n, 0) != nullptr && n.quantizer && !is_int8(n.quantizer->type) && fixes(*n.quantizer, *in(n, 0))) return *in(n, 0);
        [[fallthrough]];
      case Op::dequantize:
        if (n.quantizer && is_int8(n.quantizer->type) && holds(out(n).dtype, n.quantizer->arith)) return n.quantizer;
        return std::nullopt;
      case Op::concat: return concat(n);
      case Op::max:
      case Op::min: return same(n, 0);
      case Op::where: return same(n, 1);
      default: break;
    }
    const Quantizer* q = in(n, 0);
    if (q == nullptr) return std::nullopt;
    if ((n.op == Op::relu || n.op == Op::clip || n.op == Op::pad) && !gives_back(*q)) return std::nullopt;
    switch (n.op) {
      case Op::relu: return *q;  // 0 is the value of the zero point, which is a code
      case Op::clip: return clip(n, *q);
      case Op::max_pool: return max_pool(n, *q);
      case Op::pad: return pad(n, *q);
      case Op::reduce_max:
      case Op::reduce_min: return reduce(n, *q);
      case Op::transpose:
      case Op::reshape:
      case Op::slice:
      case Op::gather:
      case Op::gather_elements:
      case Op::gather_nd:
      case Op::expand:
      case Op::tile:
      case Op::resize_nearest:
      case Op::depth_to_space:
      case Op::space_to_depth: return q->per_tensor() ? Grid(*q) : move_axis(n, *q);
      default: return std::nullopt;
    }
  }

  /// max, min, where: both operands on one grid. Per axis only without broadcasting.
  Grid same(const Node& n, std::size_t first) const {
    const Quantizer* a = in(n, first);
    const Quantizer* b = in(n, first + 1);
    if (a == nullptr || b == nullptr || !same_grid(*a, *b) || !gives_back(*a)) return std::nullopt;
    if (!a->per_tensor() && (shape(n, first) != out(n).shape || shape(n, first + 1) != out(n).shape)) return std::nullopt;
    return *a == *b ? *a : spelled(*a);
  }

  Grid concat(const Node& n) const {
    const auto axis = static_cast<int>(get_int(n.attrs, "axis", -1));
    bool all_same = true, any_on_axis = false, as_found = true;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const Quantizer* q = in(n, i);
      if (q == nullptr || q->arith != in(n, 0)->arith || as_u8(*q).type != as_u8(*in(n, 0)).type) return std::nullopt;
      all_same = all_same && same_grid(*q, *in(n, 0)) && q->axis != axis;
      as_found = as_found && q->type == in(n, 0)->type;
      any_on_axis = any_on_axis || q->axis == axis;
      if (!q->per_tensor() && q->axis != axis && !same_grid(*q, *in(n, 0))) return std::nullopt;
    }
    const auto spell = [&](const Quantizer& q) { return as_found ? q : as_u8(q); };
    if (all_same) return spell(*in(n, 0));
    // Parts of unequal scales lie on a grid along the axis. Not in f16 and bf16, where codes of one value would make laws disagree.
    if (!any_on_axis && in(n, 0)->arith != DType::f32) return std::nullopt;
    Quantizer joined{spell(*in(n, 0)).type, {}, {}, axis, in(n, 0)->arith};
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const Quantizer q = spell(*in(n, i));
      if (!q.per_tensor() && q.axis != axis) return std::nullopt;
      for (std::int64_t c = 0; c < shape(n, i)[idx(axis)]; ++c) {
        joined.scale.push_back(q.scale_at(c));
        joined.zero_point.push_back(q.zero_at(c));
      }
    }
    return joined;
  }

  Grid clip(const Node& n, const Quantizer& q) const {
    const auto lo = static_cast<float>(get_float(n.attrs, "min", -INFINITY));
    const auto hi = static_cast<float>(get_float(n.attrs, "max", INFINITY));
    if (!(lo <= hi)) return std::nullopt;
    const bool fits = every_channel(q, [&](std::int64_t c) {
      return (lo <= value_of(q, q.lo(), c) || channel_on_grid(q, lo, c)) &&
             (hi >= value_of(q, q.hi(), c) || channel_on_grid(q, hi, c));
    });
    return fits ? Grid(q) : std::nullopt;
  }

  /// Every window must hold an element: one wholly in padding gives -inf.
  Grid max_pool(const Node& n, const Quantizer& q) const {
    if (q.axis > 1) return std::nullopt;
    const auto kernel = get_ints(n.attrs, "kernel");
    const auto pads = get_ints(n.attrs, "pads"), strides = get_ints(n.attrs, "strides"), dilations = get_ints(n.attrs, "dilations");
    for (std::size_t k = 0; k < kernel.size(); ++k) {
      const std::int64_t extent = shape(n, 0)[k + 2], d = dilations.empty() ? 1 : dilations[k],
                         s = strides.empty() ? 1 : strides[k];
      for (std::int64_t o = 0; o < out(n).shape[k + 2]; ++o) {
        const std::int64_t start = o * s - (pads.empty() ? 0 : pads[k]);
        const std::int64_t tap = start >= 0 ? 0 : (-start + d - 1) / d;  // the first one at or after element 0
        if (tap >= kernel[k] || start + tap * d >= extent) return std::nullopt;
      }
    }
    return q;
  }

  Grid pad(const Node& n, const Quantizer& q) const {
    const auto pads = get_ints(n.attrs, "pads");
    const std::size_t rank = shape(n, 0).size();
    if (std::all_of(pads.begin(), pads.end(), [](std::int64_t p) { return p == 0; })) return q;
    if (!q.per_tensor() && (pads[idx(q.axis)] != 0 || pads[idx(q.axis) + rank] != 0)) return std::nullopt;
    if (get_text(n.attrs, "mode", "constant") != "constant") return q;
    const auto value = static_cast<float>(get_float(n.attrs, "value", 0));
    return every_channel(q, [&](std::int64_t c) { return channel_on_grid(q, value, c); }) ? Grid(q) : std::nullopt;
  }

  Grid reduce(const Node& n, const Quantizer& q) const {
    if (q.per_tensor()) return q;
    std::int64_t before = 0;
    for (const std::int64_t axis : get_ints(n.attrs, "axes")) {
      if (axis == q.axis) return std::nullopt;
      before += axis < q.axis ? 1 : 0;
    }
    return on_axis(q, get_int(n.attrs, "keepdims", 1) ? q.axis : q.axis - before);
  }

  /// Where a per-axis quantizer goes under an op that only moves elements; nothing when the axis is merged or mixed.
  Grid move_axis(const Node& n, const Quantizer& q) const {
    const Shape& x = shape(n, 0);
    const Shape& y = out(n).shape;
    const std::size_t axis = idx(q.axis);
    switch (n.op) {
      case Op::transpose: {
        const auto perm = get_ints(n.attrs, "perm");
        return on_axis(q, std::find(perm.begin(), perm.end(), q.axis) - perm.begin());
      }
      case Op::reshape: {
        const std::int64_t outer = count(Shape(x.begin(), x.begin() + q.axis));
        std::int64_t before = 1;
        for (std::size_t i = 0; i < y.size(); before *= y[i++]) {
          if (before == outer && y[i] == x[axis] && count(x) > 0) return on_axis(q, static_cast<std::int64_t>(i));
        }
        return std::nullopt;
      }
      case Op::slice: {
        const auto start = get_ints(n.attrs, "starts")[axis];
        const auto steps = get_ints(n.attrs, "steps");
        const std::int64_t step = steps.empty() ? 1 : steps[axis];
        return select(q, q.axis, idx(y[axis]), [&](std::size_t i) { return idx(start + static_cast<std::int64_t>(i) * step); });
      }
      case Op::gather: {
        const auto along = get_int(n.attrs, "axis", 0);
        const Shape& ids = shape(n, 1);
        if (along != q.axis) return on_axis(q, q.axis < along ? q.axis : q.axis + static_cast<std::int64_t>(ids.size()) - 1);
        if (!g_.is_constant(n.inputs[1]) || ids.size() != 1) return std::nullopt;
        std::vector<std::int64_t> chosen = g_.payload(n.inputs[1]).as_ints();
        for (std::int64_t& c : chosen) {
          if (c < 0) c += x[axis];
          if (c < 0 || c >= x[axis]) return std::nullopt;
        }
        return select(q, q.axis, chosen.size(), [&](std::size_t i) { return idx(chosen[i]); });
      }
      case Op::gather_elements:
        if (get_int(n.attrs, "axis", 0) == q.axis) return std::nullopt;
        return select(q, q.axis, idx(y[axis]), [](std::size_t i) { return i; });
      case Op::expand: return on_axis(q, q.axis + static_cast<std::int64_t>(y.size() - x.size()));
      case Op::tile: return select(q, q.axis, idx(y[axis]), [&](std::size_t i) { return i % idx(x[axis]); });
      case Op::resize_nearest: {
        const auto index = get_ints(n.attrs, "index" + std::to_string(q.axis));
        if (!n.attrs.contains("index" + std::to_string(q.axis))) return q;
        return select(q, q.axis, index.size(), [&](std::size_t i) { return idx(index[i]); });
      }
      case Op::depth_to_space:
      case Op::space_to_depth: return q.axis == 0 ? Grid(q) : std::nullopt;
      default: return std::nullopt;
    }
  }

  const Graph& g_;
  Grids& grids_;
  std::set<NodeId> open_;  ///< to be looked at again
};

}  // namespace

Grids find_grids(const Graph& g) {
  Grids grids;
  Propagation(g, grids).run();
  return grids;
}

void update_grids(const Graph& g, const Edits& edits, Grids& grids) {
  if (edits.all)
    grids = find_grids(g);
  else
    Propagation(g, grids).update(edits);
}

float grid_min(const Quantizer& q) {
  return value_of(q, q.lo(), 0);
}
float grid_max(const Quantizer& q) {
  return value_of(q, q.hi(), 0);
}
bool on_grid(const Quantizer& q, float x) {
  return channel_on_grid(q, x, 0);
}

}  // namespace octavo::ir
