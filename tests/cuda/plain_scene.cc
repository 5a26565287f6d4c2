#include "cuda/plain_scene.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "base/whole_number.h"
#include "cuda/families/families.h"
#include "ir/small_types.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;
using region::BufferKind;
using region::TensorRef;

constexpr std::size_t kSceneGuard = 64;  // of Scene::memory
constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
constexpr DType kWholes[] = {DType::s8, DType::u8, DType::s16, DType::u16, DType::s32, DType::u32, DType::s64, DType::u64};

void put(std::byte* to, DType type, double v) {
  const auto as = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  const auto whole = whole_number(v);
  switch (type) {
    case DType::f32: return as(static_cast<float>(v));
    case DType::f64: return as(v);
    case DType::f16: return as(f32_to_f16(static_cast<float>(v)));
    case DType::bf16: return as(f32_to_bf16(static_cast<float>(v)));
    case DType::boolean: return as(static_cast<std::uint8_t>(whole != 0));
    default: std::memcpy(to, &whole, ir::size_of(type));
  }
}

DType float_type(Scene& s) {
  return kFloats[s.pick(0, 3)];
}
DType any_type(Scene& s) {
  return s.pick(0, 1) == 0 ? float_type(s) : kWholes[s.pick(0, 7)];
}

/// A tensor whose dimensions lie in any order in memory, sometimes with other data behind rows; every element is `value()`.
TensorRef filled(Scene& s, DType type, const Shape& dims, const std::function<double()>& value,
                 BufferKind kind = BufferKind::input) {
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (s.pick(0, 1) == 0) std::shuffle(order.begin(), order.end(), s.rng());
  const std::size_t size = ir::size_of(type);
  const DType same = size == 1 ? DType::u8 : size == 2 ? DType::bf16 : size == 4 ? DType::s32 : DType::s64;
  TensorRef r = s.tensor(same, dims, kind, dims.empty() ? std::vector<int>{} : order, dims.empty() || s.pick(0, 2) != 0 ? 0 : 3);
  r.dtype = type;
  auto& bytes = s.memory[static_cast<std::size_t>(r.buffer)];
  const auto n = static_cast<std::size_t>(s.plan().buffers[static_cast<std::size_t>(r.buffer)].bytes) / size;
  for (std::size_t i = 0; i < n; ++i) put(bytes.data() + kSceneGuard + i * size, type, value());
  return r;
}

/// Few different numbers, so that many are equal; now and then a NaN or the ends of a type.
std::function<double()> few(Scene& s) {
  return [&s] {
    if (s.pick(0, 19) == 0) return std::numeric_limits<double>::quiet_NaN();
    if (s.pick(0, 19) == 0) return s.pick(0, 1) == 0 ? -9.2e18 : 9.2e18;
    return s.pick(-6, 6) / (s.pick(0, 1) == 0 ? 1.0 : 4.0);
  };
}
std::function<double()> numbers(Scene& s, double lo, double hi) {
  return [&s, lo, hi] { return std::uniform_real_distribution<double>(lo, hi)(s.rng()); };
}
std::function<double()> wholes(Scene& s, int lo, int hi) {
  return [&s, lo, hi] { return static_cast<double>(s.pick(lo, hi)); };
}

Shape shape_of(Scene& s, int rank, int size) {
  Shape dims;
  for (int d = 0; d < rank; ++d) dims.push_back(s.pick(1, std::max(2, size)));
  return dims;
}

/// The result as it is; or of floats of 32 bits a program that halves them, and a second store of it.
void store(Scene& s, DType type, const Shape& dims, std::vector<std::int64_t> results = {}) {
  auto& st = s.stage();
  st.space = dims;
  const auto zero = [] { return 0.0; };
  if (type == DType::f32 && results.empty() && s.pick(0, 1) == 0) {
    auto& p = st.program;
    const int half = p.push(program::Op::mul, p.push(program::Op::acc_f), p.imm_f(0.5F));
    p.outputs = {{half, DType::f32}, {half, DType::f16}};
    st.stores = {filled(s, DType::f32, dims, zero, BufferKind::output), filled(s, DType::f16, dims, zero, BufferKind::output)};
    return;
  }
  st.program = {};
  st.stores = {filled(s, type, dims, zero, BufferKind::output)};
  st.anchor.store_results = std::move(results);
}
void store_more(Scene& s, DType type, const Shape& dims) {
  s.stage().stores.push_back(filled(
      s, type, dims, [] { return 0.0; }, BufferKind::output));
}

