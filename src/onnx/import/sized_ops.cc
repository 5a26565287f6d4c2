// Operators whose results have sizes that data decide, or whose operands have: Shape, Size, Reshape, Expand, Slice, TopK, Range and others where numbers are
// not known at import; NonZero, Compress and Unique.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/sizes.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

Sizes& sizes_of(NodeContext& n) {
  return n.importer().sizes();
}

/// Operand i as numbers with bounds.
Result<Numbers> numbers(NodeContext& n, std::size_t i, std::string_view role) {
  if (auto known = sizes_of(n).elements(n, n.in(i))) return *known;
  OCTAVO_TRY(const Ints exact, n.constant_ints(i, role));  // too long a list, or the error
  Numbers out;
  for (const std::int64_t v : exact) out.push_back(Sizes::number(v));
  return out;
}

/// A list that is too large to be planned for.
Status fits(NodeContext& n, const Number& size, std::string_view what) {
  constexpr double kMost = 1 << 28;
  if (size.most <= kMost) return {};
  return n.unsupported("{} has no useful bound: at most {} elements; clip the number in the model (Min) to a bound", what,
                       size.most);
}

}  // namespace

Status sized_shape(NodeContext& n, std::size_t start, std::size_t end) {
  Sizes& s = sizes_of(n);
  Numbers out;
  for (std::size_t d = start; d < end; ++d) out.push_back(s.extent(n.graph(), n.in(0), d));
  n.set(0, s.list(n, out));
  return {};
}

Status sized_size(NodeContext& n) {
  Sizes& s = sizes_of(n);
  Number total = Sizes::number(1);
  for (std::size_t d = 0; d < n.shape(0).size(); ++d) total = s.mul(n, total, s.extent(n.graph(), n.in(0), d));
  n.set(0, s.scalar(n, total));
  return {};
}

Status sized_reshape(NodeContext& n) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const Numbers target, numbers(n, 1, "the target shape"));
  const bool allow_zero = n.attr_int("allowzero", 0) != 0;
  const Shape from = n.shape(0);
  constexpr std::array<std::int64_t, 4> kFactors{10007, 10009, 10037, 10039};  // primes
  Sizes::Marks marks{from, {}};
  std::size_t factors = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (!s.open(n.in(0), d)) continue;
    if (factors == kFactors.size())
      return n.unsupported("more than {} dimensions of \"{}\" have sizes that data decide", factors, n.input_name(0));
    marks.from[d] *= kFactors[factors++];
  }
  OCTAVO_CHECK(checked_count(marks.from, n.where()));
  Shape to;
  std::map<std::size_t, Number> open;
  std::int64_t known = 1, marked = 1;
  int rest = -1;
  const auto put = [&](std::int64_t room, std::int64_t mark) {
    to.push_back(room), marks.to.push_back(mark);
    known *= room, marked *= mark;
  };
  for (std::size_t i = 0; i < target.size(); ++i) {
    const Number& t = target[i];
    std::optional<std::size_t> same;
    if (t.known() && t.exact() == 0 && !allow_zero) {
      if (i >= from.size()) return n.bad("the target shape copies dimension {}, but the data is {}", i, ir::to_string(from));
      same = i;
    }
    for (std::size_t d = 0; d < from.size() && !t.known(); ++d) {
      if (s.open(n.in(0), d) && s.extent(n.graph(), n.in(0), d).key == t.key) same = d;
    }
    if (same) {
      put(from[*same], marks.from[*same]);
      if (s.open(n.in(0), *same)) open.emplace(i, s.extent(n.graph(), n.in(0), *same));
    } else if (t.known() && t.exact() != -1) {
      if (t.exact() < 0 || t.exact() > (1 << 30)) return n.bad("the target shape has an impossible dimension {}", t.exact());
      put(t.exact(), t.exact());
    } else {
      if (rest >= 0)
        return n.unsupported(
            "its target shape has several dimensions that are not known at import, and are no dimensions of \"{}\"",
            n.input_name(0));
      rest = static_cast<int>(i);
      put(1, 1);
      if (!t.known()) open.emplace(i, t);
    }
  }
  const std::int64_t total = ir::count(from), all = ir::count(marks.from);
  if (rest >= 0 && known > 0 && marked > 0 && total % known == 0 && all % marked == 0) {
    to[static_cast<std::size_t>(rest)] = total / known, marks.to[static_cast<std::size_t>(rest)] = all / marked;
  } else if (rest >= 0 || all != marked) {
    return n.unsupported("{} (with room for the most elements) does not divide into the target shape {}", ir::to_string(from),
                         ir::to_string(to));
  }
  OCTAVO_TRY(const ValueId y, s.reshaped(n, n.in(0), to, open, marks));
  n.set(0, y);
  return {};
}

