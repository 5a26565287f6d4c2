// One class, a little longer than 400 lines: its passes (natural strides, wishes passed to producers, allocations) share one state.
#include "plan/layout/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/causes/plan_layout.h"
#include "base/hash.h"
#include "plan/layout/images.h"
#include "plan/layout/layout.h"
#include "plan/layout/row_order.h"
#include "plan/layout/slices.h"
#include "plan/regions/narrow_marks.h"
#include "region/tensor_ref.h"

namespace octavo::plan {

using ir::Graph;
using ir::Grids;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using region::TensorRef;

region::BufferId Placement::add_arena(std::int64_t bytes, std::string name) {
  region::Buffer b;
  b.kind = region::BufferKind::arena;
  b.bytes = bytes;
  b.name = std::move(name);
  buffers.push_back(std::move(b));
  return static_cast<region::BufferId>(buffers.size() - 1);
}

region::BufferId Placement::add_constant(const ir::Tensor& t, std::string name) {
  const std::uint64_t key = hash64(t.bytes(), static_cast<std::uint64_t>(t.dtype()) + 1);
  const auto found = constants.find(key);
  if (found != constants.end()) return found->second;
  region::Buffer b;
  b.kind = region::BufferKind::constant;
  b.bytes = static_cast<std::int64_t>(t.bytes().size());
  b.data = t;
  b.name = std::move(name);
  buffers.push_back(std::move(b));
  return constants[key] = static_cast<region::BufferId>(buffers.size() - 1);
}

Repr anchor_input(const Graph& g, const Grids& grids, NodeId anchor, std::size_t slot) {
  const Node& n = g.node(anchor);
  const ValueId v = n.inputs[slot];
  const auto q = code_quantizer(g, grids, v);
  if (n.op == Op::matmul) return ir::classify_anchor(g, grids, anchor).integer ? Repr::codes : Repr::raw;
  if (slot > 0 || !q) return Repr::raw;
  switch (n.op) {
    case Op::conv:
    case Op::conv_transpose:
    case Op::gemm: return ir::classify_anchor(g, grids, anchor).integer ? Repr::codes : Repr::raw;
    case Op::avg_pool: return q->per_tensor() ? Repr::codes : Repr::raw;
    case Op::reduce_mean:
    case Op::reduce_sum: {  // the reference sums codes when only spatial axes go
      const auto axes = ir::get_ints(n.attrs, "axes");
      const bool spatial = !axes.empty() && std::all_of(axes.begin(), axes.end(), [](std::int64_t a) { return a >= 2; });
      return q->per_tensor() && spatial ? Repr::codes : Repr::raw;
    }
    default: break;
  }
  // Moving and selecting anchors work on codes when their result stays on the same grid.
  const auto out = code_quantizer(g, grids, n.outputs[0]);
  return ir::has_trait(n.op, ir::kMove) && q->per_tensor() && out && *out == *q ? Repr::codes : Repr::raw;
}

std::map<Key, int> find_requests(const Graph& g, const Grids& grids, const Grouping& grouping) {
  std::map<Key, int> wanted;
  for (std::size_t k = 0; k < grouping.groups.size(); ++k) {
    const Group& group = grouping.groups[k];
    if (group.anchor != ir::kNone) {
      const Node& n = g.node(group.anchor);
      for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
        const ValueId v = held(g, n.inputs[slot]);
        if (v != ir::kNone && !g.is_constant(v)) ++wanted[{v, anchor_input(g, grids, group.anchor, slot)}];
      }
    }
    for (const NodeId id : group.nodes) {
      for (const ValueId read : read_values(g, g.node(id))) {
        const ValueId v = held(g, read);
        if (v == ir::kNone || g.is_constant(v)) continue;
        if (grouping.of_node[static_cast<std::size_t>(g.value(v).producer)] == static_cast<int>(k)) continue;
        ++wanted[{v, preferred(g, grids, v)}];
      }
    }
  }
  for (const ValueId v : g.outputs) ++wanted[{v, Repr::raw}];
  // A moved value needs its sources in the same representation.
  const std::vector<NodeId> order = g.order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const Node& n = g.node(order[i]);
    if (n.op == Op::dequantize && grouping.of_node[static_cast<std::size_t>(order[i])] < 0) ++wanted[{n.inputs[0], Repr::raw}];
    if (!is_alias(n)) continue;
    for (const Repr r : {Repr::raw, Repr::codes}) {
      if (!wanted.contains({n.outputs[0], r})) continue;
      for (const ValueId v : n.inputs) ++wanted[{v, r}];
    }
  }
  return wanted;
}