void set(Scene& s, Op op, ir::Facts facts) {
  s.stage().anchor.op = op;
  s.stage().anchor.facts = std::move(facts);
}

void top_k(Scene& s, int size) {
  const DType type = any_type(s);
  Shape x = shape_of(s, s.pick(1, 3), size);
  const int axis = s.pick(0, static_cast<int>(x.size()) - 1);
  x[static_cast<std::size_t>(axis)] = s.pick(1, 9 * size);
  const int length = s.pick(0, 7);  // of one piece that a block sorts, of pieces that are joined at once, and of more
  if (length < 3) {
    for (std::int64_t& d : x) d = 1;
    x[static_cast<std::size_t>(axis)] = length == 0 ? s.pick(100, 2048) : length == 1 ? s.pick(2049, 9000) : s.pick(16385, 20000);
  }
  Shape y = x;
  y[static_cast<std::size_t>(axis)] = s.pick(1, static_cast<int>(x[static_cast<std::size_t>(axis)]));
  set(s, Op::top_k, ir::TopK{.axis = axis, .k = y[static_cast<std::size_t>(axis)], .largest = s.pick(0, 1) == 0});
  s.stage().anchor.inputs = {filled(s, type, x, few(s))};
  if (s.pick(0, 3) == 0) return store(s, DType::s64, y, {1});  // the positions alone
  store(s, type, y, {0, 1});
  store_more(s, DType::s64, y);
}

void arg_max(Scene& s, int size) {
  Shape x = shape_of(s, s.pick(1, 3), size);
  auto axis = static_cast<std::size_t>(s.pick(0, static_cast<int>(x.size()) - 1));
  x[axis] = s.pick(1, 90 * size);
  if (s.pick(0, 5) == 0) {  // a thread a result
    x = s.pick(0, 1) == 0 ? Shape{s.pick(1, 20), s.pick(4096, 4300)} : Shape{s.pick(4096, 4300), s.pick(1, 64)};
    axis = x[0] < x[1] ? 0 : 1;
  }
  const bool keep = s.pick(0, 1) == 0;
  Shape y = x;
  y[axis] = 1;
  if (!keep) y.erase(y.begin() + static_cast<std::ptrdiff_t>(axis));
  set(s, Op::arg_max, ir::ArgMax{static_cast<std::int64_t>(axis), keep, s.pick(0, 1) == 0});
  s.stage().anchor.inputs = {filled(s, any_type(s), x, few(s))};
  store(s, DType::s64, y);
}

/// How many of the first elements there are: none, some, all or more than there is room for.
void add_count(Scene& s, std::int64_t room) {
  const int many = s.pick(-1, static_cast<int>(room) + 2);
  s.stage().anchor.inputs.push_back(filled(s, DType::s64, {}, [many] { return static_cast<double>(many); }));
}

void non_zero(Scene& s, int size) {
  const Shape x{s.pick(0, 2) == 0 ? s.pick(2000, 7000) : s.pick(1, 300 * size)};
  set(s, Op::non_zero, ir::default_facts(Op::non_zero, 1));
  const DType type = s.pick(0, 2) == 0 ? DType::boolean : any_type(s);
  s.stage().anchor.inputs = {filled(s, type, x, [&s] {
    return s.pick(0, 2) == 0 ? 0.0 : s.pick(0, 9) == 0 ? 1e-300 : s.pick(-3, 3);
  })};
  if (s.pick(0, 1) == 0) add_count(s, x[0]);
  store(s, DType::s64, x, {0, 1});
  store_more(s, DType::s64, {});
}

