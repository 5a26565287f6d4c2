// Past 600 lines: the contract of regions, element by element, as one evaluator that kernels of every device are compared with; its parts share the scene.
#include "cpu/scalar_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/causes/kernels.h"
#include "base/half.h"
#include "cpu/isa.h"
#include "reference/oracle_provider.h"
#include "reference/sums.h"
#include "region/stage_graph.h"

namespace octavo::testing {
namespace {

using ir::DType;
using ir::Op;
using region::BufferKind;
using region::Memory;
using region::Stage;
using region::TensorRef;
using Index = std::vector<std::int64_t>;

std::byte* address(const Memory& m, const TensorRef& r, const Index& index, const std::vector<std::int64_t>& div = {}) {
  std::int64_t at = 0;
  for (std::size_t k = 0; k < index.size(); ++k) at += (div.empty() ? index[k] : index[k] / div[k]) * r.strides[k];
  return m.at(r) + at * static_cast<std::int64_t>(ir::size_of(r.dtype));
}

template <class T>
T read(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

std::int64_t read_int(const std::byte* p, DType t) {
  switch (t) {
    case DType::u8:
    case DType::boolean: return read<std::uint8_t>(p);
    case DType::s8: return read<std::int8_t>(p);
    case DType::s32: return read<std::int32_t>(p);
    case DType::s64: return read<std::int64_t>(p);
    default: std::abort();
  }
}
float read_float(const std::byte* p, DType t) {
  switch (t) {
    case DType::f32: return read<float>(p);
    case DType::f16: return f16_to_f32(read<std::uint16_t>(p));
    case DType::bf16: return bf16_to_f32(read<std::uint16_t>(p));
    default: std::abort();
  }
}
program::Scalar scalar(const std::byte* p, DType t) {
  program::Scalar s{};
  if (ir::is_float(t)) {
    s.f = read_float(p, t);
  } else {
    s.i = static_cast<std::int32_t>(read_int(p, t));
  }
  return s;
}

template <class T>
void put(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof(T));
}
void write(std::byte* p, DType t, program::Scalar s) {
  switch (t) {
    case DType::u8:
    case DType::boolean: return put(p, static_cast<std::uint8_t>(s.i));
    case DType::s8: return put(p, static_cast<std::int8_t>(s.i));
    case DType::s32: return put(p, s.i);
    case DType::f32: return put(p, s.f);
    case DType::f16: return put(p, f32_to_f16(s.f));
    case DType::bf16: return put(p, f32_to_bf16(s.f));
    default: std::abort();
  }
}

template <class Fn>
void each_index(const ir::Shape& dims, Fn fn) {
  if (ir::count(dims) == 0) return;
  Index i(dims.size(), 0);
  while (true) {
    fn(i);
    std::size_t k = dims.size();
    while (k > 0 && ++i[k - 1] == dims[k - 1]) i[--k] = 0;
    if (k == 0) return;
  }
}

program::Scalar conv(const Stage& s, const Memory& m, const Index& out) {
  const TensorRef &x = s.anchor.inputs[0], &w = *s.anchor.weights;
  const std::size_t spatial = out.size() - 2;
  const auto& window = s.anchor.as<ir::Window>();
  const ir::Shape &strides = window.strides, &pads = window.pads, &dilations = window.dilations;
  const std::int64_t group = window.group;
  const bool transposed = s.anchor.op == Op::conv_transpose;
  const std::int64_t per_group_in = x.dims[1] / group, per_group_out = s.space[1] / group, g = out[1] / per_group_out;
  const std::int32_t zx = x.quantizer ? x.quantizer->zero_point[0] : 0;
  const auto& wz = s.anchor.weight_zero;
  const std::int32_t zw = wz.empty() ? 0 : wz[static_cast<std::size_t>(out[1]) % wz.size()];
  ir::Shape kernel(w.dims.begin() + 2, w.dims.end());
  std::int64_t acc_i = 0;
  double acc_f = 0;
  // The first element that each tap reads; channels follow by their strides.
  Index xi(2 + spatial), wi(2 + spatial);
  xi[0] = out[0], xi[1] = g * per_group_in;
  wi[0] = transposed ? xi[1] : out[1], wi[1] = transposed ? out[1] % per_group_out : 0;
  const std::int64_t x_step = x.strides[1] * static_cast<std::int64_t>(ir::size_of(x.dtype)),
                     w_step = w.strides[transposed ? 0 : 1] * static_cast<std::int64_t>(ir::size_of(w.dtype));
  each_index(kernel, [&](const Index& k) {
    for (std::size_t d = 0; d < spatial; ++d) {
      std::int64_t i;
      if (transposed) {
        i = out[2 + d] + pads[d] - k[d] * dilations[d];
        if (i % strides[d] != 0) return;
        i /= strides[d];
      } else {
        i = out[2 + d] * strides[d] - pads[d] + k[d] * dilations[d];
      }
      if (i < 0 || i >= x.dims[2 + d]) return;
      xi[2 + d] = i, wi[2 + d] = k[d];
    }
    const std::byte *px = address(m, x, xi), *pw = address(m, w, wi);
    for (std::int64_t c = 0; c < per_group_in; ++c, px += x_step, pw += w_step) {
      if (s.anchor.integer) {
        acc_i += (read_int(px, x.dtype) - zx) * (read_int(pw, w.dtype) - zw);
      } else {
        acc_f += static_cast<double>(read_float(px, x.dtype)) * static_cast<double>(read_float(pw, w.dtype));
      }
    }
  });
  program::Scalar r{};
  if (s.anchor.integer) {
    r.i = static_cast<std::int32_t>(acc_i);
  } else {
    r.f = static_cast<float>(acc_f);
  }
  return r;
}

// Folds the elements of a window into the accumulator of a pooling or reduction.
struct Fold {
  const Stage& s;
  const TensorRef& x;
  std::int64_t sum = 0, best = 0, n = 0;
  float sum_f = 0, best_f = 0;
  reference::PairwiseSum blocks = {};

