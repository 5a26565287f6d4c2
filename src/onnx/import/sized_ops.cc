// Operators whose results have sizes that data decide, or whose operands have: Shape, Size, Reshape, Expand, Slice, TopK, Range and others where numbers are
// not known at import. Past 400 lines: one handler an operator.
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

/// Operand i as numbers with bounds; without them where data decide the numbers, and no input that a first run would bind.
Result<Numbers> numbers(NodeContext& n, std::size_t i, std::string_view role) {
  Sizes& s = sizes_of(n);
  if (n.graph().is_constant(n.in(i)) && ir::is_float(n.type(i).dtype))
    return tl::unexpected<Error>(n.constant_ints(i, role).error());
  if (auto known = s.elements(n, n.in(i))) return *known;
  if (!n.graph().is_constant(n.in(i)) && (s.given(n) || !n.importer().decided_late(n))) {
    if (auto raw = s.raw(n, n.in(i))) return *raw;
  }
  OCTAVO_TRY(const Ints exact, n.constant_ints(i, role));  // too long a list, or the error
  Numbers out;
  for (const std::int64_t v : exact) out.push_back(Sizes::number(v));
  return out;
}

/// A size that can be planned for: by its own bounds, or by one that is given.
Result<Number> fit(NodeContext& n, const Number& size, std::string_view what) {
  if (size.known()) return size;
  const auto bound = sizes_of(n).given(n);
  const Number out = bound ? sizes_of(n).limited(n, size, *bound) : size;
  if (out.most <= static_cast<double>(kMostElements) && out.least >= 0) return out;
  return n.unsupported("data decide the size of {}, which has no useful bound; {}", what, bound_advice(n));
}

}  // namespace

std::string bound_advice(const NodeContext& n) {
  return fmt::format("give one: --max-elements {}=N (max_elements of octavo.build), or clip the number in the model (Min)",
                     n.proto().output_size() > 0 ? n.proto().output(0) : n.name());
}

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
  for (auto& [d, size] : open) {  // a number that nothing bounds
    if (size.least < 0) size = s.limited(n, size, {to[d], n.input_name(1)});
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
    Number out = a_one ? b : a;
    if (a_one) {
      OCTAVO_TRY(out, fit(n, out, "the result"));
    }
    const std::int64_t room = !a_one ? from[i + from.size() - rank] : out.known() ? out.exact() : out.room(2);
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
  OCTAVO_TRY(Numbers dims, numbers(n, 0, "the shape"));
  Shape shape;
  Sizes::Extents extents;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    OCTAVO_TRY(dims[i], fit(n, dims[i], "the result"));
    shape.push_back(dims[i].known() ? dims[i].exact() : dims[i].room(2));
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

/// Repeats that data decide, or a size that they decide: element i of the result is element i modulo the size.
Status sized_tile(NodeContext& n) {
  Sizes& s = sizes_of(n);
  OCTAVO_TRY(const Numbers repeats, numbers(n, 1, "repeats"));
  if (static_cast<std::int64_t>(repeats.size()) != n.rank(0))
    return n.bad("{} repeats for {}", repeats.size(), ir::to_string(n.shape(0)));
  ValueId x = n.in(0);
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d].known() && repeats[d].exact() == 1) continue;
    const Number size = s.extent(n.graph(), x, d);
    OCTAVO_TRY(const Number total, fit(n, s.mul(n, size, repeats[d]), "the result"));
    const Sizes::Extents before = s.extents(x);
    const Sizes::Plain plain(s);
    Compose c(n);
    const std::int64_t room = total.room(2);
    const ValueId one = c.integers({}, {1});
    const ValueId at =
        c.op(Op::mod, {c.counting(room, 0, 1), size.known() ? c.integers({}, {std::max<std::int64_t>(size.exact(), 1)})
                                                            : c.op(Op::max, {s.scalar(n, size), one})});
    x = c.gather(x, at, static_cast<std::int64_t>(d));
    OCTAVO_CHECK(c.status());
    s.set(x, before);
    x = s.sized(n, x, d, total);
  }
  return n.result(x);
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
      Number at = v.most < 0 ? s.add(n, size, v) : v;
      if (v.least < 0 && v.most >= 0) {  // whether it counts from the end is known only at run time
        const Sizes::Plain plain(s);
        Compose c(n);
        const ValueId given = s.scalar(n, v), extent = s.scalar(n, size);
        const ValueId counted = c.where(c.less(given, c.integers({}, {0})), c.add(given, extent), given);
        OCTAVO_CHECK(c.status());
        at = s.count(counted, v.least, std::max(v.most, size.most));
      }
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
      const auto end = std::min(room, whole_number(to.most));
      if (from.exact() == 0 && end == room && count.key == size.key) continue;
      x = c.slice(x, axis, std::min(from.exact(), end), std::max(end, std::min(from.exact(), end)));
    } else {
      const ValueId at = c.add(c.counting(std::min(room, count.room(1)), 0, 1), s.scalar(n, from));
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
    if (!k.known() && k.least < 0) k = s.limited(n, k, {n.shape(0)[a], n.input_name(1)});
  }
  const std::int64_t room = n.shape(0)[a], most = std::min(room, k.room());
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
    OCTAVO_TRY(const Number total, fit(n, s.add(n, s.add(n, size, before), after), "the result"));
    const Sizes::Extents extents = s.extents(x);
    x = s.filled(n, x, {a}, value);
    const Sizes::Plain plain(s);
    Compose c(n);
    Ints all(2 * n.shape(0).size(), 0);
    all[a] = before.exact();
    all[a + n.shape(0).size()] = std::max<std::int64_t>(whole_number(total.most) - before.exact() - n.shape_of(x)[a], 0);
    if (all[a] + all[a + n.shape(0).size()] > 0) x = c.op(Op::pad, {x}, {{"pads", all}, {"mode", mode}, {"value", value}});
    OCTAVO_CHECK(c.status());
    s.set(x, extents);
    x = s.sized(n, x, a, total);
  }
  return n.result(x);
}