Status sized_expand(NodeContext& n) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const Numbers target, numbers(n, 1, "the target shape"));
  const Shape from = n.shape(0);
  const std::size_t rank = std::max(target.size(), from.size());
  Shape shape;
  Sizes::Extents extents;
  for (std::size_t i = 0; i < rank; ++i) {
    const bool has_a = i + from.size() >= rank, has_b = i + target.size() >= rank;
    const Number a = has_a ? s.extent(n.graph(), n.in(0), i + from.size() - rank) : Sizes::number(1);
    const Number b = has_b ? target[i + target.size() - rank] : Sizes::number(1);
    const bool a_one = a.known() && a.least == 1, b_one = b.known() && b.least == 1;
    if (!a_one && !b_one && a.key != b.key && !(a.known() && !b.known())) {
      return n.unsupported(
          "dimension {} of \"{}\" has {} elements and the target shape another number; nothing says that they are equal", i,
          n.input_name(0), a.known() ? "known" : "data decide how many");
    }
    const Number& out = a_one ? b : a;
    OCTAVO_CHECK(fits(n, out, "the result"));
    const std::int64_t room = !a_one        ? from[i + from.size() - rank]
                              : out.known() ? out.exact()
                                            : static_cast<std::int64_t>(std::max(out.most, 2.0));
    shape.push_back(room);
    if (!out.known()) extents[i] = s.scalar(n, out);
  }
  OCTAVO_CHECK(checked_count(shape, n.where()));
  const Sizes::Plain plain(s);
  Compose c(n);
  ValueId y = c.op(Op::expand, {n.in(0)}, {{"shape", shape}});
  OCTAVO_CHECK(c.status());
  if (!extents.empty() && n.graph().is_constant(y))
    y = n.graph().add(Op::reshape, {y}, n.type_of(y), {{"shape", shape}}, {n.name()});
  s.set(y, extents);
  return n.result(y);
}

Status sized_constant_of_shape(NodeContext& n, ValueId value) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const Numbers dims, numbers(n, 0, "the shape"));
  Shape shape;
  Sizes::Extents extents;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    OCTAVO_CHECK(fits(n, dims[i], "the result"));
    shape.push_back(dims[i].known() ? dims[i].exact() : static_cast<std::int64_t>(std::max(dims[i].most, 2.0)));
    if (!dims[i].known()) extents[i] = s.scalar(n, dims[i]);
  }
  OCTAVO_CHECK(checked_count(shape, n.where()));
  const Sizes::Plain plain(s);
  Compose c(n);
  ValueId y = c.op(Op::expand, {c.reshape(value, Shape(shape.size(), 1))}, {{"shape", shape}});
  OCTAVO_CHECK(c.status());
  // A value of its own: constants of equal elements may be one.
  if (!extents.empty()) y = n.graph().add(Op::reshape, {y}, n.type_of(y), {{"shape", shape}}, {n.name()});
  s.set(y, extents);
  return n.result(y);
}