  void add(const std::byte* p) {
    const bool max = s.anchor.op == Op::max_pool || s.anchor.op == Op::reduce_max;
    if (ir::is_float(x.dtype)) {
      const float v = read_float(p, x.dtype);
      sum_f = s.anchor.op == Op::reduce_l2 ? std::fma(v, v, sum_f) : sum_f + v;
      if ((n + 1) % reference::kSumBlock == 0) blocks.push(std::exchange(sum_f, 0.0F));
      const bool nan = std::isnan(v) && s.anchor.op != Op::max_pool;  // pooling passes over it
      best_f = n == 0 || nan ? v : max ? std::max(best_f, v) : std::min(best_f, v);
    } else {
      const std::int64_t v = read_int(p, x.dtype);
      sum += v - (x.quantizer ? x.quantizer->zero_point[0] : 0);
      best = n == 0 ? v : max ? std::max(best, v) : std::min(best, v);
    }
    ++n;
  }
  program::Scalar result(std::int64_t divisor) const {
    program::Scalar r{};
    const bool selects = s.anchor.op == Op::max_pool || s.anchor.op == Op::reduce_max || s.anchor.op == Op::reduce_min;
    if (!ir::is_float(x.dtype)) {
      r.i = static_cast<std::int32_t>(selects ? best : sum);
    } else if (selects) {
      r.f = best_f;
    } else {
      reference::PairwiseSum all = blocks;
      if (n % reference::kSumBlock != 0) all.push(sum_f);
      r.f = s.anchor.op == Op::reduce_l2    ? std::sqrt(all.total())
            : s.anchor.op == Op::reduce_sum ? all.total()
                                            : all.total() / static_cast<float>(divisor);
    }
    return r;
  }
};

program::Scalar pool(const Stage& s, const Memory& m, const Index& out) {
  const TensorRef& x = s.anchor.inputs[0];
  const std::size_t spatial = out.size() - 2;
  const auto& window = s.anchor.as<ir::Window>();
  const ir::Shape &kernel = window.kernel, &strides = window.strides, &pads = window.pads, &dilations = window.dilations;
  const bool include = window.count_include_pad;
  Fold fold{s, x};
  std::int64_t divisor = 0;
  Index xi(out);
  each_index(kernel, [&](const Index& k) {
    bool inside = true, padded = true;
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t i = out[2 + d] * strides[d] - pads[d] + k[d] * dilations[d];
      inside = inside && i >= 0 && i < x.dims[2 + d];
      padded = padded && i < x.dims[2 + d] + pads[spatial + d];
      xi[2 + d] = i;
    }
    divisor += include ? padded : inside;
    if (inside) fold.add(address(m, x, xi));
  });
  return fold.result(divisor);
}

program::Scalar reduce(const Stage& s, const Memory& m, const Index& out) {
  const TensorRef& x = s.anchor.inputs[0];
  ir::Shape axes = s.anchor.as<ir::Reduction>().axes;
  if (axes.empty()) {
    for (std::size_t k = 0; k < x.dims.size(); ++k) axes.push_back(static_cast<std::int64_t>(k));
  }
  const bool keep = out.size() == x.dims.size();
  ir::Shape window(x.dims.size(), 1);
  Index base(x.dims.size(), 0);
  std::size_t next = 0;
  for (std::size_t k = 0; k < x.dims.size(); ++k) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(k)) != axes.end();
    if (reduced) window[k] = x.dims[k];
    if (!reduced) base[k] = out[keep ? k : next++];
  }
  Fold fold{s, x};
  Index xi(base);
  each_index(window, [&](const Index& k) {
    for (std::size_t d = 0; d < k.size(); ++d) xi[d] = base[d] + k[d];
    fold.add(address(m, x, xi));
  });
  return fold.result(fold.n);
}

