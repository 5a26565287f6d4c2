// What each IR operator does with operands whose sizes are open: Sizes::prepare, before it is emitted.
#include <algorithm>
#include <limits>
#include <string>

#include "ir/infer.h"
#include "ir/output_sizes.h"
#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

namespace {

Number bounded(Number n, std::int64_t most) {
  n.most = static_cast<double>(most);
  return n;
}

}  // namespace

Status Sizes::pointwise(NodeContext& n, std::vector<ValueId>& inputs) {
  const ir::Graph& g = n.graph();
  std::size_t most = 0;
  for (const ValueId v : inputs) most = std::max(most, v == ir::kNone ? 0 : rank(g, v));
  for (std::size_t d = 0; d < most; ++d) {  // from the last dimension on
    std::optional<ValueId> count;
    ValueId first = ir::kNone;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const ValueId v : inputs) {
      if (v == ir::kNone || d >= rank(g, v)) continue;
      const std::size_t axis = rank(g, v) - 1 - d;
      if (!open(v, axis)) continue;
      const ValueId own = extents(v).at(axis);
      if (count && *count != own) {
        return n.unsupported(
            "its operands \"{}\" and \"{}\" have sizes that data decide ({} and {}), and nothing says that they are equal",
            g.value(first).name, g.value(v).name, source(g, *count), source(g, own));
      }
      count = own, first = v;
      least = std::min(least, room(g, v, axis));
    }
    if (!count) continue;
    for (ValueId& v : inputs) {
      if (v == ir::kNone || d >= rank(g, v)) continue;
      const std::size_t axis = rank(g, v) - 1 - d;
      const std::int64_t have = room(g, v, axis);
      if (have == 1) continue;
      if (!open(v, axis)) {
        return n.unsupported(
            "its operand \"{}\" has {} elements along a dimension, the other a number that data decide ({}), and nothing says that "
            "they are equal",
            g.value(v).name, have, source(g, *count));
      }
      if (have > least) v = sized(n, v, axis, bounded(counts_.at(*count), least));
    }
  }
  return {};
}

Status Sizes::concatenate(NodeContext& n, const std::vector<ValueId>& inputs, std::size_t axis,
                          std::optional<std::vector<ValueId>>& done) {
  const ir::Graph& g = n.graph();
  Extents others;
  for (const ValueId v : inputs) {
    for (const auto& [d, count] : extents(v)) {
      if (d == axis) continue;
      if (others.contains(d) && others.at(d) != count)
        return n.unsupported("it joins tensors whose dimension {} has different sizes that data decide ({} and {})", d,
                             source(g, others.at(d)), source(g, count));
      others[d] = count;
    }
  }
  for (const auto& [d, count] : others) {
    for (const ValueId v : inputs) {
      if (room(g, v, axis) > 0 && !open(v, d))
        return n.unsupported("it joins tensors whose dimension {} has a size that data decide ({}) and one that is known", d,
                             source(g, count));
    }
  }
  const bool along = std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return open(v, axis); });
  if (!along) return {};
  const Plain plain(*this);
  Compose c(n);
  // Element i of the result is i + the free room of all parts that end before it.
  Ints counted;
  for (const ValueId v : inputs) counted.push_back(open(v, axis) ? static_cast<std::int64_t>(extents(v).at(axis)) : -1);
  ValueId whole = c.op(Op::concat, inputs, {{"axis", static_cast<std::int64_t>(axis)}, {ir::kCounted, counted}});
  OCTAVO_CHECK(c.status());
  const std::int64_t total = room(g, whole, axis);
  Number end = number(0);
  ValueId at = ir::kNone;
  const ValueId own = c.counting(total, 0, 1);
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    const Number size = extent(g, inputs[p], axis);
    end = add(n, end, size);
    if (p + 1 == inputs.size() || size.known()) continue;
    const Number free = sub(n, number(room(g, inputs[p], axis)), size);
    const ValueId moved = c.where(c.less(own, scalar(n, end)), c.number(0, own), scalar(n, free));
    at = c.add(at == ir::kNone ? own : at, moved);
  }
  if (at != ir::kNone) {
    at = c.op(Op::min, {at, c.integers({}, {total - 1})});
    whole = c.gather(whole, at, static_cast<std::int64_t>(axis));
  }
  OCTAVO_CHECK(c.status());
  others[axis] = scalar(n, end);
  set(whole, others);
  done = {whole};
  return {};
}

