// Values that are cut, filled, collected and reshaped where sizes of theirs are open.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>

#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

ValueId Sizes::sized(NodeContext& n, ValueId v, std::size_t axis, const Number& size) {
  const Plain plain(*this);
  Compose c(n);
  Extents extents = this->extents(v);
  extents.erase(axis);
  const std::int64_t have = room(n.graph(), v, axis), most = size.room(), want = size.known() ? most : std::max(kLeastRoom, most);
  const auto a = static_cast<std::int64_t>(axis);
  ValueId out = v;
  if (have > want) out = c.slice(v, a, 0, want);
  if (have < want) {
    Shape shape = n.shape_of(v);
    Ints pads(2 * shape.size(), 0);
    pads[shape.size() + axis] = want - have;
    shape[axis] = want;
    if (n.type_of(v).dtype == DType::boolean) {
      out = c.cast(c.op(Op::pad, {c.cast(v, DType::u8)}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}}),
                   DType::boolean);
    } else {
      out = c.op(Op::pad, {v}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
    }
  }
  if (!size.known()) extents[axis] = scalar(n, size);
  if (extents.empty() && !open(v)) return out;
  if (out == v && extents != this->extents(v))
    out = c.op(Op::reshape, {v}, {{"shape", n.shape_of(v)}});  // another value of the same elements
  set(out, std::move(extents));
  return out;
}

ValueId Sizes::there(NodeContext& n, ValueId v, const std::vector<std::size_t>& axes) {
  const Plain plain(*this);
  Compose c(n);
  ValueId mask = ir::kNone;
  const Extents extents = this->extents(v);
  for (const auto& [axis, count] : extents) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    const ValueId one =
        c.less(c.counting(room(n.graph(), v, axis), static_cast<std::int64_t>(axis), static_cast<std::int64_t>(rank(n.graph(), v))),
               count);
    mask = mask == ir::kNone ? one : c.both(mask, one);
  }
  return mask;
}

ValueId Sizes::filled(NodeContext& n, ValueId v, const std::vector<std::size_t>& axes, double fill) {
  const ValueId mask = there(n, v, axes);
  if (mask == ir::kNone) return v;
  const Plain plain(*this);
  Compose c(n);
  const DType t = n.type_of(v).dtype;
  ValueId out = ir::kNone;
  if (t == DType::boolean) {
    out = c.both(v, c.op(Op::expand, {mask}, {{"shape", n.shape_of(v)}}));
  } else {
    const ValueId with = t == DType::s64 && std::abs(fill) > kFar
                             ? c.constant(Tensor::scalar(fill < 0 ? std::numeric_limits<std::int64_t>::min()
                                                                  : std::numeric_limits<std::int64_t>::max()))
                             : c.number(fill, v);
    out = c.where(mask, v, with);
  }
  set(out, this->extents(v));
  return out;
}

double Sizes::lowest(DType t) {
  switch (t) {
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::boolean: return 0;
    case DType::s8: return -128;
    case DType::s16: return -32768;
    case DType::s32: return std::numeric_limits<std::int32_t>::min();
    case DType::s64: return -9.3e18;
    default: return -std::numeric_limits<double>::infinity();
  }
}
double Sizes::highest(DType t) {
  switch (t) {
    case DType::boolean: return 1;
    case DType::u8: return 255;
    case DType::s8: return 127;
    case DType::u16: return 65535;
    case DType::s16: return 32767;
    case DType::s32: return std::numeric_limits<std::int32_t>::max();
    case DType::u32: return std::numeric_limits<std::uint32_t>::max();
    case DType::u64: return 1.8e19;
    case DType::s64: return 9.3e18;
    default: return std::numeric_limits<double>::infinity();
  }
}

std::uint64_t Sizes::structure(const ir::Graph& g, ValueId v) {
  if (v == ir::kNone) return 0;
  if (const auto at = structure_.find(v); at != structure_.end()) return at->second;
  std::vector<ValueId> open{v};
  while (!open.empty()) {
    const ValueId at = open.back();
    const ir::Node& node = g.producer(at);
    bool ready = true;
    for (const ValueId in : node.inputs) {
      if (in == ir::kNone || structure_.contains(in)) continue;
      open.push_back(in);
      ready = false;
    }
    if (!ready) continue;
    open.pop_back();
    std::uint64_t key = mixed(static_cast<std::uint64_t>(node.op) + 1, static_cast<std::uint64_t>(g.value(at).output_index));
    const bool plain_constant = node.op == Op::constant && !node.quantizer && node.payload.size() <= kMostNumbers;
    if (node.op == Op::input || node.quantizer || (node.op == Op::constant && !plain_constant)) {
      key = mixed(key, static_cast<std::uint64_t>(at));
    } else if (plain_constant) {
      key = mixed(key, std::hash<std::string>{}(ir::to_string(node.payload.type())));
      for (const std::byte b : node.payload.bytes()) key = mixed(key, static_cast<std::uint64_t>(b));
    } else {
      for (const ValueId in : node.inputs) key = mixed(key, in == ir::kNone ? 1 : structure_.at(in));
      for (const auto& [name, attr] : node.attrs) {
        key = mixed(key, std::hash<std::string>{}(name));
        std::visit(
            [&](const auto& a) {
              using T = std::decay_t<decltype(a)>;
              if constexpr (std::is_same_v<T, std::vector<std::int64_t>> || std::is_same_v<T, std::vector<double>>) {
                for (const auto one : a) key = mixed(key, std::bit_cast<std::uint64_t>(one));
              } else if constexpr (std::is_same_v<T, std::string>) {
                key = mixed(key, std::hash<std::string>{}(a));
              } else {
                key = mixed(key, std::bit_cast<std::uint64_t>(a));
              }
            },
            attr);
      }
    }
    structure_[at] = key;
  }
  return structure_.at(v);
}