// Source index of an output element; false: the pad value.
bool source_of(const Stage& s, const Memory& m, const Index& out, Index& in) {
  const TensorRef& x = s.anchor.inputs[0];
  in = out;
  const auto d64 = [&](std::size_t k) { return x.dims[k]; };
  switch (s.anchor.op) {
    case Op::pad: {
      const auto& [pads, mode, value, code] = s.anchor.as<ir::Pad>();
      for (std::size_t k = 0; k < in.size(); ++k) {
        in[k] -= pads[k];
        if (in[k] >= 0 && in[k] < d64(k)) continue;
        if (mode == ir::PadMode::constant) return false;
        if (mode == ir::PadMode::edge) in[k] = std::clamp<std::int64_t>(in[k], 0, d64(k) - 1);
        if (mode == ir::PadMode::reflect) in[k] = in[k] < 0 ? -in[k] : 2 * (d64(k) - 1) - in[k];
      }
      return true;
    }
    case Op::resize_nearest:
      for (std::size_t k = 0; k < in.size(); ++k) {
        const ir::Shape& table = s.anchor.as<ir::ResizeNearest>().index[k];
        if (!table.empty()) in[k] = table[static_cast<std::size_t>(in[k])];
      }
      return true;
    case Op::tile:
      for (std::size_t k = 0; k < in.size(); ++k) in[k] %= d64(k);
      return true;
    case Op::slice: {
      const auto& [starts, ends, steps] = s.anchor.as<ir::Slice>();
      for (std::size_t k = 0; k < in.size(); ++k) in[k] = starts[k] + in[k] * steps[k];
      return true;
    }
    case Op::gather: {
      const auto axis = static_cast<std::size_t>(s.anchor.as<ir::Gather>().axis);
      const TensorRef& indices = s.anchor.inputs[1];
      const auto at = static_cast<std::ptrdiff_t>(axis), n = static_cast<std::ptrdiff_t>(indices.dims.size());
      const Index which(out.begin() + at, out.begin() + at + n);
      std::int64_t i = read_int(address(m, indices, which), indices.dtype);
      if (i < 0) i += d64(axis);
      in.erase(in.begin() + at, in.begin() + at + n);
      in.insert(in.begin() + at, i);
      return true;
    }
    case Op::depth_to_space: {
      const std::int64_t b = s.anchor.as<ir::Blocks>().blocksize, c = x.dims[1] / (b * b), y = out[2] % b, z = out[3] % b;
      const bool crd = s.anchor.as<ir::Blocks>().mode == ir::BlockOrder::column_row_depth;
      in = {out[0], crd ? (out[1] * b + y) * b + z : (y * b + z) * c + out[1], out[2] / b, out[3] / b};
      return true;
    }
    case Op::space_to_depth: {
      const std::int64_t b = s.anchor.as<ir::Blocks>().blocksize, c = x.dims[1], block = out[1] / c;
      in = {out[0], out[1] % c, out[2] * b + block / b, out[3] * b + block % b};
      return true;
    }
    default: std::abort();
  }
}

