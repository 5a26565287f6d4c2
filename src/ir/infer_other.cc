// Types of the operators that only the reference evaluator computes, and their attributes:
//   math      function                         bitwise   function                    bit_cast  to
//   bitwise "right" keeps the sign of signed types; shifts by the width or more give 0 (-1)
//   scatter   kind axis reduction ("none" "add" "mul" "max" "min")                   top_k     axis k largest sorted
//   cumulate  function axis exclusive reverse  max_pool_index  those of max_pool, column_major
//   grid_sample  mode padding_mode ("zeros" "border" "reflection") align_corners
//   roi_align    mode ("avg" "max") output_height output_width sampling_ratio spatial_scale half_pixel
//   deform_conv  strides pads dilations group offset_group (two spatial dimensions)
//   recurrent    cell direction hidden_size layout linear_before_reset input_forget clip activations ("Sigmoid,Tanh,Tanh,...")
//   alpha beta;
//                clip 0: none. X [T,N,I] (layout 1: [N,T,I]); sequence_lens s64 [N]; absent operands are given as zeros
//   non_max_suppression  center_point_box count
#include <array>

#include "ir/infer.h"

namespace octavo::ir::detail {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

template <std::size_t N>
Status one_of(const Inference& at, std::string_view key, std::string_view fallback, const std::array<std::string_view, N>& known) {
  OCTAVO_TRY(const std::string text, at.text(key, fallback));
  for (const std::string_view k : known) {
    if (k == text) return {};
  }
  return at.error("attribute {} is \"{}\", which is not known", key, text);
}

bool index_type(DType t) {
  return t == DType::s64 || t == DType::s32;
}

Result<Types> bitwise(const Inference& at) {
  OCTAVO_CHECK(one_of<6>(at, "function", "", {"and", "or", "xor", "not", "left", "right"}));
  const DType t = at.in(0).dtype;
  if (is_float(t) || t > DType::u64) return at.error("operand 0 is {}, needs an integer", name_of(t));
  OCTAVO_TRY(const std::string function, at.text("function", ""));
  if ((function == "not") != (at.operands() == 1)) return at.error("{} operands for \"{}\"", at.operands(), function);
  if (function == "not") return Types{at.in(0)};
  if (at.in(1).dtype != t) return at.error("operands are {} and {}; cast one first", name_of(t), name_of(at.in(1).dtype));
  OCTAVO_TRY(Shape shape, broadcast(at, at.shape(0), at.shape(1)));
  return Types{{t, shape}};
}

/// Operand i, if it is there: how many of the first elements along dimension 0 there are.
Status need_count(const Inference& at, std::size_t i) {
  if (!at.has(i)) return {};
  return at.need(at.in(i) == TensorType{DType::s64, {}}, "how many there are must be one s64");
}

Result<Types> scatter(const Inference& at) {
  OCTAVO_CHECK(need_count(at, 3));
  OCTAVO_CHECK(one_of<2>(at, "kind", "", {"elements", "nd"}));
  OCTAVO_CHECK(one_of<5>(at, "reduction", "none", {"none", "add", "mul", "max", "min"}));
  OCTAVO_CHECK(at.need(index_type(at.in(1).dtype), "the indices must be s32 or s64"));
  if (at.in(2).dtype != at.in(0).dtype)
    return at.error("the data are {}, the updates {}", name_of(at.in(0).dtype), name_of(at.in(2).dtype));
  const Shape &x = at.shape(0), &ids = at.shape(1), &u = at.shape(2);
  OCTAVO_TRY(const std::string kind, at.text("kind", ""));
  OCTAVO_CHECK(at.need(!at.has(3) || ids.size() >= (kind == "nd" ? 2U : 1U),
                       "there is one update, and no list of which the first ones count"));
  if (kind == "elements") {
    OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), 0));
    if (ids.size() != x.size() || u != ids) return at.error("indices and updates must have one shape, of the data's rank");
    for (std::size_t d = 0; d < x.size(); ++d) {
      if (static_cast<std::int64_t>(d) != axis && ids[d] > x[d])
        return at.error("dimension {}: {} indices for {} elements", d, ids[d], x[d]);
    }
    return Types{at.in(0)};
  }
  if (ids.empty() || ids.back() < 1 || ids.back() > at.rank(0))
    return at.error("index tuples do not fit {} dimensions", at.rank(0));
  Shape want(ids.begin(), ids.end() - 1);
  want.insert(want.end(), x.begin() + ids.back(), x.end());
  if (u != want) return at.error("the updates are {}, need {}", to_string(u), to_string(want));
  return Types{at.in(0)};
}

Result<Types> top_k(const Inference& at) {
  OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), -1));
  OCTAVO_TRY(const std::int64_t k, at.integer("k", 0));
  Shape out = at.shape(0);
  if (k < 0 || k > out[static_cast<std::size_t>(axis)])
    return at.error("k is {}, axis {} has {} elements", k, axis, out[static_cast<std::size_t>(axis)]);
  out[static_cast<std::size_t>(axis)] = k;
  return Types{{at.in(0).dtype, out}, {DType::s64, out}};
}