void scatter(Scene& s, int size) {
  const DType type = s.pick(0, 7) == 0 ? DType::boolean : any_type(s);
  const auto how = static_cast<ir::Combine>(s.pick(0, 4));
  Shape x = shape_of(s, s.pick(1, 3), 2 * size), ids, updates;
  ir::Scatter facts{.combine = how};
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  if (s.pick(0, 3) == 0) {  // so many that a target's updates are found by their chain
    x = {s.pick(100, 300)}, updates = ids = {s.pick(300, 600)};
    least = x[0];
  } else if (s.pick(0, 1) == 0) {
    facts.axis = s.pick(0, static_cast<int>(x.size()) - 1);
    for (const std::int64_t d : x) ids.push_back(s.pick(1, static_cast<int>(d)));
    ids[static_cast<std::size_t>(facts.axis)] = s.pick(1, 3 * size);
    updates = ids;
    least = x[static_cast<std::size_t>(facts.axis)];
  } else {
    facts.kind = ir::ScatterKind::nd;
    const int length = s.pick(1, static_cast<int>(x.size()));
    ids = {s.pick(1, 2 * size), s.pick(1, 3), length};
    updates = {ids[0], ids[1]};
    for (std::size_t d = 0; d < x.size(); ++d) {
      if (d < static_cast<std::size_t>(length))
        least = std::min(least, x[d]);
      else
        updates.push_back(x[d]);
    }
  }
  set(s, Op::scatter, facts);
  const int extent = static_cast<int>(least);
  s.stage().anchor.inputs = {filled(s, type, x, few(s)),
                             filled(s, s.pick(0, 1) == 0 ? DType::s64 : DType::s32, ids, wholes(s, -extent, extent - 1)),
                             filled(s, type, updates, few(s))};
  if (s.pick(0, 1) == 0) add_count(s, ids[0]);
  store(s, type, x);
}

void cumulate(Scene& s, int size) {
  const DType type = any_type(s);
  Shape x = shape_of(s, s.pick(1, 3), 4 * size);
  const auto axis = static_cast<std::size_t>(s.pick(0, static_cast<int>(x.size()) - 1));
  const int length = s.pick(0, 3);  // a thread a line; a warp, or a block; pieces
  if (length == 0) x[axis] = s.pick(65, 400);
  if (length == 1) x = {s.pick(1, 2), s.pick(2000, 5000)};
  set(s, Op::cumulate,
      ir::Cumulate{length == 1 ? 1 : static_cast<std::int64_t>(axis),
                   s.pick(0, 2) == 0 ? ir::Accumulation::prod : ir::Accumulation::sum, s.pick(0, 1) == 0, s.pick(0, 1) == 0});
  // No infinity meets another one or a zero: of the NaN that this makes the sign depends on how the sum is compiled.
  const auto plain = [&s] {
    if (s.pick(0, 39) == 0) return std::numeric_limits<double>::quiet_NaN();
    return (s.pick(0, 1) == 0 ? 1 : -1) * std::array{0.5, 1.0, 1.0, 2.0, 3.0}[static_cast<std::size_t>(s.pick(0, 4))];
  };
  s.stage().anchor.inputs = {filled(s, type, x, ir::is_float(type) ? std::function<double()>(plain) : few(s))};
  store(s, type, x);
}

void grid_sample(Scene& s, int size) {
  const DType type = float_type(s);
  const int spatial = s.pick(1, 3), modes = spatial == 2 ? 2 : 1;  // cubic: of two dimensions
  Shape x{s.pick(1, 2), s.pick(1, 3)}, grid{x[0]}, y = x;
  for (int d = 0; d < spatial; ++d) x.push_back(s.pick(1, 3 * size)), grid.push_back(s.pick(1, size)), y.push_back(grid.back());
  grid.push_back(spatial);
  set(s, Op::grid_sample,
      ir::GridSample{static_cast<ir::Interpolation>(s.pick(0, modes)), static_cast<ir::Outside>(s.pick(0, 2)), s.pick(0, 1) == 0});
  s.stage().anchor.inputs = {filled(s, type, x, numbers(s, -2, 2)), filled(s, type, grid, [&s] {
                               return s.pick(0, 30) == 0 ? 1e12 : std::uniform_real_distribution(-2.5, 2.5)(s.rng());
                             })};
  store(s, type, y);
}