program::Scalar moved(const Stage& s, const Memory& m, const Index& out) {
  const TensorRef& x = s.anchor.inputs[0];
  Index in;
  if (source_of(s, m, out, in)) return scalar(address(m, x, in), x.dtype);
  program::Scalar r{};
  if (ir::is_float(x.dtype)) {
    r.f = static_cast<float>(s.anchor.op == Op::pad ? s.anchor.as<ir::Pad>().value : 0);
  } else {
    r.i = static_cast<std::int32_t>(s.anchor.op == Op::pad ? s.anchor.as<ir::Pad>().value_code.value_or(0) : 0);
  }
  return r;
}

program::Scalar accumulate(const Stage& s, const Memory& m, const Index& out) {
  switch (s.anchor.op) {
    case Op::input: return {};
    case Op::conv:
    case Op::conv_transpose: return conv(s, m, out);
    case Op::max_pool:
    case Op::avg_pool: return pool(s, m, out);
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_mean:
    case Op::reduce_l2:
    case Op::reduce_sum: return reduce(s, m, out);
    default: return moved(s, m, out);
  }
}

}  // namespace

/// Operators whose results depend on more than a window: as the reference evaluator has them.
bool by_reference(const region::Region& region, const Memory& memory) {
  const Op op = region.stages.front().anchor.op;
  const bool elements = ir::has_trait(op, ir::kPointwise) || op == Op::bitwise || op == Op::scatter || op == Op::gather_elements ||
                        op == Op::gather_nd || op == Op::grid_sample || op == Op::roi_align || op == Op::softmax ||
                        (op == Op::gather && region.stages.front().program.outputs.empty());
  if (!elements && op != Op::instance_norm && op != Op::layer_norm && op != Op::matmul && op != Op::recurrent &&
      op != Op::dynamic_quantize && op != Op::arg_max && op != Op::top_k && op != Op::non_zero && op != Op::non_max_suppression)
    return false;
  region::Region plain = region;
  plain.packed.clear();
  plain.tactic = reference::oracle_provider().offers(plain, {}).front().tactic;
  const auto kernel = region::as_host_kernel(reference::oracle_provider().load(plain, {}, {}));
  if (!kernel) std::abort();
  std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 64);
  (*kernel)->run(memory, 0, (*kernel)->tasks(), region::Worker{0, 1, scratch.data(), nullptr, nullptr});
  return true;
}