Result<Types> grid_sample(const Inference& at) {
  OCTAVO_CHECK(one_of<3>(at, "mode", "linear", {"linear", "nearest", "cubic"}));
  OCTAVO_CHECK(one_of<3>(at, "padding_mode", "zeros", {"zeros", "border", "reflection"}));
  OCTAVO_CHECK(at.need_float(0));
  OCTAVO_CHECK(at.need_float(1));
  OCTAVO_CHECK(at.need_rank(0, 3, 8));
  const Shape &x = at.shape(0), &grid = at.shape(1);
  if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != at.rank(0) - 2)
    return at.error("the grid must be [{},...,{}] of rank {}", x[0], at.rank(0) - 2, at.rank(0));
  for (const std::int64_t d : x) OCTAVO_CHECK(at.need(d > 0, "the data are empty"));
  OCTAVO_TRY(const std::string mode, at.text("mode", "linear"));
  if (mode == "cubic" && x.size() != 4) return at.error("cubic sampling needs two spatial dimensions");
  Shape out{x[0], x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  return Types{{at.in(0).dtype, out}};
}

Result<Types> roi_align(const Inference& at) {
  OCTAVO_CHECK(one_of<2>(at, "mode", "avg", {"avg", "max"}));
  for (const std::size_t i : {0U, 1U}) OCTAVO_CHECK(at.need_float(i));
  OCTAVO_CHECK(at.need_rank(0, 4, 4));
  OCTAVO_CHECK(at.need_rank(1, 2, 2));
  OCTAVO_CHECK(at.need(index_type(at.in(2).dtype), "the batch indices must be s32 or s64"));
  const std::int64_t n = at.shape(1)[0];
  if (at.shape(1)[1] != 4 || at.shape(2) != Shape{n}) return at.error("needs rois [n,4] and batch indices [n]");
  OCTAVO_TRY(const std::int64_t h, at.integer("output_height", 1));
  OCTAVO_TRY(const std::int64_t w, at.integer("output_width", 1));
  OCTAVO_TRY(const std::int64_t ratio, at.integer("sampling_ratio", 0));
  OCTAVO_CHECK(at.number("spatial_scale"));
  if (h < 1 || w < 1 || h > 65536 || w > 65536 || ratio < 0 || ratio > 65536)
    return at.error("output {}x{} with sampling_ratio {}", h, w, ratio);
  return Types{{at.in(0).dtype, {n, at.shape(0)[1], h, w}}};
}

Result<Types> deform_conv(const Inference& at) {
  for (std::size_t i = 0; i < 5; ++i) OCTAVO_CHECK(at.need_float(i));
  OCTAVO_CHECK(at.need_rank(0, 4, 4));
  OCTAVO_CHECK(at.need_rank(1, 4, 4));
  OCTAVO_CHECK(at.need_rank(2, 4, 4));
  const Shape &x = at.shape(0), &w = at.shape(1), &offset = at.shape(2);
  OCTAVO_TRY(const std::int64_t group, at.integer("group", 1));
  OCTAVO_TRY(const std::int64_t groups, at.integer("offset_group", 1));
  OCTAVO_TRY(const auto strides, at.ints("strides", 2, 1));
  OCTAVO_TRY(const auto dilations, at.ints("dilations", 2, 1));
  OCTAVO_TRY(const auto pads, at.ints("pads", 4, 0));
  if (group < 1 || groups < 1 || w[1] > kMaxExtent / group || x[1] != w[1] * group || w[0] % group != 0 || x[1] % groups != 0)
    return at.error("groups {} and {} do not fit the channels", group, groups);
  Shape out{x[0], w[0]};
  for (std::size_t d = 0; d < 2; ++d) {
    for (const std::int64_t v : {strides[d], dilations[d]})
      OCTAVO_CHECK(at.need(v >= 1 && v <= 65536, "a stride or dilation is out of range"));
    for (const std::int64_t v : {pads[d], pads[d + 2]}) OCTAVO_CHECK(at.need(v >= 0 && v <= 65536, "a pad is out of range"));
    const std::int64_t span = x[d + 2] + pads[d] + pads[d + 2] - (dilations[d] * (w[d + 2] - 1) + 1);
    if (w[d + 2] < 1 || w[d + 2] > 65536 || span < 0) return at.error("the kernel does not fit the image");
    out.push_back(span / strides[d] + 1);
  }
  const std::int64_t taps = groups * w[2] * w[3];
  if (offset != Shape{x[0], 2 * taps, out[2], out[3]} || at.shape(3) != Shape{w[0]} ||
      at.shape(4) != Shape{x[0], taps, out[2], out[3]})
    return at.error("offset, bias or mask do not fit the result {}", to_string(out));
  return Types{{at.in(0).dtype, out}};
}