namespace {

class Placer {
 public:
  Placer(const Graph& g, const Grids& grids, const Grouping& grouping, const std::set<ValueId>& direct,
         const std::set<ValueId>& as_made)
      : g_(g), grids_(grids), grouping_(grouping), direct_(direct), as_made_(as_made) {}

  Result<Placement> run() {
    requests_ = find_requests(g_, grids_, grouping_);
    order_ = g_.order();
    find_natural();
    bind();
    for (std::size_t i = order_.size(); i-- > 0;) push(order_[i]);
    for (const NodeId id : order_) OCTAVO_CHECK(pull(id));
    return std::move(out_);
  }

 private:
  // The strides a value would have if nothing forced others on it.
  void find_natural() {
    natural_.resize(static_cast<std::size_t>(g_.value_capacity()));
    in_rows_.resize(natural_.size());
    find_read_by_products();
    images_ = find_images(g_);
    features_last_ = find_features_last(g_);
    const std::map<ValueId, Strides> rows = find_row_orders(g_);
    for (const NodeId id : order_) {
      const Node& n = g_.node(id);
      in_rows_[static_cast<std::size_t>(n.outputs[0])] = kept_in_rows(n);
      for (const ValueId v : n.outputs) natural_[static_cast<std::size_t>(v)] = natural_of(n, v);
      if (const auto wish = rows.find(n.outputs[0]); wish != rows.end()) order_rows(n, wish->second);
    }
  }

  /// Gives the result of n the order that products wish for, where the one of its operands would scatter their rows.
  void order_rows(const Node& n, const Strides& wish) {
    const ValueId v = n.outputs[0];
    const ir::Shape& dims = g_.type(v).shape;
    Strides& natural = natural_[static_cast<std::size_t>(v)];
    if (dims.size() == 4 || as_made_.contains(v) || (n.op != Op::concat && !group_made(v))) return;
    const std::vector<int> order = order_of(dims, wish);
    const auto last = std::find_if(order.rbegin(), order.rend(), [&](int d) { return dims[static_cast<std::size_t>(d)] != 1; });
    if (last == order.rend() || natural[static_cast<std::size_t>(*last)] == 1) return;
    TensorRef want;
    want.dims = dims, want.strides = strides_in_order(dims, order);
    if (!takes(v, want)) return;
    natural = want.strides;
    out_.in_rows.insert(v);
  }