void scalar_region(const region::Region& region, const Memory& memory) {
  if (by_reference(region, memory)) return;
  std::vector<program::Scalar> operands, results, scratch;
  for (const Stage& s : region.stages) {
    if (s.anchor.op == Op::reshape && s.program.code.empty()) {  // a plain copy of any type
      each_index(s.space, [&](const Index& i) {
        std::memcpy(address(memory, s.stores[0], i), address(memory, s.anchor.inputs[0], i), ir::size_of(s.stores[0].dtype));
      });
      continue;
    }
    operands.resize(s.operands.size());
    results.resize(s.stores.size());
    each_index(s.space, [&](const Index& i) {
      const program::Scalar acc = accumulate(s, memory, i);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        operands[k] = scalar(address(memory, s.operands[k].ref, i, s.operands[k].div), s.operands[k].ref.dtype);
      }
      program::interpret(s.program, acc, operands, results, scratch);
      for (std::size_t k = 0; k < results.size(); ++k) write(address(memory, s.stores[k], i), s.stores[k].dtype, results[k]);
    });
  }
}

namespace {

constexpr std::size_t kGuard = 64;

}  // namespace

TensorRef Scene::tensor(DType dtype, ir::Shape dims, BufferKind kind, std::vector<int> order, int gap, float scale) {
  if (order.empty()) {
    for (std::size_t k = 0; k < dims.size(); ++k) order.push_back(static_cast<int>(k));
  }
  TensorRef r;
  r.buffer = static_cast<region::BufferId>(plan_.buffers.size());
  r.dtype = dtype;
  r.dims = dims;
  r.strides.assign(dims.size(), 1);
  std::int64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    const auto d = static_cast<std::size_t>(order[k]);
    r.strides[d] = step;
    step *= dims[d];
    if (k + 1 == order.size()) step += gap;
  }
  const std::int64_t n = std::max<std::int64_t>(step, 1);
  region::Buffer b;
  b.kind = kind;
  b.bytes = n * static_cast<std::int64_t>(ir::size_of(dtype));
  b.name = fmt::format("buffer {}", plan_.buffers.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(b.bytes) + 2 * kGuard);
  for (auto& byte : bytes) byte = static_cast<std::byte>(rng_());
  for (std::int64_t i = 0; i < n; ++i) {
    std::byte* p = bytes.data() + kGuard + static_cast<std::size_t>(i) * ir::size_of(dtype);
    const float f = std::uniform_real_distribution<float>(-scale, scale)(rng_);
    const std::uint32_t u = rng_();
    const int extremes[4] = {0, 255, 127, 128};
    const int code = (u & 1U) != 0 ? extremes[(u >> 1) & 3U] : static_cast<int>((u >> 8) & 255U);
    switch (dtype) {
      case DType::f32: put(p, f); break;
      case DType::f16: put(p, f32_to_f16(f)); break;
      case DType::bf16: put(p, f32_to_bf16(f)); break;
      case DType::boolean: put(p, static_cast<std::uint8_t>(u & 1U)); break;
      case DType::u8: put(p, static_cast<std::uint8_t>(code)); break;
      case DType::s8: put(p, static_cast<std::int8_t>(code - 128)); break;
      case DType::s32: put(p, static_cast<std::int32_t>(u % 20001) - 10000); break;
      case DType::s64: put(p, static_cast<std::int64_t>(u)); break;
      case DType::f64: put(p, static_cast<double>(f) * 1.000000001); break;
      case DType::s16: put(p, static_cast<std::int16_t>(u)); break;
      case DType::u16: put(p, static_cast<std::uint16_t>(u)); break;
      case DType::u32: put(p, u); break;
      case DType::u64: put(p, (static_cast<std::uint64_t>(u) << 32) + rng_()); break;
      default: std::abort();
    }
  }
  if (kind == BufferKind::constant) {
    b.data = ir::Tensor(dtype, {n});
    std::memcpy(b.data.mutable_bytes().data(), bytes.data() + kGuard, static_cast<std::size_t>(b.bytes));
  }
  plan_.buffers.push_back(std::move(b));
  memory.push_back(std::move(bytes));
  return r;
}

TensorRef Scene::nhwc(DType dtype, ir::Shape dims, BufferKind kind, int gap) {
  std::vector<int> order{0};
  for (std::size_t k = 2; k < dims.size(); ++k) order.push_back(static_cast<int>(k));
  order.push_back(1);
  return tensor(dtype, std::move(dims), kind, order, gap);
}