Status sized_slice(NodeContext& n) {
  Sizes& s = sizes_of(n);
  if (n.opset() < 10) return n.unsupported("Slice of opset {} on sizes that data decide; convert the model to opset 13", n.opset());
  if (!n.has(1) || !n.has(2)) return n.bad("starts and ends are required");
  OCTAVO_TRY(const Numbers starts, numbers(n, 1, "starts"));
  OCTAVO_TRY(const Numbers ends, numbers(n, 2, "ends"));
  Ints axes, steps(starts.size(), 1);
  if (n.has(3)) {
    OCTAVO_TRY(axes, n.constant_ints(3, "axes"));
  } else {
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (n.has(4)) {
    OCTAVO_TRY(steps, n.constant_ints(4, "steps"));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return n.bad("{} starts, {} ends, {} axes, {} steps: the numbers must agree", starts.size(), ends.size(), axes.size(),
                 steps.size());
  ValueId x = n.in(0);
  const Number zero = Sizes::number(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    OCTAVO_TRY(const std::int64_t axis, n.axis(axes[i], n.rank(0)));
    const auto a = static_cast<std::size_t>(axis);
    const Number size = s.extent(n.graph(), x, a);
    const auto bound = [&](const Number& v) -> Result<Number> {
      if (v.least < 0 && v.most >= 0)
        return n.unsupported("starts or ends are between {} and {}: whether they count from the end is known only at run time",
                             v.least, v.most);
      const Number at = v.most < 0 ? s.add(n, size, v) : v;
      return s.min(n, s.max(n, at, zero), size);
    };
    const bool exact = size.known() && starts[i].known() && ends[i].known();
    const std::int64_t room = n.shape_of(x)[a];
    const Sizes::Plain plain(s);
    Compose c(n);
    const Sizes::Extents before = s.extents(x);
    if (exact || steps[i] != 1) {
      if (!exact) return n.unsupported("a step of {} along dimension {}, whose size data decide", steps[i], axis);
      const std::int64_t step = steps[i], extent = size.exact();
      const auto clamped = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
        return std::clamp(v < 0 && v >= -extent ? v + extent : v, low, high);
      };
      if (step == 0) return n.bad("a step is 0");
      std::int64_t from =
          step > 0 ? clamped(starts[i].exact(), 0, extent) : clamped(starts[i].exact(), 0, std::max<std::int64_t>(extent - 1, 0));
      std::int64_t to = step > 0 ? clamped(ends[i].exact(), 0, extent) : clamped(ends[i].exact(), -1, extent);
      if (step > 0 ? from >= to : from <= to || extent == 0) from = to = 0;
      x = c.slice(x, axis, from, to, step);
      OCTAVO_CHECK(c.status());
      s.set(x, before);
      continue;
    }
    OCTAVO_TRY(const Number from, bound(starts[i]));
    OCTAVO_TRY(const Number to, bound(ends[i]));
    const Number count = s.max(n, s.sub(n, to, from), zero);
    if (from.known()) {
      const auto end = std::min(room, static_cast<std::int64_t>(to.most));
      if (from.exact() == 0 && end == room && count.key == size.key) continue;
      x = c.slice(x, axis, std::min(from.exact(), end), std::max(end, std::min(from.exact(), end)));
    } else {
      const ValueId at =
          c.add(c.counting(std::min(room, static_cast<std::int64_t>(std::max(count.most, 1.0))), 0, 1), s.scalar(n, from));
      x = c.gather(x, c.op(Op::min, {at, c.integers({}, {room - 1})}), axis);
    }
    OCTAVO_CHECK(c.status());
    if (n.shape_of(x)[a] > 0) {
      s.set(x, before);
      x = s.sized(n, x, a, count);
    }
  }
  return n.result(x);
}

Status sized_top_k(NodeContext& n) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), n.rank(0)));
  const auto a = static_cast<std::size_t>(axis);
  Number k = Sizes::number(n.opset() < 10 ? n.attr_int("k", 0) : 0);
  if (n.opset() >= 10) {
    OCTAVO_TRY(const Numbers given, numbers(n, 1, "k"));
    if (given.size() != 1) return n.bad("k has {} elements, needs one", given.size());
    k = given[0];
  }
  const std::int64_t room = n.shape(0)[a], most = std::min(room, static_cast<std::int64_t>(std::max(k.most, 0.0)));
  if (k.known() && k.exact() > room) return n.bad("k is {}, axis {} has at most {} elements", k.exact(), axis, room);
  const Attrs attrs{{"axis", axis}, {"k", most}, {"largest", n.attr_int("largest", 1)}, {"sorted", n.attr_int("sorted", 1)}};
  OCTAVO_TRY(const std::vector<ValueId> out, n.emit_many(Op::top_k, {n.in(0)}, attrs));
  for (std::size_t i = 0; i < 2; ++i) n.set(i, k.known() ? out[i] : s.sized(n, out[i], a, k));
  return {};
}

