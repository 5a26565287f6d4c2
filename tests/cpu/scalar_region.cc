#include "cpu/scalar_region.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/half.h"
#include "cpu/element.h"
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

program::Scalar scalar(const std::byte* p, DType t) {
  program::Scalar s{};
  if (ir::is_float(t)) {
    s.f = read_float(p, t);
  } else {
    s.i = static_cast<std::int32_t>(read_int(p, t));
  }
  return s;
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

// Channels of one tap, each a step from the last.
struct Channels {
  const std::byte *x, *w;
  std::int64_t x_step, w_step, count;
};
template <class X, class W>
std::int64_t sum_of_codes(Channels c, std::int32_t zx, std::int32_t zw) {
  std::int64_t sum = 0;
  for (; c.count > 0; --c.count, c.x += c.x_step, c.w += c.w_step)
    sum += (std::int32_t{std::bit_cast<X>(*c.x)} - zx) * (std::int32_t{std::bit_cast<W>(*c.w)} - zw);
  return sum;
}
std::int64_t sum_of_products(Channels c, DType x, DType w, std::int32_t zx, std::int32_t zw) {
  using U = std::uint8_t;
  using S = std::int8_t;
  if (x == DType::u8 && w == DType::s8) return sum_of_codes<U, S>(c, zx, zw);  // nearly all of a convolution's time in tests
  if (x == DType::u8 && w == DType::u8) return sum_of_codes<U, U>(c, zx, zw);
  if (x == DType::s8 && w == DType::s8) return sum_of_codes<S, S>(c, zx, zw);
  if (x == DType::s8 && w == DType::u8) return sum_of_codes<S, U>(c, zx, zw);
  std::int64_t sum = 0;
  for (; c.count > 0; --c.count, c.x += c.x_step, c.w += c.w_step) sum += (read_int(c.x, x) - zx) * (read_int(c.w, w) - zw);
  return sum;
}
void add_products(double& sum, Channels c, DType x, DType w) {
  const auto each = [&](const auto& read_x, const auto& read_w) {
    for (; c.count > 0; --c.count, c.x += c.x_step, c.w += c.w_step)
      sum += static_cast<double>(read_x(c.x)) * static_cast<double>(read_w(c.w));
  };
  const auto plain = [](const std::byte* p) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  if (x == DType::f32 && w == DType::f32) return each(plain, plain);
  each([&](const std::byte* p) { return read_float(p, x); }, [&](const std::byte* p) { return read_float(p, w); });
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
    const Channels channels{address(m, x, xi), address(m, w, wi), x_step, w_step, per_group_in};
    if (s.anchor.integer) {
      acc_i += sum_of_products(channels, x.dtype, w.dtype, zx, zw);
    } else {
      add_products(acc_f, channels, x.dtype, w.dtype);
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
    case Op::transpose: {
      const ir::Shape& perm = s.anchor.as<ir::Transpose>().perm;
      for (std::size_t k = 0; k < out.size(); ++k) in[static_cast<std::size_t>(perm[k])] = out[k];
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
                        op == Op::cumulate || (op == Op::gather && region.stages.front().program.outputs.empty());
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

}  // namespace octavo::testing