/// Where the number of updates is that of the first dimension alone, the operator takes it. Else updates that are not there go to a row behind the last one, which is cut off.
Status Sizes::scatter(NodeContext& n, const std::vector<ValueId>& inputs, const Attrs& attrs,
                      std::optional<std::vector<ValueId>>& done) {
  const ir::Graph& g = n.graph();
  const bool nd = ir::get_text(attrs, "kind", "elements") == "nd";
  const auto axis = static_cast<std::size_t>(nd ? 0 : ir::get_int(attrs, "axis", 0));
  std::vector<std::size_t> all;
  for (std::size_t d = 0; d < rank(g, inputs[1]); ++d) all.push_back(d);
  const ValueId mask = there(n, inputs[1], all);
  if (mask == ir::kNone && open(inputs[2]))
    return n.unsupported("its updates have a size that data decide ({}), its indices not",
                         source(g, extents(inputs[2]).begin()->second));
  const bool counts_from_end = open(inputs[0], axis);
  if (nd && open(inputs[0]))
    return n.unsupported("its data have a size that data decide ({})", source(g, extents(inputs[0]).begin()->second));
  if (mask == ir::kNone && !counts_from_end) return {};
  const Plain plain(*this);
  Compose c(n);
  if (open(inputs[1], 0) && extents(inputs[1]).size() == 1 && rank(g, inputs[1]) > (nd ? 1U : 0U)) {
    ValueId at = inputs[1];
    if (counts_from_end) {
      at = c.cast(at, DType::s64);
      at = c.where(c.less(at, c.integers({}, {0})), c.add(at, extents(inputs[0]).at(axis)), at);
    }
    const ValueId y = c.op(Op::scatter, {inputs[0], at, inputs[2], extents(inputs[1]).at(0)}, attrs);
    OCTAVO_CHECK(c.status());
    set(y, extents(inputs[0]));
    done = {y};
    return {};
  }
  Shape shape = n.shape_of(inputs[0]);
  const std::int64_t rows = shape[axis];
  shape[axis] = 1;
  const DType t = n.type_of(inputs[0]).dtype;
  const ValueId longer = c.concat({inputs[0], c.filled(t, shape, 0)}, static_cast<std::int64_t>(axis));
  ValueId wrapped = c.cast(inputs[1], DType::s64), nowhere = c.integers({}, {rows});
  if (nd) {
    const std::int64_t length = n.shape_of(inputs[1]).back();
    Ints extents(n.shape_of(inputs[0]).begin(), n.shape_of(inputs[0]).begin() + length), first(static_cast<std::size_t>(length), 0);
    first[0] = rows;
    nowhere = c.integers({length}, first);
    wrapped = c.where(c.less(wrapped, c.integers({}, {0})), c.add(wrapped, c.integers({length}, extents)), wrapped);
  } else {
    const ValueId extent = counts_from_end ? extents(inputs[0]).at(axis) : c.integers({}, {rows});
    wrapped = c.where(c.less(wrapped, c.integers({}, {0})), c.add(wrapped, extent), wrapped);
  }
  const ValueId indices = mask == ir::kNone ? wrapped : c.where(mask, wrapped, nowhere);
  Attrs with = attrs;
  Ints counted(rank(g, inputs[2]), -1);
  for (const auto& [d, count] : extents(inputs[1])) {
    if (d < counted.size()) counted[d] = static_cast<std::int64_t>(count);
  }
  if (mask != ir::kNone) with[ir::kCounted] = counted;
  const ValueId y = c.slice(c.op(Op::scatter, {longer, indices, inputs[2]}, with), static_cast<std::int64_t>(axis), 0, rows);
  OCTAVO_CHECK(c.status());
  set(y, extents(inputs[0]));
  done = {y};
  return {};
}