Result<Types> recurrent(const Inference& at) {
  OCTAVO_CHECK(one_of<3>(at, "cell", "", {"rnn", "gru", "lstm"}));
  OCTAVO_CHECK(one_of<3>(at, "direction", "forward", {"forward", "reverse", "bidirectional"}));
  OCTAVO_TRY(const std::string cell, at.text("cell", ""));
  OCTAVO_TRY(const std::string direction, at.text("direction", "forward"));
  OCTAVO_TRY(const std::int64_t layout, at.integer("layout", 0));
  for (const std::size_t i : {0U, 1U, 2U}) {
    OCTAVO_CHECK(at.need_float(i));
    OCTAVO_CHECK(at.need_rank(i, 3, 3));
  }
  const std::int64_t d = direction == "bidirectional" ? 2 : 1, gates = cell == "lstm" ? 4 : cell == "gru" ? 3 : 1;
  const Shape& x = at.shape(0);
  const std::int64_t steps = layout != 0 ? x[1] : x[0], batch = layout != 0 ? x[0] : x[1], hidden = at.shape(2)[2];
  if (hidden < 1 || hidden > kMaxExtent / 16) return at.error("hidden size {}", hidden);
  const Shape state = layout != 0 ? Shape{batch, d, hidden} : Shape{d, batch, hidden};
  const std::array<Shape, 8> want{
      x, {d, gates * hidden, x[2]}, {d, gates * hidden, hidden}, {d, 2 * gates * hidden}, {batch}, state, state, {d, 3 * hidden}};
  for (std::size_t i = 0; i < 8; ++i) {
    if (at.shape(i) != want[i]) return at.error("operand {} is {}, needs {}", i, to_string(at.shape(i)), to_string(want[i]));
  }
  OCTAVO_CHECK(at.need(at.in(4).dtype == DType::s64, "sequence_lens must be s64"));
  const Shape y = layout != 0 ? Shape{batch, steps, d, hidden} : Shape{steps, d, batch, hidden};
  const DType t = at.in(0).dtype;
  Types out{{t, y}, {t, state}};
  if (cell == "lstm") out.push_back({t, state});
  return out;
}

Result<Types> non_max_suppression(const Inference& at) {
  OCTAVO_CHECK(at.need_float(0));
  OCTAVO_CHECK(at.need_float(1));
  OCTAVO_CHECK(at.need_rank(0, 3, 3));
  OCTAVO_CHECK(at.need_rank(1, 3, 3));
  const Shape &boxes = at.shape(0), &scores = at.shape(1);
  if (boxes[2] != 4 || scores[0] != boxes[0] || scores[2] != boxes[1]) return at.error("needs boxes [n,b,4] and scores [n,c,b]");
  for (const std::size_t i : {2U, 3U}) {
    OCTAVO_CHECK(at.need_float(i));
    if (count(at.shape(i)) != 1) return at.error("a threshold must be one number");
  }
  OCTAVO_TRY(const std::int64_t most, at.integer("count", 0));
  if (most < 0 || most > kMaxExtent) return at.error("attribute count is {}", most);
  return Types{{DType::s64, {most, 3}}};
}

}  // namespace

Result<Types> infer_other(const Inference& at) {
  const TensorType& x = at.in(0);
  switch (at.op()) {
    case Op::math:
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(one_of<9>(at, "function", "", {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"}));
      return Types{x};
    case Op::bitwise: return bitwise(at);
    case Op::bit_cast: {
      OCTAVO_TRY(const std::string to, at.text("to", ""));
      DType type{};
      if (!parse_dtype(to, type) || size_of(type) != size_of(x.dtype))
        return at.error("attribute to is \"{}\", not a type of {} bytes", to, size_of(x.dtype));
      return Types{{type, x.shape}};
    }
    case Op::scatter: return scatter(at);
    case Op::top_k: return top_k(at);
    case Op::cumulate:
      OCTAVO_CHECK(one_of<2>(at, "function", "sum", {"sum", "prod"}));
      OCTAVO_CHECK(at.axis("axis", at.rank(0), 0));
      OCTAVO_CHECK(at.need(x.dtype < DType::boolean, "the operand must be a number"));
      return Types{x};
    case Op::max_pool_index: {
      OCTAVO_TRY(Types types, infer_window(at));
      types[0].dtype = DType::s64;
      return types;
    }
    case Op::grid_sample: return grid_sample(at);
    case Op::roi_align: return roi_align(at);
    case Op::deform_conv: return deform_conv(at);
    case Op::recurrent: return recurrent(at);
    case Op::non_zero:
      OCTAVO_CHECK(at.need_rank(0, 1, 1));
      OCTAVO_CHECK(need_count(at, 1));
      return Types{{DType::s64, x.shape}, {DType::s64, {}}};
    case Op::det: {
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.need_rank(0, 2, 32));
      const Shape& s = x.shape;
      if (s[s.size() - 1] != s[s.size() - 2]) return at.error("the matrices are not square");
      return Types{{x.dtype, Shape(s.begin(), s.end() - 2)}};
    }
    default: return non_max_suppression(at);
  }
}

}  // namespace octavo::ir::detail