void non_max_suppression(Scene& s, int size) {
  const bool many = s.pick(0, 7) == 0;  // more than the bits of one word of each thread
  const int images = many ? 1 : s.pick(1, 2), classes = many ? 1 : s.pick(1, 3), most = s.pick(1, many ? 3 : 8);
  const int boxes = many ? s.pick(32700, 33000) : s.pick(1, (s.pick(0, 3) == 0 ? 100 : 20) * size);
  const bool centre = s.pick(0, 1) == 0;
  set(s, Op::non_max_suppression, ir::Suppression{centre, std::int64_t{images} * classes * most});
  s.stage().anchor.inputs = {filled(s, DType::f32, {images, boxes, 4}, numbers(s, 0.1, 2)),
                             filled(s, DType::f32, {images, classes, boxes}, [&s] { return s.pick(0, 12) / 12.0; }),
                             filled(s, DType::f32, {1}, numbers(s, 0.1, 0.6)), filled(s, DType::f32, {1}, numbers(s, 0, 0.5))};
  store(s, DType::s64, {std::int64_t{images} * classes * most, 3});
}

void dynamic_quantize(Scene& s, int size) {
  const Shape x = s.pick(0, 1) == 0 ? Shape{s.pick(1, 900 * size)} : shape_of(s, 3, 6 * size);
  const double span = s.pick(0, 5) == 0 ? 0 : s.pick(1, 30);
  set(s, Op::dynamic_quantize, ir::default_facts(Op::dynamic_quantize, x.size()));
  s.stage().anchor.inputs = {filled(s, float_type(s), x, numbers(s, s.pick(0, 2) == 0 ? span / 2 : -span, span + 1e-9))};
  store(s, DType::u8, x, {0, 1, 2});
  store_more(s, DType::f32, {});
  store_more(s, DType::u8, {});
}

/// Scales and zero points of a tensor or of one dimension.
void run_time(Scene& s, Op op, int size) {
  constexpr DType kCodes[] = {DType::u8, DType::s8, DType::u16, DType::s16, DType::s32};
  const DType codes = kCodes[s.pick(0, 4)], type = float_type(s), scale = s.pick(0, 1) == 0 ? DType::f32 : kFloats[s.pick(1, 2)];
  const Shape x = shape_of(s, 3, 3 * size);
  const int axis = s.pick(0, 2);
  const Shape channels{s.pick(0, 1) == 0 ? 1 : x[static_cast<std::size_t>(axis)]};
  set(s, op, ir::Along{axis});
  const int zero = codes == DType::u8 || codes == DType::u16 ? 9 : -5;
  const bool to_codes = op == Op::quantize_rt;
  s.stage().anchor.inputs = {to_codes ? filled(s, type, x, few(s)) : filled(s, codes, x, wholes(s, 0, 99)),
                             filled(s, scale, channels, numbers(s, 0.01, 0.2)),
                             filled(s, codes, channels, wholes(s, zero, zero + 3))};
  store(s, to_codes ? codes : scale, x);
}
void quantize_rt(Scene& s, int size) {
  run_time(s, Op::quantize_rt, size);
}
void dequantize_rt(Scene& s, int size) {
  run_time(s, Op::dequantize_rt, size);
}

void math(Scene& s, int size) {
  const DType type = float_type(s);
  const Shape x = shape_of(s, 2, 5 * size);
  set(s, Op::math, ir::Math{static_cast<ir::MathFunction>(s.pick(0, 8))});
  s.stage().anchor.inputs = {filled(s, type, x, numbers(s, -1.5, 1.5))};
  store(s, type, x);
}