std::pair<ValueId, Number> Sizes::positions(NodeContext& n, ValueId flags, ValueId same, ValueId many) {
  const std::uint64_t key =
      mixed(structure(n.graph(), same == ir::kNone ? flags : same), static_cast<std::uint64_t>(room(n.graph(), flags, 0)));
  if (const auto at = found_.find(key); at != found_.end()) return at->second;
  const Plain plain(*this);
  Compose c(n);
  const std::vector<ValueId> out = c.many(Op::non_zero, many == ir::kNone ? std::vector{flags} : std::vector{flags, many}, 2);
  if (!c.ok()) return {ir::kNone, number(0)};
  if (n.graph().is_constant(out[1])) {
    const std::int64_t count = n.graph().payload(out[1]).data<std::int64_t>()[0];
    return {c.slice(out[0], 0, 0, count), number(count)};
  }
  const Number count = this->count(out[1], 0, static_cast<double>(room(n.graph(), flags, 0)));
  return found_[key] = {sized(n, out[0], 0, count), count};
}

namespace {

/// Neighbouring dimensions of both sides that hold the same elements.
struct Group {
  std::size_t from = 0, from_end = 0, to = 0, to_end = 0;
};
std::optional<std::vector<Group>> groups_of(const Shape& a, const Shape& b) {
  std::vector<Group> out;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    Group g{i, i, j, j};
    std::int64_t p = 1, q = 1;
    do {
      if (g.from_end == g.from && g.to_end == g.to && i < a.size() && j < b.size()) {
        p = a[g.from_end++], q = b[g.to_end++];
      } else if ((p < q || g.to_end == b.size()) && g.from_end < a.size()) {
        p *= a[g.from_end++];
      } else if (g.to_end < b.size()) {
        q *= b[g.to_end++];
      } else {
        return std::nullopt;
      }
    } while (p != q);
    i = g.from_end, j = g.to_end;
    out.push_back(g);
  }
  return out;
}

}  // namespace

Result<ValueId> Sizes::reshaped(NodeContext& n, ValueId v, const Shape& to, const std::map<std::size_t, Number>& sizes,
                                const Marks& marks) {
  const Plain plain(*this);
  Compose c(n);
  const Extents from = extents(v);
  const Shape dims = n.shape_of(v), &target = to;
  const auto groups = marks.from.empty() ? groups_of(dims, target) : groups_of(marks.from, marks.to);
  const auto impossible = [&] {
    return n.unsupported("reshapes {} to {}, where data decide sizes; export without this reshape, or reshape after the run",
                         ir::to_string(dims), ir::to_string(to));
  };
  if (!groups) return impossible();
  Extents out;
  ValueId x = v;
  for (const Group& g : *groups) {
    bool any = false, only_first = true;
    std::size_t first = g.from;
    while (first < g.from_end && dims[first] == 1) ++first;
    for (std::size_t d = g.from; d < g.from_end; ++d) {
      if (!from.contains(d)) continue;
      any = true;
      only_first = only_first && d == first;
    }
    std::size_t lead = g.to;
    while (lead < g.to_end && target[lead] == 1) ++lead;
    if (!any) {
      for (std::size_t d = g.to; d < g.to_end; ++d) {
        if (sizes.contains(d)) return impossible();
      }
      continue;
    }
    if (lead == g.to_end) return impossible();
    for (std::size_t d = g.from; d < g.from_end && !marks.from.empty();
         ++d) {  // what is open must be the first dimension of the result
      if (from.contains(d) && marks.to[lead] % (marks.from[d] / dims[d]) != 0) return impossible();
    }
    Number count = number(1);
    for (std::size_t d = g.from; d < g.from_end; ++d) count = mul(n, count, extent(n.graph(), v, d));
    if (!only_first) {  // the elements that are there, side by side
      Shape three{1, 1, 1};
      for (std::size_t d = 0; d < dims.size(); ++d) three[d < g.from ? 0 : d < g.from_end ? 1 : 2] *= dims[d];
      Shape own(dims.begin() + static_cast<std::ptrdiff_t>(g.from), dims.begin() + static_cast<std::ptrdiff_t>(g.from_end));
      ValueId mask = ir::kNone;
      for (std::size_t d = g.from; d < g.from_end; ++d) {
        if (!from.contains(d)) continue;
        const ValueId one =
            c.less(c.counting(dims[d], static_cast<std::int64_t>(d - g.from), static_cast<std::int64_t>(own.size())), from.at(d));
        mask = mask == ir::kNone ? one : c.both(mask, one);
      }
      const ValueId flags = c.reshape(c.op(Op::expand, {mask}, {{"shape", own}}), {ir::count(own)});
      const std::vector<ValueId> found = c.many(Op::non_zero, {flags}, 2);
      x = c.reshape(c.gather(c.reshape(x, three), found[0], 1), dims);
    }
    std::int64_t rest = 1;
    for (std::size_t d = lead + 1; d < g.to_end; ++d) {
      if (sizes.contains(d)) return impossible();
      rest *= target[d];
    }
    const Number size = sizes.contains(lead) ? sizes.at(lead) : div(n, count, number(rest));
    out[lead] = scalar(n, size);
  }
  x = c.reshape(x, target);
  if (c.ok() && x == v) return v;
  OCTAVO_CHECK(c.status());
  set(x, out);
  return x;
}

}  // namespace octavo::onnx