Status sized_pad(NodeContext& n) {
  Sizes& s = sizes_of(n);
  const std::string mode = n.attr_text("mode", "constant");
  if (n.opset() < 11) return n.unsupported("Pad of opset {} on sizes that data decide; convert the model to opset 13", n.opset());
  if (mode != "constant") return n.unsupported("mode \"{}\" on sizes that data decide; only constant is supported", mode);
  OCTAVO_TRY(const Numbers pads, numbers(n, 1, "pads"));
  double value = 0;
  if (n.has(2)) {
    OCTAVO_TRY(value, n.constant_scalar(2, "the pad value"));
  }
  Ints axes;
  if (n.has(3)) {
    OCTAVO_TRY(axes, n.constant_ints(3, "axes"));
  } else {
    for (std::int64_t d = 0; d < n.rank(0); ++d) axes.push_back(d);
  }
  if (pads.size() != 2 * axes.size()) return n.bad("{} pads for {} axes", pads.size(), axes.size());
  ValueId x = n.in(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    OCTAVO_TRY(const std::int64_t axis, n.axis(axes[i], n.rank(0)));
    const auto a = static_cast<std::size_t>(axis);
    const Number &before = pads[i], &after = pads[i + axes.size()], size = s.extent(n.graph(), x, a);
    if (before.known() && before.least == 0 && after.known() && after.least == 0) continue;
    if (!before.known() || before.least < 0 || after.least < 0)
      return n.unsupported("pads in front of dimension {}, or negative ones, that data decide", axis);
    const Number total = s.add(n, s.add(n, size, before), after);
    OCTAVO_CHECK(fits(n, total, "the result"));
    const Sizes::Extents extents = s.extents(x);
    x = s.filled(n, x, {a}, value);
    const Sizes::Plain plain(s);
    Compose c(n);
    Ints all(2 * n.shape(0).size(), 0);
    all[a] = before.exact();
    all[a + n.shape(0).size()] =
        std::max<std::int64_t>(static_cast<std::int64_t>(total.most) - before.exact() - n.shape_of(x)[a], 0);
    if (all[a] + all[a + n.shape(0).size()] > 0) x = c.op(Op::pad, {x}, {{"pads", all}, {"mode", mode}, {"value", value}});
    OCTAVO_CHECK(c.status());
    s.set(x, extents);
    x = s.sized(n, x, a, total);
  }
  return n.result(x);
}