TensorRef Scene::along(DType dtype, const ir::Shape& space, int axis, float scale) {
  TensorRef r = tensor(dtype, {space[static_cast<std::size_t>(axis)]}, BufferKind::constant, {}, 0, scale);
  r.dims = space;
  r.strides.assign(space.size(), 0);
  r.strides[static_cast<std::size_t>(axis)] = 1;
  return r;
}

TensorRef Scene::constant_along(const std::vector<float>& values, const ir::Shape& space, int axis) {
  TensorRef r = along(DType::f32, space, axis);
  auto& bytes = memory[static_cast<std::size_t>(r.buffer)];
  std::memcpy(bytes.data() + kGuard, values.data(), values.size() * sizeof(float));
  auto& b = plan_.buffers[static_cast<std::size_t>(r.buffer)];
  b.data = ir::Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
  return r;
}

TensorRef Scene::constant_along(const std::vector<std::int32_t>& values, const ir::Shape& space, int axis) {
  TensorRef r = along(DType::s32, space, axis);
  auto& bytes = memory[static_cast<std::size_t>(r.buffer)];
  std::memcpy(bytes.data() + kGuard, values.data(), values.size() * sizeof(std::int32_t));
  auto& b = plan_.buffers[static_cast<std::size_t>(r.buffer)];
  b.data = ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(values.size())}, values);
  return r;
}

void Scene::requantize(int channel_axis, float acc_scale, DType out) {
  using program::Op;
  Stage& s = stage();
  const auto channels = static_cast<std::size_t>(s.space[static_cast<std::size_t>(channel_axis)]);
  std::vector<float> scale(channels), bias(channels);
  for (auto& v : scale) v = acc_scale * std::uniform_real_distribution<float>(0.5F, 1.5F)(rng_);
  for (auto& v : bias) v = std::uniform_real_distribution<float>(-20, 20)(rng_);
  const int first = static_cast<int>(s.operands.size());
  s.operands.push_back({constant_along(scale, s.space, channel_axis), {}});
  s.operands.push_back({constant_along(bias, s.space, channel_axis), {}});
  program::Program& p = s.program;
  p.operand_count = first + 2;
  const int acc = p.push(Op::i2f, p.push(Op::acc_i));
  const int y = p.push(Op::fma, acc, p.load(Op::load_f, first), p.load(Op::load_f, first + 1));
  const int lo = out == DType::u8 ? -3 : -128, hi = lo + 255;
  int q = p.push(Op::div, y, p.imm_f(0.37F));
  q = p.push(Op::max, q, p.imm_f(static_cast<float>(lo)));
  q = p.push(Op::min, q, p.imm_f(static_cast<float>(hi)));
  q = p.push(Op::f2i, q);
  if (out == DType::u8) q = p.push(Op::add_i, q, p.imm_i(3));
  p.outputs.push_back({q, out});
}

region::Memory Scene::addresses(std::vector<std::vector<std::byte>>& bytes) const {
  region::Memory m;
  for (auto& b : bytes) m.base.push_back(b.data() + kGuard);
  return m;
}

region::Plan Scene::with_packed(const std::vector<ir::Tensor>& packed) {
  region::Plan plan = plan_;
  region_.packed.clear();
  for (const ir::Tensor& t : packed) {
    region::Buffer b;
    b.kind = region::BufferKind::constant;
    b.bytes = static_cast<std::int64_t>(t.bytes().size());
    region_.packed.push_back(static_cast<region::BufferId>(plan.buffers.size()));
    plan.buffers.push_back(std::move(b));
  }
  return plan;
}

namespace {
/// Versions count changes of a family; a test is about the one that there is.
region::Tactic of_any_version(region::Tactic t) {
  t.version = 1;
  for (region::Tactic& part : t.parts) part = of_any_version(std::move(part));
  return t;
}
}  // namespace