void roi_align(Scene& s, int size) {
  const DType type = float_type(s);
  const Shape x{s.pick(1, 2), s.pick(1, 3), s.pick(1, 3 * size), s.pick(1, 3 * size)};
  const std::int64_t rois = s.pick(1, size), h = s.pick(1, 3), w = s.pick(1, 3);
  ir::RoiAlign facts;
  facts.mode = s.pick(0, 1) == 0 ? ir::RoiPooling::avg : ir::RoiPooling::max;
  facts.output_height = h, facts.output_width = w, facts.sampling_ratio = s.pick(0, 3);
  facts.spatial_scale = s.pick(0, 1) == 0 ? 1 : 0.5;
  facts.half_pixel = s.pick(0, 1) == 0;
  set(s, Op::roi_align, facts);
  s.stage().anchor.inputs = {filled(s, type, x, numbers(s, -2, 2)), filled(s, type, {rois, 4}, numbers(s, -2, 4 * size)),
                             filled(s, DType::s64, {rois}, wholes(s, -1, static_cast<int>(x[0]) - 1))};
  store(s, type, {rois, x[1], h, w});
}

void recurrent(Scene& s, int size) {
  const DType type = s.pick(0, 2) == 0 ? float_type(s) : DType::f32;
  const auto cell = static_cast<ir::CellKind>(s.pick(0, 2));
  const auto direction = static_cast<ir::Direction>(s.pick(0, 2));
  const std::int64_t gates = cell == ir::CellKind::lstm  ? 4
                             : cell == ir::CellKind::gru ? 3
                                                         : 1,
                     directions = direction == ir::Direction::bidirectional ? 2 : 1;
  const bool wide = s.pick(0, 3) == 0;  // weights so large that a step is a launch
  const std::int64_t steps = s.pick(1, wide ? 3 : 5), batch = s.pick(1, wide ? 2 : 3),
                     inputs = s.pick(1, (s.pick(0, 3) == 0 ? 30 : 2) * size),
                     hidden = wide ? s.pick(230, 250) : s.pick(1, 12 * size);
  ir::Recurrent facts;
  facts.cell = cell, facts.direction = direction, facts.hidden_size = hidden, facts.layout = s.pick(0, 1) == 0;
  facts.linear_before_reset = s.pick(0, 1) == 0, facts.input_forget = s.pick(0, 3) == 0, facts.clip = s.pick(0, 2) == 0 ? 0.75 : 0;
  const int functions = cell == ir::CellKind::lstm ? 3 : cell == ir::CellKind::gru ? 2 : 1;
  for (int f = 0; f < functions * static_cast<int>(directions); ++f) {
    facts.activations.push_back(static_cast<ir::CellFunction>(s.pick(0, 10)));
    facts.alpha.push_back(0.3), facts.beta.push_back(0.2);
  }
  set(s, Op::recurrent, facts);
  const Shape x = facts.layout ? Shape{batch, steps, inputs} : Shape{steps, batch, inputs};
  const Shape state = facts.layout ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  const auto small = numbers(s, -0.6, 0.6);
  s.stage().anchor.inputs = {
      filled(s, type, x, numbers(s, -2, 2)),
      filled(s, type, {directions, gates * hidden, inputs}, small),
      filled(s, type, {directions, gates * hidden, hidden}, small),
      filled(s, type, {directions, 2 * gates * hidden}, small),
      filled(s, DType::s64, {batch},
             [&s, steps] { return static_cast<double>(s.pick(0, 2) == 0 ? s.pick(0, static_cast<int>(steps)) : steps); }),
      filled(s, type, state, small),
      filled(s, type, state, small),
      filled(s, type, {directions, 3 * hidden}, small)};
  store(s, type, facts.layout ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden}, {0, 1});
  store_more(s, type, state);
  if (cell != ir::CellKind::lstm) return;
  store_more(s, type, state);
  s.stage().anchor.store_results = {0, 1, 2};
}