Status sized_range(NodeContext& n) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const Numbers start, numbers(n, 0, "start"));
  OCTAVO_TRY(const Numbers limit, numbers(n, 1, "limit"));
  OCTAVO_TRY(const Numbers delta, numbers(n, 2, "delta"));
  if (start.size() != 1 || limit.size() != 1 || delta.size() != 1) return n.bad("start, limit and delta must be single numbers");
  const DType t = n.type(0).dtype;
  if (ir::is_float(t) || !delta[0].known() || delta[0].least == 0)
    return n.unsupported("Range of {} with a delta or a limit that data decide; only integers with a known delta are supported",
                         ir::name_of(t));
  const std::int64_t step = delta[0].exact(), by = std::abs(step);
  const Number span = step > 0 ? s.sub(n, limit[0], start[0]) : s.sub(n, start[0], limit[0]);
  const Number count =
      s.max(n, s.div(n, s.add(n, s.max(n, span, Sizes::number(0)), Sizes::number(by - 1)), Sizes::number(by)), Sizes::number(0));
  OCTAVO_CHECK(fits(n, count, "the result"));
  const Sizes::Plain plain(s);
  Compose c(n);
  const ValueId first = c.cast(s.scalar(n, start[0]), DType::s64);
  ValueId y = c.add(c.mul(c.counting(static_cast<std::int64_t>(std::max(count.most, 2.0)), 0, 1), c.integers({}, {step})), first);
  y = c.cast(y, t);
  OCTAVO_CHECK(c.status());
  if (n.graph().is_constant(y)) y = n.graph().add(Op::reshape, {y}, n.type_of(y), {{"shape", n.shape_of(y)}}, {n.name()});
  return n.result(s.sized(n, y, 0, count));
}

ValueId sized_indices(NodeContext& n, ValueId data, ValueId indices, std::size_t axis) {
  Sizes& s = sizes_of(n);
  if (!s.open(data, axis)) return indices;
  if (n.graph().is_constant(indices)) {
    const Tensor& t = n.graph().payload(indices);
    bool negative = false;
    for (std::int64_t i = 0; i < t.size(); ++i) negative = negative || t.at(i) < 0;
    if (!negative) return indices;
  }
  const Sizes::Extents extents = s.extents(indices);
  const Sizes::Plain plain(s);
  Compose c(n);
  const ValueId i = c.cast(indices, DType::s64);
  const ValueId at = c.where(c.less(i, c.integers({}, {0})), c.add(i, s.extents(data).at(axis)), i);
  s.set(at, extents);
  return at;
}

Result<ValueId> sized_choice(NodeContext& n, ValueId condition, ValueId a, ValueId b) {
  Sizes& s = sizes_of(n);
  const std::size_t rank = n.shape_of(a).size();
  Sizes::Extents extents;
  Shape room;
  const Sizes::Plain plain(s);
  Compose c(n);
  for (std::size_t d = 0; d < rank; ++d) {
    const Number x = s.extent(n.graph(), a, d), y = s.extent(n.graph(), b, d);
    Number size = x;
    if (x.key != y.key)
      size = s.count(c.where(condition, s.scalar(n, x), s.scalar(n, y)), std::min(x.least, y.least), std::max(x.most, y.most));
    room.push_back(size.known() ? size.exact() : std::max({n.shape_of(a)[d], n.shape_of(b)[d], std::int64_t{2}}));
    if (!size.known()) extents[d] = s.scalar(n, size);
  }
  const auto in_room = [&](ValueId v) {
    if (ir::count(n.shape_of(v)) == 0) return c.filled(n.type_of(v).dtype, room, 0);
    for (std::size_t d = 0; d < rank && c.ok(); ++d) {
      if (n.shape_of(v)[d] != room[d]) v = s.sized(n, v, d, Sizes::number(room[d]));
    }
    return v;
  };
  const ValueId y = c.where(condition, in_room(a), in_room(b));
  OCTAVO_CHECK(c.status());
  s.set(y, extents);
  return y;
}