namespace {

/// Where element i of a resized dimension comes from, for i = 0, 1, ... up to the most: floats, as resize computes them from sizes (ops_resize.cc).
ValueId source_places(Compose& c, const std::string& coordinates, std::int64_t most, ValueId in, ValueId out) {
  const ValueId i = c.cast(c.counting(most, 0, 1), DType::f32), one = c.number(1, i), half = c.number(0.5, i);
  const ValueId scale = c.div(out, in);
  if (coordinates == "asymmetric") return c.div(i, scale);
  if (coordinates == "align_corners") {
    const ValueId steps = c.op(Op::max, {c.sub(out, one), one});  // of one element: the first
    return c.div(c.mul(i, c.sub(in, one)), steps);
  }
  const ValueId at = c.sub(c.div(c.add(i, half), scale), half);
  return coordinates == "half_pixel" ? at : c.where(c.less(one, out), at, c.number(0, i));  // pytorch_half_pixel
}

ValueId nearest_place(Compose& c, const std::string& mode, ValueId at) {
  const ValueId half = c.number(0.500001, at);  // almost a half counts as one (nearest_index of resize_taps.cc)
  if (mode == "floor") return c.op(Op::floor, {at});
  if (mode == "ceil") return c.op(Op::ceil, {at});
  if (mode == "round_prefer_ceil") return c.op(Op::floor, {c.add(at, half)});
  return c.op(Op::ceil, {c.sub(at, half)});  // round_prefer_floor
}

}  // namespace

/// Elements, or means of two, by indices that a run computes, one dimension after the other.
Status sized_resize(NodeContext& n, const Ints& axes) {
  Sizes& s = sizes_of(n);
  const std::string mode = n.attr_text("mode", "nearest"),
                    coordinates = n.attr_text("coordinate_transformation_mode", "half_pixel"),
                    nearest = n.attr_text("nearest_mode", "round_prefer_floor");
  const bool simple = n.attr_int("antialias", 0) == 0 && n.attr_text("keep_aspect_ratio_policy", "stretch") == "stretch" &&
                      (mode == "nearest" || mode == "linear") &&
                      (coordinates == "half_pixel" || coordinates == "pytorch_half_pixel" || coordinates == "asymmetric" ||
                       coordinates == "align_corners") &&
                      (nearest == "floor" || nearest == "ceil" || nearest.starts_with("round_prefer_"));
  if (!simple)
    return n.unsupported(
        "to a size that data decide: mode \"{}\" with coordinates \"{}\"; nearest and linear are supported, with half_pixel, "
        "pytorch_half_pixel, asymmetric or align_corners, without antialias and aspect ratio",
        mode, coordinates);
  if (mode == "linear" && n.type(0).dtype != DType::f32)
    return n.unsupported("to a size that data decide: mode \"linear\" on {}; cast around it", ir::name_of(n.type(0).dtype));
  OCTAVO_TRY(const Numbers sizes, numbers(n, 3, "sizes"));
  if (sizes.size() != axes.size()) return n.bad("{} sizes for {} dimensions", sizes.size(), axes.size());
  ValueId x = n.in(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<std::size_t>(axes[i]);
    const Number have = s.extent(n.graph(), x, d);
    if (have.key == sizes[i].key) continue;
    if (sizes[i].most < 1) return n.bad("size {} of dimension {} is impossible", sizes[i].most, d);
    OCTAVO_TRY(const Number size, fit(n, sizes[i], "the result"));
    Sizes::Extents extents = s.extents(x);
    {
      const ValueId in = s.scalar(n, have), out = s.scalar(n, size);
      const Sizes::Plain plain(s);
      Compose c(n);
      const auto most = static_cast<std::int64_t>(size.most);
      const ValueId inside = c.cast(in, DType::f32);
      const ValueId at = source_places(c, coordinates, most, inside, c.cast(out, DType::f32));
      const ValueId last = c.sub(inside, c.number(1, at)), zero = c.number(0, at);
      const auto bounded = [&](ValueId v) { return c.op(Op::max, {c.op(Op::min, {v, last}), zero}); };
      const auto taken = [&](ValueId place) { return c.gather(x, c.cast(place, DType::s64), axes[i]); };
      if (mode == "nearest") {
        x = taken(bounded(nearest_place(c, nearest, at)));
      } else {
        const ValueId place = bounded(at), low = c.op(Op::floor, {place});
        Shape column(n.shape(0).size(), 1);
        column[d] = most;
        const ValueId part = c.reshape(c.sub(place, low), column);
        const ValueId first = taken(low), second = taken(bounded(c.add(low, c.number(1, at))));
        x = c.add(c.mul(first, c.sub(c.number(1, part), part)), c.mul(second, part));
      }
      OCTAVO_CHECK(c.status());
    }
    extents.erase(d);
    s.set(x, extents);
    x = s.sized(n, x, d, size);
  }
  return n.result(x);
}