ir::Window window(Scene& s, int spatial) {
  ir::Window w;
  for (int d = 0; d < spatial; ++d)
    w.kernel.push_back(s.pick(1, 3)), w.strides.push_back(s.pick(1, 2)), w.dilations.push_back(s.pick(1, 2));
  for (int d = 0; d < 2 * spatial; ++d) w.pads.push_back(s.pick(0, 2));
  return w;
}
Shape pooled(const ir::Window& w, const Shape& x) {
  Shape y{x[0], x[1]};
  for (std::size_t d = 0; d < w.kernel.size(); ++d)
    y.push_back((x[d + 2] + w.before(d) + w.after(d) - (w.kernel[d] - 1) * w.dilations[d] - 1) / w.strides[d] + 1);
  return y;
}
Shape image(Scene& s, int spatial, int size) {
  Shape x{s.pick(1, 2), s.pick(1, 3)};
  for (int d = 0; d < spatial; ++d) x.push_back(s.pick(5, 5 + 2 * size));
  return x;
}

void max_pool_index(Scene& s, int size) {
  const int spatial = s.pick(1, 3);
  const Shape x = image(s, spatial, size);
  ir::Window w = window(s, spatial);
  w.column_major = s.pick(0, 1) == 0;
  set(s, Op::max_pool_index, w);
  s.stage().anchor.inputs = {filled(s, any_type(s), x, wholes(s, 0, 9))};
  store(s, DType::s64, pooled(w, x));
}

void max_pool_whole(Scene& s, int size) {
  const int spatial = s.pick(2, 3);
  const Shape x = image(s, spatial, size);
  const ir::Window w = window(s, spatial);
  const DType type = kWholes[s.pick(0, 7)];
  set(s, Op::max_pool, w);
  s.stage().anchor.inputs = {filled(s, type, x, few(s))};
  store(s, type, pooled(w, x));
}

void reduce_whole(Scene& s, int size) {
  constexpr Op kOps[] = {Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min};
  const DType type = kWholes[s.pick(0, 7)];
  Shape x = shape_of(s, s.pick(1, 4), 2 * size);
  if (s.pick(0, 2) == 0) x.back() = s.pick(200, 900);  // of more threads
  ir::Reduction facts;
  facts.keepdims = s.pick(0, 1) == 0;
  Shape y;
  for (std::size_t d = 0; d < x.size(); ++d) {
    const bool reduced = s.pick(0, 1) == 0 || (d + 1 == x.size() && facts.axes.empty());
    if (reduced) facts.axes.push_back(static_cast<std::int64_t>(d));
    if (!reduced || facts.keepdims) y.push_back(reduced ? 1 : x[d]);
  }
  set(s, kOps[s.pick(0, 3)], facts);
  s.stage().anchor.inputs = {filled(s, type, x, few(s))};
  store(s, type, y);
}

void det(Scene& s, int size) {
  const DType type = float_type(s);
  const std::int64_t rows = s.pick(1, 3 * size);
  Shape x = shape_of(s, s.pick(0, 2), size);
  const Shape y = x;
  x.insert(x.end(), {rows, rows});
  set(s, Op::det, ir::default_facts(Op::det, x.size()));
  s.stage().anchor.inputs = {filled(s, type, x, s.pick(0, 2) == 0 ? wholes(s, -1, 1) : numbers(s, -1, 1))};
  store(s, type, y);
}