Status non_zero(NodeContext& n) {
  Sizes& s = sizes_of(n);
  const Shape dims = n.shape(0);
  if (dims.empty()) return n.unsupported("NonZero of a scalar; reshape it to one dimension");
  std::vector<std::size_t> all;
  for (std::size_t d = 0; d < dims.size(); ++d) all.push_back(d);
  const ValueId x = s.filled(n, n.in(0), all, 0);
  const Sizes::Plain plain(s);
  Compose c(n);
  const auto [flat, count] = s.positions(n, c.reshape(x, {ir::count(dims)}), n.in(0));
  OCTAVO_CHECK(c.status());
  const std::int64_t room = n.shape_of(flat)[0];
  const Shape strides = ir::dense_strides(dims);
  std::vector<ValueId> rows;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    ValueId at = flat;
    if (strides[d] != 1) at = c.div(at, c.integers({}, {strides[d]}));
    if (d != 0) at = c.op(Op::mod, {at, c.integers({}, {dims[d]})});
    rows.push_back(c.reshape(at, {1, room}));
  }
  const ValueId y = c.concat(rows, 0);
  OCTAVO_CHECK(c.status());
  if (!count.known()) s.set(y, {{1, s.scalar(n, count)}});
  return n.result(y);
}

Status compress(NodeContext& n) {
  Sizes& s = sizes_of(n);
  ValueId x = n.in(0);
  std::int64_t axis = 0;
  if (n.has_attr("axis")) {
    OCTAVO_TRY(axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  } else {
    OCTAVO_TRY(x, n.reshape(x, {ir::count(n.shape(0))}));
  }
  OCTAVO_CHECK(n.need_rank(1, 1, 1));
  if (n.shape(1)[0] > n.shape_of(x)[static_cast<std::size_t>(axis)])
    return n.bad("the condition has {} elements for {}", n.shape(1)[0], ir::to_string(n.shape_of(x)));
  const auto [at, count] = s.positions(n, s.filled(n, n.in(1), {0}, 0), n.in(1));
  (void)count;
  return n.result(n.emit(Op::gather, {x, at}, {{"axis", axis}}));
}

/// Equal rows get to be neighbours in a sorted order; the first of each run is the one that stands for it.
Status unique(NodeContext& n) {
  Sizes& s = sizes_of(n);
  const bool sorted = n.attr_int("sorted", 1) != 0, along = n.has_attr("axis");
  std::int64_t axis = 0;
  ValueId rows = n.in(0);
  if (s.open(rows))
    return n.unsupported("Unique of a tensor whose size data decide ({})", s.source(n.graph(), s.extents(rows).begin()->second));
  if (along) {
    OCTAVO_TRY(axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  }
  const Sizes::Plain plain(s);
  Compose c(n);
  const Shape dims = n.shape(0);
  const std::int64_t count = along ? dims[static_cast<std::size_t>(axis)] : ir::count(dims);
  if (count == 0) return n.unsupported("Unique of no elements");
  Ints perm{axis};
  for (std::int64_t d = 0; d < n.rank(0); ++d) {
    if (d != axis) perm.push_back(d);
  }
  const std::int64_t width = along ? ir::count(dims) / count : 1;
  constexpr std::int64_t kMostColumns = 64;
  if (width > kMostColumns)
    return n.unsupported("Unique along axis {} compares {} elements of each; at most {} are supported", axis, width, kMostColumns);
  rows = c.reshape(along && n.rank(0) > 0 ? c.transpose(rows, perm) : rows, {count, width});
  // Whole numbers of 8 and 16 bits, and truths, are exact as floats; larger ones are sorted as they are.
  const DType t = n.type(0).dtype;
  const bool narrow = t == DType::boolean || t == DType::u8 || t == DType::s8 || t == DType::u16 || t == DType::s16;
  const ValueId keys = narrow ? c.cast(rows, DType::f32) : rows;
  const auto sort = [&](ValueId list) {
    return c.many(Op::top_k, {list}, 2,
                  {{"axis", std::int64_t{0}}, {"k", count}, {"largest", std::int64_t{0}}, {"sorted", std::int64_t{1}}})[1];
  };
  const auto column = [&](ValueId v, std::int64_t k) { return c.reshape(c.slice(v, 1, k, k + 1), {count}); };
  ValueId order = ir::kNone;  // equal elements stay in order, so the last column is sorted first
  for (std::int64_t k = width; k-- > 0;) {
    const ValueId list = column(keys, k);
    if (order == ir::kNone) {
      order = sort(list);
    } else {
      order = c.gather(order, sort(c.gather(list, order, 0)), 0);
    }
  }
  const ValueId in_order = c.gather(keys, order, 0);
  // first: the row differs from the one before it
  ValueId differs = c.mask({1}, {true});
  if (count > 1) {
    ValueId same = ir::kNone;
    for (std::int64_t k = 0; k < width; ++k) {
      const ValueId list = column(in_order, k);
      const ValueId one = c.equal(c.slice(list, 0, 1, count), c.slice(list, 0, 0, count - 1));
      same = same == ir::kNone ? one : c.both(same, one);
    }
    const ValueId flags = c.cast(c.negated(same), DType::u8);
    differs = c.cast(c.concat({c.filled(DType::u8, {1}, 1), flags}, 0), DType::boolean);
  }
  const ValueId group =
      c.sub(c.op(Op::cumulate, {c.cast(differs, DType::s64)}, {{"axis", std::int64_t{0}}, {"function", std::string("sum")}}),
            c.integers({}, {1}));
  auto [first, many] = s.positions(n, differs);  // in sorted order
  OCTAVO_CHECK(c.status());
  const ValueId found = s.scalar(n, many);
  const std::int64_t room = n.shape_of(first)[0];
  const ValueId slots = c.counting(room, 0, 1), inside = c.less(slots, found);
  // How many rows each run has: up to the next first one, or the end.
  const ValueId next =
      c.where(c.less(c.add(slots, c.integers({}, {1})), found),
              room > 1 ? c.gather(first, c.op(Op::min, {c.add(slots, c.integers({}, {1})), c.integers({}, {room - 1})}), 0) : first,
              c.integers({}, {count}));
  ValueId counts = c.sub(next, first), positions = c.gather(order, first, 0), of_group = ir::kNone;
  if (!sorted) {  // by where they occur first
    const ValueId last = c.integers({}, {std::numeric_limits<std::int64_t>::max()});
    const ValueId by =
        c.many(Op::top_k, {c.where(inside, positions, last)}, 2,
               {{"axis", std::int64_t{0}}, {"k", room}, {"largest", std::int64_t{0}}, {"sorted", std::int64_t{1}}})[1];
    positions = c.gather(positions, by, 0);
    counts = c.gather(counts, by, 0);
    const ValueId ids = c.op(Op::scatter, {c.expand(c.integers({1}, {0}), {room}), by, slots},
                             {{"kind", std::string("elements")}, {"reduction", std::string("none")}, {"axis", std::int64_t{0}}});
    of_group = c.gather(ids, group, 0);
  }
  const ValueId inverse =
      c.op(Op::scatter, {c.expand(c.integers({1}, {0}), {count}), order, of_group == ir::kNone ? group : of_group},
           {{"kind", std::string("elements")}, {"reduction", std::string("none")}, {"axis", std::int64_t{0}}});
  ValueId y = along ? c.gather(n.in(0), positions, axis) : c.gather(c.reshape(n.in(0), {count}), positions, 0);
  OCTAVO_CHECK(c.status());
  const auto sized = [&](ValueId v, std::int64_t at) {
    if (!many.known()) s.set(v, {{static_cast<std::size_t>(at), found}});
    return v;
  };
  n.set(0, sized(y, axis));
  n.set(1, sized(positions, 0));
  n.set(2, inverse);
  n.set(3, sized(counts, 0));
  for (std::size_t i = 1; i < 4; ++i) n.declare(i, DType::s64);
  return {};
}

}  // namespace octavo::onnx