  /// Whether what makes a value stores it like this without a copy.
  bool takes(ValueId v, const TensorRef& want) const {
    const Node& n = g_.producer(v);
    if (group_made(v)) return storable(n, want);
    if (n.op == Op::transpose) return takes(n.inputs[0], unpermuted(want, ir::get_ints(n.attrs, "perm")));
    if (n.op == Op::reshape) {
      const auto source = reshaped(want, g_.type(n.inputs[0]).shape);
      return !source || takes(n.inputs[0], *source);
    }
    if (n.op != Op::concat) return true;
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId in) {
      return takes(in, sliced(want, std::vector<std::int64_t>(want.dims.size(), 0), {}, g_.type(in).shape));
    });
  }

  Strides natural_of(const Node& n, ValueId v) {
    const ir::Shape& dims = g_.type(v).shape;
    const auto source = [&](std::size_t slot) -> TensorRef {
      TensorRef r;
      r.dims = g_.type(n.inputs[slot]).shape;
      r.strides = natural_[static_cast<std::size_t>(n.inputs[slot])];
      return r;
    };
    switch (n.op) {
      case Op::input:
      case Op::constant: return ir::dense_strides(dims);
      case Op::transpose: return permuted(source(0), ir::get_ints(n.attrs, "perm")).strides;
      case Op::reshape: {
        const auto r = reshaped(source(0), dims);
        return r ? r->strides : dims.size() == 4 && !is_rows(v) ? channel_last(dims) : ir::dense_strides(dims);
      }
      case Op::slice:
      case Op::concat: return strides_in_order(dims, order_of(source(0).dims, source(0).strides));
      case Op::expand: return ir::dense_strides(dims);
      case Op::dequantize:
        if (grouping_.of_node[static_cast<std::size_t>(g_.value(v).producer)] < 0)
          return natural_[static_cast<std::size_t>(n.inputs[0])];
        break;
      case Op::conv:
      case Op::conv_transpose:
      case Op::max_pool:
      case Op::avg_pool: return channel_last(dims);
      case Op::matmul: return rows_as_shown(v);
      default: break;
    }
    if (const auto order = order_of_distributions(n, v)) return *order;
    if (dims.size() == 4 && !given_channels_last(v) && !is_rows(v)) return channel_last(dims);
    for (std::size_t slot = 0; slot < n.inputs.size(); ++slot) {
      if (n.inputs[slot] != ir::kNone && g_.type(n.inputs[slot]).shape == dims && !g_.is_constant(n.inputs[slot])) {
        const Strides order = strides_in_order(dims, order_of(dims, source(slot).strides));
        return dims.size() == 4 && features_last_.contains(v) && order.back() != 1 ? ir::dense_strides(dims) : order;
      }
    }
    return ir::dense_strides(dims);
  }
  /// Distributions over a dimension that is no image's channels, as bins of a box's side, and what is computed of them element by element: in the order of
  /// the operand, whose elements of a distribution lie side by side.
  std::optional<Strides> order_of_distributions(const Node& n, ValueId v) {
    const ir::Shape& dims = g_.type(v).shape;
    if (dims.size() != 4 || !same_space(n) || is_rows(v)) return std::nullopt;
    for (const ValueId in : n.inputs) {
      if (in == ir::kNone || g_.is_constant(in) || g_.type(in).shape != dims) continue;
      const Strides& from = natural_[static_cast<std::size_t>(in)];
      const bool softmax = n.op == Op::softmax || n.op == Op::log_softmax;
      const auto axis = softmax ? static_cast<std::size_t>(ir::get_int(n.attrs, "axis", 3)) : 0;
      if (softmax ? axis < 2 || from[axis] != 1 : !distributions_.contains(in)) continue;
      distributions_.insert(v);
      return strides_in_order(dims, order_of(dims, from));
    }
    return std::nullopt;
  }

  bool is_rows(ValueId v) const {
    return in_rows_[static_cast<std::size_t>(v)] || !images_.contains(v) || features_last_.contains(v);
  }

  /// Matrices, as scores of attention and what becomes of them: products read and write rows, so that elements of a row lie side by side
  /// where an image of the same rank would have its channels. True for what a product of matrices makes or reads, through operations of
  /// one element each, Softmax and moves.
  bool kept_in_rows(const Node& n) const {
    if (n.op == Op::matmul) return true;
    if (!same_space(n) && !is_alias(n)) return false;
    for (const ValueId v : n.inputs) {
      if (v != ir::kNone && in_rows_[static_cast<std::size_t>(v)]) return true;
    }
    return same_space(n) && feeds_product_[static_cast<std::size_t>(n.outputs[0])];
  }
  static bool same_space(const Node& n) {
    return n.op == Op::view || n.op == Op::softmax || n.op == Op::log_softmax || ir::has_trait(n.op, ir::kPointwise);
  }
  void find_read_by_products() {
    feeds_product_.resize(static_cast<std::size_t>(g_.value_capacity()));
    for (std::size_t i = order_.size(); i-- > 0;) {
      const Node& n = g_.node(order_[i]);
      if (n.op != Op::matmul && !(same_space(n) && feeds_product_[static_cast<std::size_t>(n.outputs[0])])) continue;
      for (const ValueId v : n.inputs) {
        if (v != ir::kNone) feeds_product_[static_cast<std::size_t>(v)] = true;
      }
    }
  }

  /// Row-major. If the only readers are equal Transposes that keep rows whole, as the one that joins the heads of attention, row-major in the
  /// order of the Transpose's result.
  Strides rows_as_shown(ValueId v) const {
    const ir::Shape& dims = g_.type(v).shape;
    std::optional<std::vector<std::int64_t>> perm;
    std::vector<ValueId> seen = {v};
    for (std::size_t i = 0; i < seen.size(); ++i) {
      for (const auto& [user, slot] : g_.users(seen[i])) {
        const Node& n = g_.node(user);
        if (same_space(n) && g_.type(n.outputs[0]).shape == dims) {
          if (std::find(seen.begin(), seen.end(), n.outputs[0]) == seen.end()) seen.push_back(n.outputs[0]);
          continue;
        }
        if (n.op != Op::transpose) return ir::dense_strides(dims);
        const auto shown = ir::get_ints(n.attrs, "perm");
        if ((perm && *perm != shown) || shown.back() != static_cast<std::int64_t>(dims.size()) - 1) return ir::dense_strides(dims);
        perm = shown;
      }
    }
    return perm ? strides_in_order(dims, std::vector<int>(perm->begin(), perm->end())) : ir::dense_strides(dims);
  }

  /// An image whose dimensions are N, H, W, C: what reads it puts the channels first.
  bool given_channels_last(ValueId v) const {
    const auto& users = g_.users(v);
    return !users.empty() && std::all_of(users.begin(), users.end(), [&](const auto& use) {
      const Node& n = g_.node(use.first);
      if (n.op == Op::slice) return given_channels_last(n.outputs[0]);  // padding is left behind
      return n.op == Op::transpose && ir::get_ints(n.attrs, "perm") == std::vector<std::int64_t>{0, 3, 1, 2};
    });
  }

  ir::DType dtype_of(Key key) const { return key.second == Repr::codes ? ir::DType::u8 : g_.type(key.first).dtype; }

  TensorRef ref_of(Key key, region::BufferId buffer, Strides strides) const {
    TensorRef r;
    r.buffer = buffer;
    r.dtype = dtype_of(key);
    r.dims = g_.type(key.first).shape;
    r.strides = std::move(strides);
    r.value = g_.value(key.first).name;
    if (key.second == Repr::codes) r.quantizer = code_quantizer(g_, grids_, key.first);
    return r;
  }

  TensorRef allocate(Key key, Strides strides) {
    const auto bytes = ir::count(g_.type(key.first).shape) * static_cast<std::int64_t>(ir::size_of(dtype_of(key)));
    return ref_of(key, out_.add_arena(bytes, g_.value(key.first).name), std::move(strides));
  }

  // Bindings become buffers; every output forces its producer.
  void bind() {
    out_.sizes = g_.sizes;
    for (const ValueId v : g_.inputs) {
      region::Buffer b;
      b.kind = region::BufferKind::input;
      b.binding = static_cast<int>(out_.inputs.size());
      b.bytes = ir::count(g_.type(v).shape) * static_cast<std::int64_t>(ir::size_of(g_.type(v).dtype));
      b.name = g_.value(v).name;
      out_.buffers.push_back(b);
      out_.inputs.push_back({g_.value(v).name, g_.type(v), std::nullopt, {}, 0, {}});
      input_ref_[v] =
          ref_of({v, Repr::raw}, static_cast<region::BufferId>(out_.buffers.size() - 1), ir::dense_strides(g_.type(v).shape));
    }
    for (std::size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId v = g_.outputs[i];
      region::Buffer b;
      b.kind = region::BufferKind::output;
      b.binding = static_cast<int>(i);
      b.bytes = ir::count(g_.type(v).shape) * static_cast<std::int64_t>(ir::size_of(g_.type(v).dtype));
      b.name = g_.output_names[i];
      out_.buffers.push_back(b);
      std::optional<ir::Quantizer> q;
      if (g_.producer(v).op == Op::quantize) q = g_.producer(v).quantizer;
      out_.outputs.push_back({g_.output_names[i], g_.type(v), q, {}, 0, {}});
      forced_[{v, Repr::raw}].push_back(
          ref_of({v, Repr::raw}, static_cast<region::BufferId>(out_.buffers.size() - 1), ir::dense_strides(g_.type(v).shape)));
    }
  }

  bool group_made(ValueId v) const { return grouping_.of_node[static_cast<std::size_t>(g_.value(v).producer)] >= 0; }

  static TensorRef relabel(TensorRef r, const TensorRef& like) {
    r.quantizer = like.quantizer;
    r.value = like.value;
    return r;
  }

  void join_slices(Key source) {
    for (const JoinedSlices& joined : slices_.joined(source, g_.type(source.first).shape)) {
      forced_[source].push_back(relabel(joined.whole, ref_of(source, -1, {})));
      satisfied_.insert(joined.satisfied.begin(), joined.satisfied.end());
    }
  }

  void wish_slice(const Node& n, Key key) {
    const auto steps = ir::get_ints(n.attrs, "steps");
    if (std::any_of(steps.begin(), steps.end(), [](std::int64_t s) { return s != 1; })) return;
    const Key source{n.inputs[0], key.second};
    const auto starts = ir::get_ints(n.attrs, "starts");
    const std::vector<TensorRef>& forced = forced_[key];
    for (std::size_t i = 0; i < forced.size(); ++i) {
      TensorRef whole = forced[i];
      whole.dims = g_.type(source.first).shape;
      for (std::size_t d = 0; d < starts.size(); ++d) {
        whole.offset -= starts[d] * whole.strides[d] * element_bytes(whole);
      }
      if (whole.offset >= 0) slices_.wish(source, {key, i, whole, starts, g_.type(key.first).shape});
    }
  }

  // Consumers first: pass wishes on to the sources.
  void push(NodeId id) {
    const Node& n = g_.node(id);
    for (const ValueId v : n.outputs) {
      join_slices({v, Repr::raw});
      join_slices({v, Repr::codes});
    }
    if (!is_alias(n)) return;
    for (const Repr repr : {Repr::raw, Repr::codes}) {
      const Key key{n.outputs[0], repr};
      if (!requests_.contains(key)) continue;
      std::vector<TensorRef>& forced = forced_[key];
      if (n.op == Op::concat) {
        if (forced.empty()) forced.push_back(allocate(key, natural_[static_cast<std::size_t>(n.outputs[0])]));
        const auto axis = static_cast<std::size_t>(ir::get_int(n.attrs, "axis"));
        std::vector<std::int64_t> starts(g_.type(n.outputs[0]).shape.size(), 0);
        for (const ValueId v : n.inputs) {
          const Key operand{v, repr};
          TensorRef slice = sliced(forced[0], starts, {}, g_.type(v).shape);
          forced_[operand].push_back(relabel(slice, ref_of(operand, -1, {})));
          starts[axis] += g_.type(v).shape[axis];
        }
        continue;
      }
      if (n.op == Op::slice) wish_slice(n, key);
      if (forced.empty() || (n.op != Op::transpose && n.op != Op::reshape)) continue;
      const Key source{n.inputs[0], repr};
      std::vector<TensorRef> pushed;
      for (const TensorRef& want : forced) {
        std::optional<TensorRef> r;
        if (n.op == Op::transpose) r = unpermuted(want, ir::get_ints(n.attrs, "perm"));
        if (n.op == Op::reshape) r = reshaped(want, g_.type(n.inputs[0]).shape);
        if (r) pushed.push_back(relabel(*r, ref_of(source, -1, {})));
      }
      if (pushed.size() != forced.size() || g_.is_constant(n.inputs[0])) continue;
      pushed_.insert(key);
      auto& wishes = forced_[source];
      wishes.insert(wishes.end(), pushed.begin(), pushed.end());
    }
  }

  // Producers first: settle every allocation.
  Status pull(NodeId id) {
    const Node& n = g_.node(id);
    for (const ValueId v : n.outputs) {
      for (const Repr repr : {Repr::raw, Repr::codes}) {
        const Key key{v, repr};
        const bool constant_wish = n.op == Op::constant && forced_.contains(key);
        if (!requests_.contains(key) && !constant_wish) continue;
        OCTAVO_CHECK(settle(n, key));
      }
    }
    return {};
  }

  Status settle(const Node& n, Key key) {
    const ValueId v = key.first;
    Allocation& at = out_.allocations[key];
    const std::vector<TensorRef>& forced = forced_[key];
    if (group_made(v)) {
      for (const TensorRef& want : forced) {
        if (direct_.contains(v) || storable(n, want)) at.refs.push_back(want);
      }
      if (at.refs.empty()) at.refs.push_back(allocate(key, natural_[static_cast<std::size_t>(v)]));
      for (const TensorRef& want : forced) {
        if (!direct_.contains(v) && !storable(n, want)) {
          at.copies.push_back({key, at.refs[0], want, because<cause::store_needs_channels_last>(want.strides[1])});
        }
      }
      return {};
    }
    if (n.op == Op::input) return copies_of(key, at, input_ref_.at(v), because<cause::input_is_part_of_another>());
    if (n.op == Op::constant) {
      ir::Tensor t = n.payload;
      if (n.quantizer && key.second == Repr::raw) t = decoded(n);
      if (n.quantizer && key.second == Repr::codes) {
        const std::int32_t shift = ir::as_u8(*n.quantizer).zero_point[0] - n.quantizer->zero_point[0];
        ir::Tensor u(ir::DType::u8, t.shape());
        for (std::int64_t i = 0; i < t.size(); ++i) {
          u.mutable_data<std::uint8_t>()[static_cast<std::size_t>(i)] =
              static_cast<std::uint8_t>(static_cast<std::int32_t>(t.at(i)) + shift);
        }
        t = u;
      }
      TensorRef r = ref_of(key, out_.add_constant(t, g_.value(v).name), ir::dense_strides(t.shape()));
      return copies_of(key, at, r, because<cause::constant_is_part_of_another>());
    }
    if (n.op == Op::dequantize && key.second == Repr::codes) {  // the codes are there: another name for the same bytes
      at.after.push_back({n.inputs[0], Repr::raw});
      return copies_of(key, at, relabel(out_.allocations.at({n.inputs[0], Repr::raw}).refs[0], ref_of(key, -1, {})),
                       because<cause::given_codes_are_part_of_another>());
    }
    if (!is_alias(n)) return fail(ErrorKind::internal, fmt::format("no allocation for \"{}\"", g_.value(v).name));
    for (const ValueId in : n.inputs) at.after.push_back({in, key.second});
    if (n.op == Op::concat) {
      at.refs.push_back(forced[0]);
      for (std::size_t i = 1; i < forced.size(); ++i) {
        at.copies.push_back({key, forced[0], forced[i], because<cause::concatenation_wanted_twice>()});
      }
      return {};
    }
    if (pushed_.contains(key)) {
      at.refs.push_back(forced[0]);
      return {};
    }
    const TensorRef source = out_.allocations.at({n.inputs[0], key.second}).refs[0];
    std::optional<TensorRef> r;
    switch (n.op) {
      case Op::transpose: r = permuted(source, ir::get_ints(n.attrs, "perm")); break;
      case Op::slice: r = sliced(source, ir::get_ints(n.attrs, "starts"), ir::get_ints(n.attrs, "steps"), g_.type(v).shape); break;
      case Op::expand: r = broadcast(source, g_.type(v).shape); break;
      default: r = reshaped(source, g_.type(v).shape); break;
    }
    if (!r) {  // a reshape that no strides can show: copy into a layout that shows both shapes
      TensorRef dense = allocate(key, natural_[static_cast<std::size_t>(v)]);
      if (!reshaped(dense, source.dims)) dense.strides = ir::dense_strides(dense.dims);
      const TensorRef as_source = *reshaped(dense, source.dims);
      at.copies.push_back({{n.inputs[0], key.second},
                           source,
                           relabel(as_source, source),
                           because<cause::reshape_not_strided>(ir::to_string(source.dims), ir::to_string(g_.type(v).shape))});
      r = dense;
    }
    return copies_of(key, at, relabel(*r, ref_of(key, -1, {})), because<cause::moved_tensor_is_part_of_another>());
  }

  // Image kernels keep channels in vector lanes: they store them side by side, and a copy transposes.
  bool storable(const Node& n, const TensorRef& want) const {
    const Group& group =
        grouping_.groups[static_cast<std::size_t>(grouping_.of_node[static_cast<std::size_t>(g_.value(n.outputs[0]).producer)])];
    if (group.anchor == ir::kNone || want.dims.size() < 3 || want.dims[1] == 1) return true;
    const Op op = g_.node(group.anchor).op;
    const bool image = op == Op::conv || op == Op::conv_transpose || op == Op::max_pool || op == Op::avg_pool;
    return !image || want.strides[1] == 1;
  }

  Status copies_of(Key key, Allocation& at, const TensorRef& base, const Reason& why) {
    at.refs.push_back(base);
    const std::vector<TensorRef>& forced = forced_[key];
    for (std::size_t i = 0; i < forced.size(); ++i) {
      if (!satisfied_.contains({key, i})) at.copies.push_back({key, base, forced[i], why});
    }
    return {};
  }

  const Graph& g_;
  const Grids& grids_;
  const Grouping& grouping_;
  const std::set<ValueId>& direct_;
  const std::set<ValueId>& as_made_;
  std::map<Key, int> requests_;
  std::vector<NodeId> order_;
  std::vector<Strides> natural_;
  std::vector<bool> in_rows_, feeds_product_;  ///< see kept_in_rows
  std::set<ValueId> features_last_, images_, distributions_;
  std::map<Key, std::vector<TensorRef>> forced_;
  std::set<Key> pushed_;
  SliceWishes slices_;
  std::set<std::pair<Key, std::size_t>> satisfied_;  ///< wishes of slices that their source's store fulfils
  std::map<ValueId, TensorRef> input_ref_;
  Placement out_;
};

}  // namespace

Result<Placement> place(const Graph& g, const Grids& grids, const Grouping& grouping, const std::set<ValueId>& direct,
                        const std::set<ValueId>& as_made) {
  return Placer(g, grids, grouping, direct, as_made).run();
}

}  // namespace octavo::plan
