// Operators that find elements: NonZero, Compress and Unique. Data decide how many there are.
#include <algorithm>
#include <limits>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/sizes.h"

namespace octavo::onnx {

Status non_zero(NodeContext& n) {
  Sizes& s = n.importer().sizes();
  const Shape dims = n.shape(0);
  if (dims.empty()) return n.unsupported("NonZero of a scalar; reshape it to one dimension");
  // Elements that are there lie in front of the others, where their number is that of the first dimension alone; else zeros take the place of the others.
  ValueId x = n.in(0), many = ir::kNone;
  if (s.open(x, 0) && s.extents(x).size() == 1) {
    many = s.extents(x).at(0);
    const Sizes::Plain plain(s);
    Compose c(n);
    if (const std::int64_t each = ir::count(dims) / std::max<std::int64_t>(dims[0], 1); each != 1)
      many = c.mul(many, c.integers({}, {each}));
    OCTAVO_CHECK(c.status());
  } else {
    std::vector<std::size_t> all;
    for (std::size_t d = 0; d < dims.size(); ++d) all.push_back(d);
    x = s.filled(n, x, all, 0);
  }
  const Sizes::Plain plain(s);
  Compose c(n);
  x = c.reshape(x, {ir::count(dims)});
  OCTAVO_CHECK(c.status());
  const auto [flat, count] = s.positions(n, x, n.in(0), many);
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
  Sizes& s = n.importer().sizes();
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
  const auto [at, count] = s.positions(n, n.in(1), n.in(1), s.open(n.in(1), 0) ? s.extents(n.in(1)).at(0) : ir::kNone);
  (void)count;
  return n.result(n.emit(Op::gather, {x, at}, {{"axis", axis}}));
}

/// Equal rows get to be neighbours in a sorted order; the first of each run is the one that stands for it.
Status unique(NodeContext& n) {
  Sizes& s = n.importer().sizes();
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
  OCTAVO_CHECK(c.status());
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
  const bool counted = !many.known();
  const auto sized = [&](ValueId v, std::int64_t at) {
    if (counted) s.set(v, {{static_cast<std::size_t>(at), found}});
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