namespace {

/// How many numbers from start on, by delta, are before limit, where no more than their type is known: by float64, as ONNX Runtime counts.
Result<Number> steps_between(NodeContext& n, ValueId start, ValueId limit, ValueId delta) {
  Sizes& s = sizes_of(n);
  const Sizes::Plain plain(s);
  Compose c(n);
  const ValueId q = c.div(c.cast(c.sub(limit, start), DType::f64), c.cast(delta, DType::f64));
  const ValueId whole = c.cast(q, DType::s64);
  const ValueId up = c.cast(c.less(c.cast(whole, DType::f64), q), DType::s64);
  const ValueId count = c.op(Op::max, {c.add(whole, up), c.integers({}, {0})});
  OCTAVO_CHECK(c.status());
  constexpr double kFar = 9007199254740992.0;
  return s.count(count, 0, kFar);
}

}  // namespace

Status sized_range(NodeContext& n) {
  Sizes& s = sizes_of(n);
  const DType t = n.type(0).dtype;
  for (const std::size_t i : {0U, 1U, 2U}) {
    if (ir::count(n.shape(i)) != 1) return n.bad("start, limit and delta must be single numbers");
    if (n.type(i).dtype != t) return n.bad("start, limit and delta differ in type");
  }
  // A greater step is left to the run, which multiplies by it as an integer and counts by float64 (steps_between).
  const double given_step = n.constant(2) != nullptr && !ir::is_float(t) ? n.constant(2)->at(0) : 0;
  const bool known_step = given_step != 0 && std::abs(given_step) <= INT32_MAX;
  std::int64_t step = 0;
  Number count;
  std::array<ValueId, 3> given{};
  for (std::size_t i = 0; i < 3; ++i) {
    OCTAVO_TRY(given[i], n.reshape(n.in(i), {}));
  }
  if (known_step) {
    OCTAVO_TRY(const Numbers start, numbers(n, 0, "start"));
    OCTAVO_TRY(const Numbers limit, numbers(n, 1, "limit"));
    step = static_cast<std::int64_t>(given_step);
    const std::int64_t by = std::abs(step);
    const Number span = step > 0 ? s.sub(n, limit[0], start[0]) : s.sub(n, start[0], limit[0]);
    count =
        s.max(n, s.div(n, s.add(n, s.max(n, span, Sizes::number(0)), Sizes::number(by - 1)), Sizes::number(by)), Sizes::number(0));
    given[0] = s.scalar(n, start[0]);
  } else {
    OCTAVO_TRY(count, steps_between(n, given[0], given[1], given[2]));
  }
  OCTAVO_TRY(count, fit(n, count, "the result"));
  const Sizes::Plain plain(s);
  Compose c(n);
  const ValueId first = ir::is_float(t) ? given[0] : c.cast(given[0], DType::s64),
                at = c.counting(static_cast<std::int64_t>(std::max(count.most, 2.0)), 0, 1);
  ValueId y = ir::kNone;
  if (ir::is_float(t)) {  // each is the sum of the one before it and delta, as ONNX Runtime rounds
    y = c.op(Op::cumulate, {c.where(c.equal(at, c.integers({}, {0})), first, given[2])},
             {{"axis", std::int64_t{0}}, {"function", std::string("sum")}});
  } else {
    y = c.cast(c.add(c.mul(at, known_step ? c.integers({}, {step}) : c.cast(given[2], DType::s64)), first), t);
  }
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

}  // namespace octavo::onnx