std::string Scene::run_apart(const region::Provider& provider, const region::Memory& at) const {
  for (std::size_t k = 0; k < region_.stages.size(); ++k) {
    region::Region one = region_;
    one.stages = {region_.stages[k]};
    one.packed.clear();
    const auto wanted = region::parse_tactic(apart[k]);
    if (!wanted) return wanted.error().message;
    bool found = false;
    for (const region::Offer& o : provider.offers(one, plan_)) {
      if (!region::selects(of_any_version(*wanted), of_any_version(o.tactic)) || !o.refusal.empty()) continue;
      found = true;
      one.tactic = o.tactic;
    }
    if (!found) return fmt::format("stage {} has no tactic {}", k, apart[k]);
    const auto kernel = region::as_host_kernel(provider.load(one, plan_, {}));
    if (!kernel) return "load: " + kernel.error().message;
    std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 64);
    auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
    (*kernel)->run(at, 0, (*kernel)->tasks(), region::Worker{0, 1, base, nullptr, nullptr});
  }
  return "";
}

region::Region& Scene::region() {
  for (region::Stage& s : region_.stages) program::mark(s.program);
  return region_;
}

/// Each run of tasks by a thread of its own, all at once.
static void together(const region::HostKernel& kernel, const Memory& at, const std::vector<std::pair<int, int>>& runs,
                     std::byte* shared) {
  std::vector<std::thread> threads;
  std::vector<std::vector<std::byte>> scratch(runs.size(), std::vector<std::byte>(kernel.scratch_bytes() + 64, std::byte{0xA5}));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    threads.emplace_back([&, i] {
      auto* base = scratch[i].data() + (64 - reinterpret_cast<std::uintptr_t>(scratch[i].data()) % 64) % 64;
      kernel.run(at, runs[i].first, runs[i].second,
                 {static_cast<int>(i), static_cast<int>(runs.size()), base, nullptr, nullptr, shared});
    });
  }
  for (std::thread& t : threads) t.join();
}