void deform_conv(Scene& s, int size) {
  const DType type = float_type(s);
  ir::Window w = window(s, 2);
  w.group = s.pick(1, 2), w.offset_group = s.pick(1, 2);
  const std::int64_t depth = s.pick(1, 2) * w.offset_group, outputs = s.pick(1, 2) * w.group;
  Shape x = image(s, 2, size);
  x[1] = depth * w.group;
  const Shape y = pooled(w, x);
  const std::int64_t taps = w.kernel[0] * w.kernel[1];
  const Shape kernel{outputs, depth, w.kernel[0], w.kernel[1]};
  w.kernel = {};
  set(s, Op::deform_conv, w);
  const auto value = numbers(s, -2, 2);
  s.stage().anchor.inputs = {filled(s, type, x, value), filled(s, type, kernel, value),
                             filled(s, type, {x[0], 2 * w.offset_group * taps, y[2], y[3]}, value),
                             filled(s, type, {outputs}, value), filled(s, type, {x[0], w.offset_group * taps, y[2], y[3]}, value)};
  store(s, type, {x[0], outputs, y[2], y[3]});
}

void affine(Scene& s, int size) {
  const DType type = float_type(s);
  const Shape x = shape_of(s, s.pick(2, 4), 2 * size), channels{x[1]};
  set(s, Op::affine, ir::default_facts(Op::affine, x.size()));
  const auto value = numbers(s, -2, 2);
  s.stage().anchor.inputs = {filled(s, type, x, few(s)), filled(s, DType::f32, channels, value),
                             filled(s, DType::f32, channels, value)};
  store(s, type, x);
}

/// Arithmetic, functions, comparisons and casts, with broadcasting.
void doubles(Scene& s, int size) {
  const Shape x = shape_of(s, 3, 2 * size);
  Shape narrow = x;
  for (std::int64_t& d : narrow) d = s.pick(0, 2) == 0 ? 1 : d;
  if (s.pick(0, 1) == 0) narrow.erase(narrow.begin());
  const int kind = s.pick(0, 3);
  if (kind == 0) {
    constexpr Op kOps[] = {Op::add, Op::sub, Op::mul, Op::div, Op::max, Op::min, Op::prelu, Op::pow, Op::mod};
    const Op op = kOps[s.pick(0, 8)];
    set(s, op, op == Op::mod ? ir::Facts(ir::Remainder{s.pick(0, 1) == 0}) : ir::default_facts(op, 3));
    s.stage().anchor.inputs = {filled(s, DType::f64, x, numbers(s, -3, 3)), filled(s, DType::f64, narrow, numbers(s, -2, 3))};
    return store(s, DType::f64, x);
  }
  if (kind == 1) {
    constexpr Op kOps[] = {Op::equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal};
    const DType type = float_type(s);
    set(s, kOps[s.pick(0, 4)], {});
    s.stage().anchor.inputs = {filled(s, type == DType::f32 ? DType::f64 : type, x, few(s)),
                               filled(s, type == DType::f32 ? DType::f64 : type, narrow, few(s))};
    return store(s, DType::boolean, x);
  }
  if (kind == 2) {
    constexpr Op kOps[] = {Op::relu, Op::abs, Op::neg, Op::exp, Op::sigmoid, Op::floor, Op::round, Op::sign, Op::clip};
    const Op op = kOps[s.pick(0, 8)];
    set(s, op, op == Op::clip ? ir::Facts(ir::Clip{-0.5, 1}) : ir::default_facts(op, 3));
    s.stage().anchor.inputs = {filled(s, DType::f64, x, numbers(s, -3, 3))};
    return store(s, DType::f64, x);
  }
  const DType other = s.pick(0, 8) == 0 ? DType::boolean : any_type(s);
  const bool from = s.pick(0, 1) == 0;
  set(s, Op::cast, ir::Cast{.to = from ? other : DType::f64});
  const auto ends = [&s] {
    return s.pick(0, 9) == 0   ? std::numeric_limits<double>::quiet_NaN()
           : s.pick(0, 5) == 0 ? s.pick(-1, 1) * 3e19
                               : s.pick(-900, 900) / 4.0;
  };
  s.stage().anchor.inputs = {from ? filled(s, DType::f64, x, ends) : filled(s, other, x, few(s))};
  store(s, from ? other : DType::f64, x);
}

