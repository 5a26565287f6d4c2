#include "plan/layout/needs.h"

#include <algorithm>
#include <numeric>

#include "ir/facts.h"
#include "ir/output_sizes.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::ValueId;

Extent scaled(Extent e, std::int64_t times, std::int64_t per) {
  e.times *= times, e.per *= per;
  const std::int64_t common = std::gcd(e.times, e.per);
  e.times /= common, e.per /= common;
  return e;
}

}  // namespace

class NeedFinder::Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), needs_(static_cast<std::size_t>(g.value_capacity())) {
    for (std::size_t i = 0; i < g.outputs.size(); ++i) {
      const Extent e = extent_of(g.outputs[i]);
      hidden_.emplace(e.base, std::pair(e, static_cast<int>(i)));  // the first is the plainest
    }
    for (const ir::OutputSize& s : g.sizes) {
      if (ir::is_counter(s)) counters_[s.axis] = extent_of(g.outputs[static_cast<std::size_t>(s.count)]);
    }
  }

  /// `whole`: values of which all elements are needed.
  void find(const std::set<ValueId>& whole = {}) {
    for (const ValueId v : whole) join(v, Needs(rank(v), Need::all()));
    for (std::size_t i = 0; i < g_.outputs.size(); ++i) {
      Needs n(rank(g_.outputs[i]), Need::all());
      for (const ir::OutputSize& s : g_.sizes) {
        if (s.output == static_cast<int>(i))
          n[static_cast<std::size_t>(s.axis)] = Need::some(extent_of(g_.outputs[static_cast<std::size_t>(s.count)]));
      }
      join(g_.outputs[i], n);
    }
    const std::vector<ir::NodeId> order = g_.order();
    for (std::size_t i = order.size(); i-- > 0;) read(g_.node(order[i]));
  }

  [[nodiscard]] const Needs& of(ValueId v) const { return needs_[static_cast<std::size_t>(v)]; }
  /// The output of the graph that says the count, and what is to be done with its value.
  [[nodiscard]] std::optional<std::pair<int, Extent>> output_of(const Extent& e) const {
    const auto at = hidden_.find(e.base);
    if (at == hidden_.end()) return std::nullopt;
    const auto& [says, output] = at->second;
    return std::pair(output, scaled(e, says.per, says.times));
  }

  /// A number that a run computes: what it is a multiple of.
  [[nodiscard]] Extent extent_of(ValueId v) const {
    Extent e{v, 1, 1};
    for (;;) {
      const Node& n = g_.producer(e.base);
      if (n.op == Op::reshape && ir::count(shape(n.inputs[0])) == 1) {
        e.base = n.inputs[0];
        continue;
      }
      if (n.op != Op::mul || ir::count(shape(e.base)) != 1) return e;
      const std::size_t known = g_.is_constant(n.inputs[1]) ? 1 : 0;
      const ValueId other = n.inputs[1 - known], by = n.inputs[known];
      if (!g_.is_constant(by) || g_.producer(by).quantizer || ir::is_float(g_.type(by).dtype)) return e;
      const auto factor = static_cast<std::int64_t>(g_.payload(by).at(0));
      if (factor < 1 || factor > (std::int64_t{1} << 28) || e.times > (std::int64_t{1} << 28) / factor) return e;
      e = {other, e.times * factor, 1};
    }
  }

 private:
  [[nodiscard]] const ir::Shape& shape(ValueId v) const { return g_.type(v).shape; }
  [[nodiscard]] std::size_t rank(ValueId v) const { return shape(v).size(); }

  void join(ValueId v, const Needs& n) {
    if (v == ir::kNone || g_.is_constant(v)) return;
    Needs& own = needs_[static_cast<std::size_t>(v)];
    if (own.empty()) own.resize(rank(v));
    for (std::size_t d = 0; d < own.size(); ++d) {
      const Need add = d < n.size() ? n[d] : Need::all();
      if (add.kind == Need::Kind::nothing) continue;
      if (own[d].kind == Need::Kind::nothing) {
        own[d] = add;
      } else if (own[d] != add) {
        own[d] = Need::all();
      }
    }
  }

  /// Element i of the list `counted` of the node.
  [[nodiscard]] Need said(const Node& n, std::size_t i) const {
    const std::vector<std::int64_t> list = ir::get_ints(n.attrs, ir::kCounted);
    if (i >= list.size()) return Need::all();
    const auto at = counters_.find(list[i]);
    return at == counters_.end() ? Need::all() : Need::some(at->second);
  }

  /// Which elements of a condition may be true: by dimension from the last on, those less than a count. It is "0 1 2 ... < count", or several of that.
  [[nodiscard]] std::map<std::size_t, Extent> mask_of(ValueId v) const {
    const Node& n = g_.producer(v);
    if (n.op == Op::logical_and) {
      std::map<std::size_t, Extent> both = mask_of(n.inputs[0]);
      both.merge(mask_of(n.inputs[1]));
      return both;
    }
    if (n.op == Op::expand) return mask_of(n.inputs[0]);
    if (n.op != Op::less && n.op != Op::greater) return {};
    const ValueId index = n.inputs[n.op == Op::less ? 0 : 1], count = n.inputs[n.op == Op::less ? 1 : 0];
    if (!g_.is_constant(index) || g_.producer(index).quantizer || ir::count(shape(count)) != 1) return {};
    const ir::Tensor& t = g_.payload(index);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      if (t.at(i) != static_cast<double>(i)) return {};
    }
    for (std::size_t d = 0; d < rank(index); ++d) {
      if (shape(index)[d] == t.size()) return {{rank(index) - 1 - d, extent_of(count)}};
    }
    return {};
  }

  /// Of an operand that is repeated to the result's shape.
  [[nodiscard]] Needs aligned(const Needs& result, ValueId to, ValueId v) const {
    Needs out(rank(v), Need::all());
    const std::size_t lost = rank(to) - std::min(rank(to), rank(v));
    for (std::size_t d = 0; d < out.size() && lost + d < result.size(); ++d) {
      if (shape(v)[d] == shape(to)[lost + d]) out[d] = result[lost + d];
    }
    return out;
  }

  /// Only what `mask` lets through.
  static void limit(Needs& n, const std::map<std::size_t, Extent>& mask) {
    for (const auto& [from_last, extent] : mask) {
      if (from_last < n.size()) n[n.size() - 1 - from_last] = Need::some(extent);
    }
  }

  [[nodiscard]] Needs through_reshape(const Needs& result, ValueId to, ValueId from) const {
    const ir::Shape &a = shape(from), &b = shape(to);
    Needs out(a.size(), Need::all());
    std::int64_t outer_a = 1;
    for (std::size_t i = 0; i < a.size(); outer_a *= a[i++]) {
      if (a[i] == 1) continue;
      std::int64_t outer_b = 1;
      for (std::size_t j = 0; j < b.size(); outer_b *= b[j++]) {
        if (b[j] == 1 || outer_a != outer_b || result[j].kind == Need::Kind::all) continue;
        if (b[j] == a[i]) {
          out[i] = result[j];
        } else if (outer_a == 1 && result[j].kind == Need::Kind::some) {  // the first elements, in other rows
          const std::int64_t all = ir::count(a);
          out[i] = Need::some(scaled(result[j].extent, all / b[j], all / a[i]));
        }
      }
    }
    return out;
  }

  void read(const Node& n) {
    Needs result;
    for (const ValueId v : n.outputs) {
      const Needs& own = of(v);
      if (own.empty()) continue;
      if (result.empty()) {
        result = own;
      } else if (result != own) {
        result.assign(std::max(result.size(), own.size()), Need::all());
      }
    }
    const bool any = std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return !of(v).empty() || rank(v) == 0; });
    if (!any || n.inputs.empty()) return;
    const ValueId y = n.outputs[0];
    if (result.size() != rank(y)) result.assign(rank(y), Need::all());
    const auto facts = ir::facts_of(g_, n);
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != ir::kNone) join(n.inputs[i], facts ? needs_of(n, *facts, i, result) : Needs());
    }
  }

  /// What the node needs of input i where `r` is needed of its result.
  [[nodiscard]] Needs needs_of(const Node& n, const ir::Facts& facts, std::size_t i, const Needs& r) const {
    const ValueId y = n.outputs[0], v = n.inputs[i];
    Needs all(rank(v), Need::all());
    const auto only_first = [&] {
      if (i == 0 && !r.empty() && !all.empty()) all[0] = r[0];
      return all;
    };
    const auto but = [&](std::int64_t axis) {  // row by row
      if (i > 0 || r.size() != all.size()) return all;
      all = r;
      all[static_cast<std::size_t>(axis)] = Need::all();
      return all;
    };
    const auto without = [&](const ir::Shape& axes, bool keepdims) {
      std::size_t k = 0;
      for (std::size_t d = 0; d < all.size(); ++d) {
        const bool reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end();
        if (!reduced && k < r.size()) all[d] = r[k];
        k += reduced && !keepdims ? 0 : 1;
      }
      return all;
    };
    if (n.op == Op::where && i > 0) {
      Needs out = aligned(r, y, v);
      if (i == 1 && shape(v) == shape(y)) limit(out, mask_of(n.inputs[0]));
      return out;
    }
    if (n.op == Op::logical_and) {
      Needs out = aligned(r, y, v);
      if (shape(v) == shape(y)) limit(out, mask_of(n.inputs[1 - i]));
      return out;
    }
    if (ir::has_trait(n.op, ir::kPointwise) || n.op == Op::bitwise) {
      const bool scales = n.op == Op::quantize_rt || n.op == Op::dequantize_rt || n.op == Op::affine;
      return scales && i > 0 ? all : aligned(r, y, v);
    }
    if (ir::has_trait(n.op, ir::kImages)) return only_first();
    switch (n.op) {
      case Op::math:
      case Op::bit_cast:
      case Op::expand: return aligned(r, y, v);
      case Op::reshape: return through_reshape(r, y, v);
      case Op::transpose:
        for (std::size_t d = 0; d < all.size(); ++d) all[static_cast<std::size_t>(std::get<ir::Transpose>(facts).perm[d])] = r[d];
        return all;
      case Op::slice: {
        const auto& s = std::get<ir::Slice>(facts);
        for (std::size_t d = 0; d < all.size(); ++d) {
          if (s.starts[d] == 0 && s.steps[d] == 1) all[d] = r[d];
        }
        return all;
      }
      case Op::pad: {
        const auto& p = std::get<ir::Pad>(facts);
        for (std::size_t d = 0; d < all.size(); ++d) {
          if (p.mode == ir::PadMode::constant && p.pads[d] == 0) all[d] = r[d];
        }
        return all;
      }
      case Op::tile:
        for (std::size_t d = 0; d < all.size() && r.size() == all.size(); ++d) {
          if (shape(v)[d] == shape(y)[d]) all[d] = r[d];
        }
        return all;
      case Op::concat: {
        const auto axis = static_cast<std::size_t>(std::get<ir::Along>(facts).axis);
        Needs out = r;
        const bool for_each = ir::get_ints(n.attrs, ir::kCounted).size() == n.inputs.size();
        out[axis] = for_each ? said(n, i) : Need::all();
        return out;
      }
      case Op::gather: {
        const auto axis = static_cast<std::size_t>(std::get<ir::Gather>(facts).axis);
        const std::size_t ids = rank(n.inputs[1]);
        if (i == 1)
          return Needs(r.begin() + static_cast<std::ptrdiff_t>(axis), r.begin() + static_cast<std::ptrdiff_t>(axis + ids));
        for (std::size_t d = 0; d < all.size(); ++d) all[d] = d < axis ? r[d] : d == axis ? said(n, 0) : r[d - 1 + ids];
        return all;
      }
      case Op::gather_elements: {
        const auto axis = static_cast<std::size_t>(std::get<ir::Gather>(facts).axis);
        if (i == 1) return r;
        all = r;
        all[axis] = said(n, 0);
        return all;
      }
      case Op::gather_nd: {
        if (std::get<ir::Gather>(facts).batch_dims != 0) return all;
        const std::size_t ids = rank(n.inputs[1]), length = static_cast<std::size_t>(shape(n.inputs[1]).back());
        for (std::size_t d = 0; i == 1 && d + 1 < ids; ++d) all[d] = r[d];
        for (std::size_t d = 0; i == 0 && d < all.size(); ++d) all[d] = d < length ? said(n, d) : r[ids - 1 + d - length];
        return all;
      }
      case Op::softmax:
      case Op::log_softmax: return but(std::get<ir::Along>(facts).axis);
      case Op::top_k: return but(std::get<ir::TopK>(facts).axis);
      case Op::cumulate: return std::get<ir::Cumulate>(facts).reverse ? but(std::get<ir::Cumulate>(facts).axis) : i == 0 ? r : all;
      case Op::layer_norm:
        for (std::size_t d = 0; i == 0 && static_cast<std::int64_t>(d) < std::get<ir::LayerNorm>(facts).axis; ++d) all[d] = r[d];
        return all;
      case Op::reduce_mean:
      case Op::reduce_sum:
      case Op::reduce_max:
      case Op::reduce_min:
      case Op::reduce_prod:
      case Op::reduce_l2: return without(std::get<ir::Reduction>(facts).axes, std::get<ir::Reduction>(facts).keepdims);
      case Op::arg_max: return without({std::get<ir::ArgMax>(facts).axis}, std::get<ir::ArgMax>(facts).keepdims);
      case Op::matmul: {
        if (rank(n.inputs[0]) < 2 || rank(n.inputs[1]) < 2) return all;
        Needs out = aligned(r, y, v);  // batches
        out[out.size() - 1] = i == 1 ? r[r.size() - 1] : Need::all();
        out[out.size() - 2] = i == 0 ? r[r.size() - 2] : Need::all();
        return out;
      }
      case Op::gemm: return i == 2 ? aligned(r, y, v) : only_first();
      case Op::resize_nearest: {
        const auto& index = std::get<ir::ResizeNearest>(facts).index;
        for (std::size_t d = 0; d < all.size(); ++d) {
          if (d >= index.size() || index[d].empty()) all[d] = r[d];
        }
        return all;
      }
      case Op::roi_align:
        if (i > 0 && !all.empty()) all[0] = r[0];
        return all;
      case Op::non_zero:
        if (i == 0 && n.inputs.size() > 1) all[0] = Need::some(extent_of(n.inputs[1]));
        return all;
      case Op::scatter:  // what does not count goes to a row that is cut off
        if (n.inputs.size() > 3 && (i == 1 || i == 2)) {
          all[0] = Need::some(extent_of(n.inputs[3]));
          return all;
        }
        for (std::size_t d = 0; i == 2 && d < all.size(); ++d) all[d] = said(n, d);
        return i == 0 ? r : all;
      case Op::non_max_suppression:
        if (i == 0) all[1] = said(n, 0);
        return all;
      default: return all;
    }
  }

  const Graph& g_;
  std::vector<Needs> needs_;
  std::map<std::int64_t, Extent> counters_;           ///< by their numbers
  std::map<ValueId, std::pair<Extent, int>> hidden_;  ///< by base: an output, and which multiple it is
};

NeedFinder::NeedFinder(const Graph& g) : finder_(std::make_unique<Finder>(g)) {}
NeedFinder::~NeedFinder() = default;

void NeedFinder::find(const std::set<ValueId>& whole) {
  finder_->find(whole);
}

const Needs& NeedFinder::of(ValueId v) const {
  return finder_->of(v);
}

Extent NeedFinder::extent_of(ValueId v) const {
  return finder_->extent_of(v);
}

std::optional<std::pair<int, Extent>> NeedFinder::output_of(const Extent& e) const {
  return finder_->output_of(e);
}

}  // namespace octavo::plan