std::string Scene::compare(const region::Provider& provider, const std::string& tactic, float tolerance, int ignored) {
  (void)region();
  const std::string repeat = fmt::format(" (tactic {}, seed {}; repeat with --gtest_filter of this test)", tactic, seed_);
  bool known = false;
  const auto wanted = region::parse_tactic(tactic);
  if (!wanted) return wanted.error().message;
  for (const region::Offer& o : provider.offers(region_, plan_)) {
    if (!region::selects(of_any_version(*wanted), of_any_version(o.tactic))) continue;
    known = true;
    if (has(o.refusal, cause::capability_missing) || has(o.refusal, cause::capability_not_allowed))
      return "skip: " + tactic + " " + spelled(o.refusal);
    if (!o.refusal.empty()) return "refused: " + spelled(o.refusal) + repeat;
    if (!(o.cost > 0)) return "the offer has no cost" + repeat;
    region_.tactic = o.tactic;
    for (const auto& [name, value] : parameters) region_.tactic.parameters[name] = value;
  }
  if (!known) return "the provider does not offer the tactic" + repeat;
  auto made = provider.compile(region_, plan_, region_.tactic);
  if (!made) return "compile: " + made.error().message + repeat;
  std::vector<std::vector<std::byte>> packed_bytes;
  std::vector<const std::byte*> packed_at;
  for (const ir::Tensor& t : made->constants) {  // 64-byte aligned, 64 readable bytes after the end
    packed_bytes.emplace_back(t.bytes().size() + 128);
    auto* p = packed_bytes.back().data();
    p += (64 - reinterpret_cast<std::uintptr_t>(p) % 64) % 64;
    std::memcpy(p, t.bytes().data(), t.bytes().size());
    packed_at.push_back(p);
  }
  auto kernel = region::as_host_kernel(provider.load(region_, with_packed(made->constants), {packed_at, {}, {}}));
  if (!kernel) return "load: " + kernel.error().message + repeat;
  auto expected = memory, actual = memory;
  if (apart.empty()) {
    scalar_region(region_, addresses(expected));
  } else if (const std::string why = run_apart(provider, addresses(expected)); !why.empty()) {
    return why + repeat;
  }
  const region::Memory at = addresses(actual);
  std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 192, std::byte{0xA5});
  auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  const int tasks = (*kernel)->tasks();
  std::vector<std::pair<int, int>> runs;
  for (int begin = 0; begin < tasks;) {
    const int end = std::min(tasks, begin + pick(1, 3));
    runs.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(runs.begin(), runs.end(), rng_);
  // Two workers in turns, each with scratch that says what it holds.
  std::vector<std::byte> other(scratch);
  auto* other_base = other.data() + (64 - reinterpret_cast<std::uintptr_t>(other.data()) % 64) % 64;
  std::array<std::int64_t, 2> kept{-1, -1};
  std::vector<std::byte> shared((*kernel)->shared_bytes() + 64);
  auto* shared_base = shared.data() + (64 - reinterpret_cast<std::uintptr_t>(shared.data()) % 64) % 64;
  const int how = (*kernel)->shared_bytes() == 0 ? 0 : pick(0, 2);  // without shared memory, with it, and at once
  for (int k = 0; how == 2 && k < 2; ++k)
    together(**kernel, at, runs, shared_base);  // what the first run leaves is what the second begins with
  for (const auto& [begin, end] : runs) {
    if (how == 2) break;
    const int w = pick(0, 1);
    (*kernel)->run(
        at, begin, end,
        {w, 2, w == 0 ? base : other_base, nullptr, &kept[static_cast<std::size_t>(w)], how == 0 ? nullptr : shared_base});
  }
  for (std::size_t k = (*kernel)->scratch_bytes(); base + k < scratch.data() + scratch.size(); ++k) {
    if (base[k] != std::byte{0xA5}) return fmt::format("wrote past its {} bytes of scratch{}", (*kernel)->scratch_bytes(), repeat);
  }
  const std::set<region::BufferId> unwritten = region::kept_from_memory(region_);
  for (std::size_t b = 0; b < memory.size(); ++b) {
    if (static_cast<int>(b) == ignored || unwritten.contains(static_cast<region::BufferId>(b))) continue;
    DType type = DType::u8;  // f32 or bf16 where a tolerance applies
    for (const TensorRef& s : region_.stages.back().stores) {
      if (tolerance > 0 && s.buffer == static_cast<region::BufferId>(b) && (s.dtype == DType::f32 || s.dtype == DType::bf16))
        type = s.dtype;
    }
    for (std::size_t i = 0; i < actual[b].size(); ++i) {
      if (actual[b][i] == expected[b][i]) continue;
      if (type != DType::u8 && i >= kGuard && i < actual[b].size() - kGuard) {
        const std::size_t size = ir::size_of(type), at_float = kGuard + (i - kGuard) / size * size;
        const float e = read_float(expected[b].data() + at_float, type), a = read_float(actual[b].data() + at_float, type);
        const float step = type == DType::bf16 ? std::max(std::abs(a), std::abs(e)) / 128 : 0.0F;  // between neighbours, at most
        if (std::abs(a - e) <= tolerance * (1 + std::abs(e)) + step) continue;
        return fmt::format("buffer {} float {}: {} instead of {}{}", b, (i - kGuard) / size, a, e, repeat);
      }
      return fmt::format("buffer {} byte {} of {}: {} instead of {}{}", b,
                         static_cast<std::int64_t>(i) - static_cast<std::int64_t>(kGuard), actual[b].size() - 2 * kGuard,
                         std::to_integer<int>(actual[b][i]), std::to_integer<int>(expected[b][i]), repeat);
    }
  }
  return "";
}

}  // namespace octavo::testing