void small_floats(Scene& s, int size) {
  constexpr DType kSmall[] = {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1};
  constexpr DType kOther[] = {DType::f32, DType::f64, DType::boolean, DType::s8,  DType::u8,
                              DType::s16, DType::s32, DType::u32,     DType::s64, DType::u64};
  const DType small = kSmall[s.pick(0, 4)], other = s.pick(0, 2) == 0   ? kSmall[s.pick(0, 4)]
                                                    : s.pick(0, 1) == 0 ? DType::f32
                                                                        : kOther[s.pick(0, 9)];
  const Shape x = shape_of(s, 3, 4 * size);
  const auto codes = [&s](DType t) { return wholes(s, 0, t == DType::f4e2m1 ? 15 : 255); };
  // Values on and beside the middle of two codes, and beyond all of them.
  const auto values = [&s, small]() -> double {
    if (s.pick(0, 19) == 0)
      return s.pick(0, 1) == 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    const auto code = [&] {
      return ir::small_to_f32(small, static_cast<std::uint8_t>(s.pick(0, small == DType::f4e2m1 ? 14 : 254)));
    };
    const float at = code();
    const double v = s.pick(0, 1) == 0 ? static_cast<double>(at) * (1 + s.pick(0, 4) / 32.0)
                                       : static_cast<double>(at) + static_cast<double>(code());
    return s.pick(0, 9) == 0 ? v * 300 : v;
  };
  const bool from = s.pick(0, 1) == 0;
  set(s, Op::cast, ir::Cast{.to = from ? other : small, .saturate = s.pick(0, 1) == 0});
  const bool whole = other != DType::f32 && other != DType::f64;
  s.stage().anchor.inputs = {from ? filled(s, small, x, codes(small)) : filled(s, other, x, whole ? codes(other) : values)};
  store(s, from ? other : small, x);
}

void bit_cast(Scene& s, int size) {
  constexpr DType kFrom[] = {DType::s8, DType::f16, DType::s32, DType::u64, DType::u32},
                  kTo[] = {DType::u8, DType::u16, DType::f32, DType::f64, DType::s32};
  const int k = s.pick(0, 4);
  const Shape x = shape_of(s, 3, 3 * size);
  set(s, Op::bit_cast, ir::Cast{.to = kTo[k]});
  s.stage().anchor.inputs = {filled(s, kFrom[k], x, wholes(s, 0, 1 << 30))};
  store(s, kTo[k], x);
}

}  // namespace

const std::vector<PlainCase>& plain_cases() {
  // math alone calls a library, which on a GPU is another one.
  static const std::vector<PlainCase> all{
      {"top_k", cuda::top_k_family, top_k},
      {"arg_max", cuda::arg_max_family, arg_max},
      {"non_zero", cuda::non_zero_family, non_zero},
      {"scatter", cuda::scatter_family, scatter},
      {"cumulate", cuda::cumulate_family, cumulate},
      {"grid_sample", cuda::grid_sample_family, grid_sample},
      {"non_max_suppression", cuda::non_max_suppression_family, non_max_suppression},
      {"dynamic_quantize", cuda::dynamic_quantize_family, dynamic_quantize},
      {"quantize_rt", cuda::quantize_rt_family, quantize_rt},
      {"dequantize_rt", cuda::dequantize_rt_family, dequantize_rt},
      {"math", cuda::math_family, math, 2e-7F},
      {"roi_align", cuda::roi_align_family, roi_align},
      {"recurrent", cuda::recurrent_family, recurrent},
      {"max_pool_index", cuda::max_pool_index_family, max_pool_index},
      {"max_pool.whole", cuda::max_pool_whole_family, max_pool_whole},
      {"reduce.whole", cuda::reduce_whole_family, reduce_whole},
      {"det", cuda::det_family, det},
      {"deform_conv", cuda::deform_conv_family, deform_conv},
      {"bit_cast", cuda::bit_cast_family, bit_cast},
      {"affine", cuda::affine_family, affine},
      {"doubles", cuda::doubles_family, doubles},
      {"small_floats", cuda::small_floats_family, small_floats},
  };
  return all;
}

}  // namespace octavo::testing