Status Sizes::prepare(NodeContext& n, Op op, std::vector<ValueId>& inputs, Attrs& attrs,
                      std::optional<std::vector<ValueId>>& done) {
  if (plain_ > 0 || !open_operand(inputs)) return {};
  const ir::Graph& g = n.graph();
  const ValueId x = inputs[0];
  const auto refuse = [&](ValueId v, std::size_t axis) {
    return n.unsupported(
        "it computes {} along dimension {} of \"{}\", whose size data decide ({}); do this step on the results of a run",
        ir::name_of(op), axis, g.value(v).name, source(g, extents(v).at(axis)));
  };
  /// All open dimensions of v but those in `may` are refused.
  const auto only = [&](ValueId v, const std::vector<std::size_t>& may) -> Status {
    for (const auto& [axis, count] : extents(v)) {
      if (std::find(may.begin(), may.end(), axis) == may.end()) return refuse(v, axis);
    }
    return {};
  };
  const auto axis_of = [&](std::int64_t fallback) {
    const std::int64_t a = ir::get_int(attrs, "axis", fallback);
    return static_cast<std::size_t>(a < 0 ? a + static_cast<std::int64_t>(rank(g, x)) : a);
  };
  if (ir::has_trait(op, ir::kPointwise) || op == Op::bitwise) return pointwise(n, inputs);
  // The rules below read dimensions and attributes by number. Only of a reshape may the shape fit behind its rule alone.
  if (op != Op::reshape) {
    ir::Node node;
    node.op = op, node.inputs = inputs, node.attrs = attrs;
    while (!node.inputs.empty() && node.inputs.back() == ir::kNone) node.inputs.pop_back();
    if (const auto types = ir::infer(g, node); !types) return fail(types.error().kind, n.where() + ": " + types.error().message);
  }
  const DType t = g.type(x).dtype;
  if (ir::has_trait(op, ir::kImages) && op != Op::instance_norm) {
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      if (inputs[i] != ir::kNone) OCTAVO_CHECK(only(inputs[i], {}));
    }
    return only(x, {0});
  }
  switch (op) {
    case Op::math:
    case Op::bit_cast:
    case Op::transpose:
    case Op::expand: return {};
    case Op::reshape: {
      const Ints to = ir::get_ints(attrs, "shape");
      OCTAVO_TRY(const ValueId y, reshaped(n, x, to, {}, {}));
      done = {y};
      return {};
    }
    case Op::concat: return concatenate(n, inputs, axis_of(0), done);
    case Op::slice: {
      const Ints starts = ir::get_ints(attrs, "starts"), ends = ir::get_ints(attrs, "ends"), steps = ir::get_ints(attrs, "steps");
      for (const auto& [d, count] : extents(x)) {
        if (starts[d] != 0 || steps[d] != 1 || ends[d] < room(g, x, d)) return refuse(x, d);
      }
      return {};
    }
    case Op::pad: {
      const Ints pads = ir::get_ints(attrs, "pads");
      for (const auto& [d, count] : extents(x)) {
        if (pads[d] != 0 || pads[d + rank(g, x)] != 0) return refuse(x, d);
      }
      return {};
    }
    case Op::tile: {
      const Ints repeats = ir::get_ints(attrs, "repeats");
      for (const auto& [d, count] : extents(x)) {
        if (repeats[d + repeats.size() - rank(g, x)] != 1) return refuse(x, d);
      }
      return {};
    }
    case Op::gather:  // indices that count are less than the size
      if (const std::size_t axis = axis_of(0); open(x, axis))
        attrs[ir::kCounted] = Ints{static_cast<std::int64_t>(extents(x).at(axis))};
      return {};
    case Op::gather_elements: {
      const std::size_t axis = axis_of(0);
      if (open(x, axis)) attrs[ir::kCounted] = Ints{static_cast<std::int64_t>(extents(x).at(axis))};
      for (const auto& [d, count] : extents(x)) {
        if (d != axis && (!open(inputs[1], d) || extents(inputs[1]).at(d) != count)) return refuse(x, d);
      }
      return {};
    }
    case Op::gather_nd: {
      if (ir::get_int(attrs, "batch_dims", 0) != 0) return only(x, {});
      Ints counted;
      for (std::size_t d = 0; d < static_cast<std::size_t>(n.shape_of(inputs[1]).back()); ++d)
        counted.push_back(open(x, d) ? static_cast<std::int64_t>(extents(x).at(d)) : -1);
      if (open(x)) attrs[ir::kCounted] = counted;
      return {};
    }
    case Op::scatter: return scatter(n, inputs, attrs, done);
    case Op::reduce_sum:
    case Op::reduce_prod:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_l2:
    case Op::reduce_mean: {
      std::vector<std::size_t> axes;
      for (const std::int64_t a : ir::get_ints(attrs, "axes")) axes.push_back(static_cast<std::size_t>(a));
      const bool along = std::any_of(axes.begin(), axes.end(), [&](std::size_t a) { return open(x, a); });
      if (!along) return {};
      const double fill = op == Op::reduce_max ? lowest(t) : op == Op::reduce_min ? highest(t) : op == Op::reduce_prod ? 1 : 0;
      if (op != Op::reduce_mean) {
        inputs[0] = filled(n, x, axes, fill);
        return {};
      }
      Number many = number(1);
      for (const std::size_t a : axes) many = mul(n, many, extent(g, x, a));
      Compose c(n);
      const ValueId sum = c.op(Op::reduce_sum, {filled(n, x, axes, 0)}, attrs);
      done = {c.div(sum, c.cast(scalar(n, many), t))};
      return c.status();
    }
    case Op::arg_max: inputs[0] = filled(n, x, {axis_of(0)}, lowest(t)); return {};
    case Op::softmax:
    case Op::log_softmax: inputs[0] = filled(n, x, {axis_of(-1)}, lowest(t)); return {};
    case Op::top_k:
      inputs[0] = filled(n, x, {axis_of(-1)}, ir::get_int(attrs, "largest", 1) != 0 ? lowest(t) : highest(t));
      return {};
    case Op::cumulate:
      if (ir::get_int(attrs, "reverse", 0) != 0)
        inputs[0] = filled(n, x, {axis_of(0)}, ir::get_text(attrs, "function", "sum") == "prod" ? 1 : 0);
      return {};
    case Op::matmul:
    case Op::gemm: {
      const std::size_t k = rank(g, x) - 1, other = rank(g, inputs[1]) < 2 ? 0 : rank(g, inputs[1]) - 2;
      if (open(x, k) != open(inputs[1], other) || (open(x, k) && extents(x).at(k) != extents(inputs[1]).at(other)))
        return open(x, k) ? refuse(x, k) : only(inputs[1], {});
      if (open(x, k)) {
        inputs[0] = filled(n, x, {k}, 0);
        inputs[1] = filled(n, inputs[1], {other}, 0);
      }
      for (std::size_t d = 2; d < std::max(rank(g, x), rank(g, inputs[1])); ++d) {  // batches
        const bool a = d < rank(g, x), b = d < rank(g, inputs[1]);
        const std::size_t i = a ? rank(g, x) - 1 - d : 0, j = b ? rank(g, inputs[1]) - 1 - d : 0;
        if (!a || !b || room(g, x, i) == 1 || room(g, inputs[1], j) == 1) continue;
        if (open(x, i) != open(inputs[1], j) || (open(x, i) && extents(x).at(i) != extents(inputs[1]).at(j)))
          return open(x, i) ? refuse(x, i) : refuse(inputs[1], j);
      }
      return inputs.size() > 2 && op == Op::gemm ? only(inputs[2], {}) : Status();
    }
    case Op::dynamic_quantize: {
      std::vector<std::size_t> all;
      for (const auto& [d, count] : extents(x)) all.push_back(d);
      inputs[0] = filled(n, x, all, 0);  // 0 is always in the range
      return {};
    }
    case Op::layer_norm: {
      const std::size_t first = axis_of(-1);
      for (const auto& [d, count] : extents(x)) {
        if (d >= first) return refuse(x, d);
      }
      return inputs.size() > 1 ? only(inputs[1], {}) : Status();
    }
    case Op::instance_norm: return only(x, {0, 1});
    case Op::resize_nearest:
      for (const auto& [d, count] : extents(x)) {
        if (!ir::get_ints(attrs, "index" + std::to_string(d)).empty()) return refuse(x, d);
      }
      return {};
    case Op::det:
      for (const auto& [d, count] : extents(x)) {
        if (d + 2 >= rank(g, x)) return refuse(x, d);
      }
      return {};
    case Op::non_zero: {
      if (inputs.size() == 1) inputs[0] = filled(n, x, {0}, 0);
      return {};
    }
    case Op::non_max_suppression: {
      OCTAVO_CHECK(only(x, {0, 1}));
      const std::vector<std::size_t> all{0, 1, 2};
      if (open(x) && !open(inputs[1])) return only(x, {});
      inputs[1] = filled(n, inputs[1], all, lowest(DType::f32));
      if (open(x, 1))
        attrs[ir::kCounted] =
            Ints{static_cast<std::int64_t>(extents(x).at(1))};  // no other box is selected while one of these is left
      return {};
    }
    case Op::roi_align: {
      OCTAVO_CHECK(only(x, {0}));
      OCTAVO_CHECK(only(inputs[1], {0}));
      if (open(inputs[1], 0) != open(inputs[2], 0)) return open(inputs[1], 0) ? refuse(inputs[1], 0) : refuse(inputs[2], 0);
      inputs[2] = filled(n, inputs[2], {0}, -1);  // zeros
      return {};
    }
    default: {
      const ValueId v = *open_operand(inputs);
      return refuse(v, extents(v).begin()->first);
    }
  }
}

}  // namespace octavo::onnx
