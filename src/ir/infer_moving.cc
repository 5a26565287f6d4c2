// Types of operators that move, repeat or select elements.
#include <algorithm>
#include <limits>

#include "ir/infer.h"

namespace octavo::ir::detail {
namespace {

using Wide = __int128;
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

Status check_dims(const Inference& at, const Shape& dims) {
  for (const std::int64_t d : dims) {
    if (d < 0 || d > kMaxExtent) return at.error("{} has a dimension outside 0..2^40", to_string(dims));
  }
  return at.check_size({DType::u8, dims});
}

Result<Types> transpose(const Inference& at) {
  OCTAVO_TRY(const auto perm, at.ints("perm"));
  if (static_cast<std::int64_t>(perm.size()) != at.rank(0))
    return at.error("perm has {} entries, the data rank {}", perm.size(), at.rank(0));
  std::vector<char> seen(perm.size(), 0);
  Shape out;
  for (const std::int64_t p : perm) {
    if (p < 0 || p >= at.rank(0) || seen[static_cast<std::size_t>(p)])
      return at.error("perm is not a permutation of 0..{}", at.rank(0) - 1);
    seen[static_cast<std::size_t>(p)] = 1;
    out.push_back(at.shape(0)[static_cast<std::size_t>(p)]);
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> reshape(const Inference& at) {
  OCTAVO_TRY(const Shape out, at.ints("shape"));
  OCTAVO_CHECK(check_dims(at, out));
  if (count(out) != count(at.shape(0))) {
    return at.error("{} has {} elements, the data {}", to_string(out), count(out), count(at.shape(0)));
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> slice(const Inference& at) {
  const Shape& x = at.shape(0);
  OCTAVO_TRY(const auto starts, at.ints("starts"));
  OCTAVO_TRY(const auto ends, at.ints("ends"));
  OCTAVO_TRY(const auto steps, at.ints("steps", x.size(), 1));
  if (starts.size() != x.size() || ends.size() != x.size()) {
    return at.error("starts and ends have {} and {} entries, need one a dimension: {}", starts.size(), ends.size(), x.size());
  }
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool back = steps[i] < 0;
    if (steps[i] == 0 || steps[i] == std::numeric_limits<std::int64_t>::min())
      return at.error("dimension {}: step {} is not allowed", i, steps[i]);
    if (ends[i] < -1 || ends[i] > x[i]) return at.error("dimension {}: end {} outside -1..{}", i, ends[i], x[i]);
    if (starts[i] < 0 || starts[i] > x[i]) return at.error("dimension {}: start {} outside 0..{}", i, starts[i], x[i]);
    const std::int64_t span = back ? starts[i] - ends[i] : ends[i] - starts[i];
    const bool empty = span <= 0;
    if (!empty && starts[i] == x[i]) return at.error("dimension {}: start {} outside 0..{}", i, starts[i], x[i] - 1);
    const std::int64_t step = back ? -steps[i] : steps[i];
    out.push_back(empty ? 0 : (span - 1) / step + 1);
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> concat(const Inference& at) {
  OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), -1));
  const auto a = static_cast<std::size_t>(axis);
  Shape out = at.shape(0);
  for (std::size_t i = 1; i < at.operands(); ++i) {
    const Shape& x = at.shape(i);
    if (at.in(i).dtype != at.in(0).dtype)
      return at.error("operand {} is {}, operand 0 {}", i, name_of(at.in(i).dtype), name_of(at.in(0).dtype));
    bool agree = x.size() == out.size();
    for (std::size_t d = 0; agree && d < x.size(); ++d) agree = d == a || x[d] == out[d];
    if (!agree)
      return at.error("operand {} is {}, operand 0 {}: they must agree outside axis {}", i, to_string(x), to_string(at.shape(0)),
                      axis);
    if (x[a] > kMaxExtent - out[a]) return at.error("the concatenated dimension is too large");
    out[a] += x[a];
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> pad(const Inference& at) {
  const Shape& x = at.shape(0);
  OCTAVO_TRY(const auto pads, at.ints("pads", 2 * x.size(), 0));
  OCTAVO_TRY(const std::string mode, at.text("mode", "constant"));
  OCTAVO_CHECK(at.number("value"));
  if (mode != "constant" && mode != "reflect" && mode != "edge")
    return at.error("mode \"{}\" is not constant, reflect or edge", mode);
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int64_t before = pads[i], after = pads[i + x.size()];
    if (before < 0 || after < 0 || before > kMaxExtent || after > kMaxExtent)
      return at.error("dimension {}: pads {}, {} must not be negative (slice instead)", i, before, after);
    if (mode == "reflect" && std::max(before, after) >= std::max<std::int64_t>(x[i], 1)) {
      return at.error("dimension {}: reflecting {} elements needs more than {}", i, std::max(before, after), x[i]);
    }
    if (mode == "edge" && x[i] == 0 && before + after > 0) return at.error("dimension {}: no edge to repeat, it is empty", i);
    out.push_back(x[i] + before + after);
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> resize_nearest(const Inference& at) {
  Shape out = at.shape(0);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string key = "index" + std::to_string(i);
    if (!at.node().attrs.contains(key)) continue;
    OCTAVO_TRY(const auto index, at.ints(key));
    for (const std::int64_t k : index) {
      if (k < 0 || k >= at.shape(0)[i]) return at.error("{} names element {} of a dimension of {}", key, k, at.shape(0)[i]);
    }
    out[i] = static_cast<std::int64_t>(index.size());
  }
  for (const auto& [key, value] : at.node().attrs) {
    if (!key.starts_with("index")) continue;
    bool known = false;
    for (std::size_t i = 0; i < out.size() && !known; ++i) known = key == "index" + std::to_string(i);
    if (!known) return at.error("{} is not a dimension of rank {}", key, out.size());
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> gather(const Inference& at) {
  const DType index = at.in(1).dtype;
  OCTAVO_CHECK(at.need(index == DType::s64 || index == DType::s32, "the indices must be s32 or s64"));
  const Shape& x = at.shape(0);
  const Shape& ids = at.shape(1);
  Shape out;
  if (at.op() == Op::gather_nd) {
    OCTAVO_TRY(const std::int64_t batch, at.integer("batch_dims", 0));
    if (ids.empty()) return at.error("the indices need a last dimension");
    if (batch < 0 || batch >= std::min(at.rank(0), at.rank(1)))
      return at.error("batch_dims {} outside the ranks {} and {}", batch, at.rank(0), at.rank(1));
    if (ids.back() < 1 || ids.back() > at.rank(0) - batch)
      return at.error("index tuples of {} for {} dimensions", ids.back(), at.rank(0) - batch);
    for (std::int64_t i = 0; i < batch; ++i) {
      if (x[static_cast<std::size_t>(i)] != ids[static_cast<std::size_t>(i)]) return at.error("batch dimension {} differs", i);
    }
    out.assign(ids.begin(), ids.end() - 1);
    out.insert(out.end(), x.begin() + batch + ids.back(), x.end());
    return Types{{at.in(0).dtype, out}};
  }
  OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), 0));
  if (at.op() == Op::gather_elements) {
    if (x.size() != ids.size()) return at.error("data and indices must have one rank");
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (static_cast<std::int64_t>(i) != axis && ids[i] > x[i])
        return at.error("dimension {}: {} indices for {} elements", i, ids[i], x[i]);
    }
    return Types{{at.in(0).dtype, ids}};
  }
  out.assign(x.begin(), x.begin() + axis);
  out.insert(out.end(), ids.begin(), ids.end());
  out.insert(out.end(), x.begin() + axis + 1, x.end());
  return Types{{at.in(0).dtype, out}};
}

Result<Types> expand(const Inference& at) {
  OCTAVO_TRY(const Shape out, at.ints("shape"));
  OCTAVO_CHECK(check_dims(at, out));
  OCTAVO_TRY(const Shape both, broadcast(at, at.shape(0), out));
  if (both != out) return at.error("{} does not expand to {}", to_string(at.shape(0)), to_string(out));
  return Types{{at.in(0).dtype, out}};
}

Result<Types> tile(const Inference& at) {
  OCTAVO_TRY(const auto repeats, at.ints("repeats", at.shape(0).size(), 1));
  Shape out;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    const Wide extent = Wide{repeats[i]} * at.shape(0)[i];
    if (repeats[i] < 0 || extent > kMaxExtent) return at.error("dimension {}: {} repeated {} times", i, at.shape(0)[i], repeats[i]);
    out.push_back(static_cast<std::int64_t>(extent));
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> blocks(const Inference& at) {
  OCTAVO_CHECK(at.need_rank(0, 4, 4));
  OCTAVO_TRY(const std::int64_t b, at.integer("blocksize", 0));
  OCTAVO_TRY(const std::string mode, at.text("mode", "DCR"));
  const Shape& x = at.shape(0);
  if (b < 1 || b > 65536) return at.error("blocksize {} must be in 1..65536", b);
  if (mode != "DCR" && mode != "CRD") return at.error("mode \"{}\" is not DCR or CRD", mode);
  if (at.op() == Op::depth_to_space) {
    if (x[1] % (b * b) != 0) return at.error("{} channels are not a multiple of {}", x[1], b * b);
    if (std::max(x[2], x[3]) > kMaxExtent / b) return at.error("the result is too large");
    return Types{{at.in(0).dtype, {x[0], x[1] / (b * b), x[2] * b, x[3] * b}}};
  }
  if (x[2] % b != 0 || x[3] % b != 0) return at.error("{}x{} is not a multiple of the block {}", x[2], x[3], b);
  if (x[1] > kMaxExtent / (b * b)) return at.error("the result is too large");
  return Types{{at.in(0).dtype, {x[0], x[1] * b * b, x[2] / b, x[3] / b}}};
}

}  // namespace

Result<Types> infer_moving(const Inference& at) {
  switch (at.op()) {
    case Op::transpose: return transpose(at);
    case Op::reshape: return reshape(at);
    case Op::slice: return slice(at);
    case Op::concat: return concat(at);
    case Op::pad: return pad(at);
    case Op::resize_nearest: return resize_nearest(at);
    case Op::gather:
    case Op::gather_elements:
    case Op::gather_nd: return gather(at);
    case Op::expand: return expand(at);
    case Op::tile: return tile(at);
    case Op::depth_to_space:
    case Op::space_to_depth: return blocks(at);
    default: return fail(ErrorKind::internal, fmt::format("no type rule for {}", name_of(at.op())));
  }
}

}  // namespace octavo::ir::detail
