// DFT and STFT as products with constant matrices, the window functions, and the matrix of mel bins.
//   forward   X[k] = sum_t x[t] exp(-2 pi i k t / N)        inverse  x[t] = 1/N sum_k X[k] exp(2 pi i k t / N)
// One-sided: the first N/2 + 1 frequencies; the inverse of those gives N real values.
#include <array>
#include <cmath>

#include "base/whole_number.h"
#include "onnx/import/compose.h"
#include "onnx/import/registry.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

/// rows x columns: weight(row) * cos or sin of 2 pi row column / length, in double, rounded once. The product is reduced modulo the
/// length.
template <class Weight>
ValueId wave(Compose& c, std::int64_t rows, std::int64_t columns, std::int64_t length, bool sine, Weight&& weight) {
  Tensor t(DType::f32, {rows, columns});
  const double step = 2 * std::acos(-1.0) / static_cast<double>(length);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const double angle = step * static_cast<double>(r * k % length);
      t.mutable_data<float>()[static_cast<std::size_t>(r * columns + k)] =
          static_cast<float>(weight(r) * (sine ? std::sin(angle) : std::cos(angle)));
    }
  }
  return c.constant(std::move(t));
}

struct Transform {
  std::int64_t length;
  bool inverse, onesided;
};

/// x [..., T, ..., 1 or 2] along `axis` (never the last).
Result<ValueId> transform(NodeContext& n, Compose& c, ValueId x, std::int64_t axis, const Transform& t) {
  OCTAVO_CHECK(c.status());
  const Shape shape = c.shape(x);
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (rank < 2 || axis == rank - 1 || (shape.back() != 1 && shape.back() != 2))
    return n.bad("data {} along axis {}: the last dimension must be 1 or 2", ir::to_string(shape), axis);
  if (t.length < 1 || t.length > 65536) return n.unsupported("a transform of {} points; 1 to 65536 are supported", t.length);
  const std::int64_t given = shape[static_cast<std::size_t>(axis)], half = t.length / 2 + 1;
  const std::int64_t used = std::min(given, t.inverse && t.onesided ? half : t.length),
                     out = t.onesided && !t.inverse ? half : t.length;
  if (used * out > (std::int64_t{1} << 24)) return n.unsupported("a transform of {} by {} points", used, out);
  Ints perm, back(static_cast<std::size_t>(rank));
  for (std::int64_t d = 0; d < rank - 1; ++d) {
    if (d != axis) perm.push_back(d);
  }
  perm.push_back(axis);
  perm.insert(perm.begin(), rank - 1);  // [part, ..., T]
  for (std::size_t i = 0; i < perm.size(); ++i) back[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  const ValueId parts = c.slice(c.transpose(x, perm), rank - 1, 0, used);
  const ValueId re = c.slice(parts, 0, 0, 1), im = shape.back() == 2 ? c.slice(parts, 0, 1, 2) : ir::kNone;
  const double scale = t.inverse ? 1.0 / static_cast<double>(t.length) : 1.0;
  const auto weight = [&](std::int64_t r) {
    const bool twice = t.inverse && t.onesided && r != 0 && 2 * r != t.length;  // stands for its mirror image too
    return twice ? 2 * scale : scale;
  };
  const ValueId cosine = wave(c, used, out, t.length, false, weight), sine = wave(c, used, out, t.length, true, weight);
  // forward: (re + i im)(cos - i sin); inverse: (re + i im)(cos + i sin)
  const auto sum = [&](ValueId a, ValueId b, bool minus) { return minus ? c.sub(a, b) : c.add(a, b); };
  ValueId real = c.matmul(re, cosine);
  if (im != ir::kNone) real = sum(real, c.matmul(im, sine), t.inverse);
  if (t.inverse && t.onesided) return c.value(c.transpose(real, back));
  ValueId imaginary = c.matmul(re, sine);
  if (!t.inverse) imaginary = c.neg(imaginary);
  if (im != ir::kNone) imaginary = c.add(imaginary, c.matmul(im, cosine));
  return c.value(c.transpose(c.concat({real, imaginary}, 0), back));
}

/// axis: an attribute in opset 17, an input from 20.
Status dft(NodeContext& n) {
  Compose c(n);
  Transform t{0, n.attr_int("inverse", 0) != 0, n.attr_int("onesided", 0) != 0};
  std::int64_t axis = n.opset() < 20 ? n.attr_int("axis", 1) : -2;
  if (n.has(2)) {
    OCTAVO_TRY(axis, n.constant_integer(2, "the axis"));
  }
  OCTAVO_TRY(axis, n.axis(axis, n.rank(0)));
  const std::int64_t extent = n.shape(0)[static_cast<std::size_t>(axis)];
  t.length = t.inverse && t.onesided ? 2 * (extent - 1) : extent;
  if (n.has(1)) {
    OCTAVO_TRY(t.length, n.constant_integer(1, "dft_length"));
  }
  return n.result(transform(n, c, n.in(0), axis, t));
}

/// Frames of a real signal [B, T, 1] by a constant window are a convolution whose taps are waves times the window: no frame is written.
Result<ValueId> real_stft(NodeContext& n, Compose& c, ValueId x, std::int64_t hop, std::int64_t length, bool onesided) {
  const Shape signal = c.shape(x);
  const std::int64_t bins = onesided ? length / 2 + 1 : length;
  const Tensor* window = n.constant(2);
  Tensor taps(DType::f32, {2 * bins, 1, length});
  const double step = 2 * std::acos(-1.0) / static_cast<double>(length);
  float* to = taps.mutable_data<float>().data();
  for (const bool sine : {false, true}) {
    for (std::int64_t k = 0; k < bins; ++k) {
      for (std::int64_t t = 0; t < length; ++t) {
        const double angle = step * static_cast<double>(k * t % length);
        *to++ = static_cast<float>((window == nullptr ? 1.0 : window->at(t)) * (sine ? -std::sin(angle) : std::cos(angle)));
      }
    }
  }
  const ValueId line = c.reshape(x, {signal[0], 1, signal[1]});
  const ValueId y = c.op(Op::conv, {line, c.constant(std::move(taps))},
                         {{"strides", Ints{hop}}, {"dilations", Ints{1}}, {"pads", Ints{0, 0}}, {"group", std::int64_t{1}}});
  if (!c.ok()) return c.value(y);
  return c.value(c.transpose(c.reshape(y, {signal[0], 2, bins, c.shape(y)[2]}), {0, 3, 2, 1}));
}

/// signal [B, T, 1 or 2], frame_step, window, frame_length -> [B, frames, bins, 2]
Status stft(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 2, 3));
  ValueId x = n.in(0);
  if (n.rank(0) == 2) x = c.reshape(x, {n.shape(0)[0], n.shape(0)[1], 1});
  OCTAVO_TRY(const std::int64_t hop, n.constant_integer(1, "frame_step"));
  std::int64_t length = n.has(2) ? ir::count(n.shape(2)) : n.shape(0)[1];
  if (n.has(3)) {
    OCTAVO_TRY(length, n.constant_integer(3, "frame_length"));
  }
  const std::int64_t total = n.shape(0)[1];
  if (hop < 1 || length < 1 || length > total) return n.bad("frames of {} every {} of {} samples", length, hop, total);
  if (n.has(2) && n.shape(2) != Shape{length}) return n.bad("the window is {}, the frame {}", ir::to_string(n.shape(2)), length);
  const std::int64_t frames = 1 + (total - length) / hop;
  if (frames > (std::int64_t{1} << 26) / length) return n.unsupported("{} frames of {}", frames, length);
  const bool onesided = n.attr_int("onesided", 1) != 0;
  const bool fits = length <= 4096;  // longer transforms would have too many taps
  if (c.ok() && c.shape(x)[2] == 1 && fits && (!n.has(2) || n.constant(2) != nullptr))
    return n.result(real_stft(n, c, x, hop, length, onesided));
  Ints index;
  for (std::int64_t f = 0; f < frames; ++f) {
    for (std::int64_t i = 0; i < length; ++i) index.push_back(f * hop + i);
  }
  ValueId parts = c.gather(x, c.integers({frames, length}, index), 1);  // [B, frames, length, 1 or 2]
  if (n.has(2)) parts = c.mul(parts, c.reshape(n.in(2), {length, 1}));
  return n.result(transform(n, c, parts, 2, {length, false, onesided}));
}

/// HannWindow, HammingWindow, BlackmanWindow: a0 - a1 cos + a2 cos 2, in double.
Status window(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t size, n.constant_integer(0, "the size"));
  if (size < 1 || size > (std::int64_t{1} << 24)) return n.bad("a window of {} samples", size);
  const auto code = static_cast<std::int32_t>(n.attr_int("output_datatype", 1));
  const auto type = dtype_of(code);
  if (!type || !ir::is_float(*type)) return n.unsupported("output_datatype {}", onnx_type_name(code));
  const bool periodic = n.attr_int("periodic", 1) != 0;
  const std::string& name = n.proto().op_type();
  const double a0 = name[2] == 'n'   ? 0.5
                    : name[2] == 'm' ? 25.0 / 46
                                     : 0.42,
               a1 = name[2] == 'a' ? 0.5 : 1 - a0, a2 = name[2] == 'a' ? 0.08 : 0;
  const double step = 2 * std::acos(-1.0) / static_cast<double>(periodic ? size : std::max<std::int64_t>(size - 1, 1));
  Tensor t(DType::f32, {size});
  for (std::int64_t i = 0; i < size; ++i) {
    const double angle = step * static_cast<double>(i);
    t.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  n.declare(0, *type);
  n.set(0, n.add_constant(std::move(t)));
  return {};
}

/// num_mel_bins, dft_length, sample_rate, lower and upper edge in hertz -> [dft_length / 2 + 1, num_mel_bins]: triangles over bins of a
/// spectrum, whose corners lie at equal distances on the mel scale 2595 log10(1 + hertz / 700). In double, rounded once.
Status mel_weight_matrix(NodeContext& n) {
  std::array<double, 5> given{};
  constexpr std::array<std::string_view, 5> kRoles{"the number of mel bins", "the DFT's length", "the sample rate",
                                                   "the lower edge", "the upper edge"};
  for (std::size_t i = 0; i < given.size(); ++i) {
    OCTAVO_TRY(given[i], n.constant_scalar(i, kRoles[i]));
  }
  const double rate = given[2], low = given[3], high = given[4];
  const std::int64_t bins = whole_number(given[0]), length = whole_number(given[1]), rows = length / 2 + 1;
  if (bins < 1 || length < 1 || bins > (std::int64_t{1} << 20) || length > (std::int64_t{1} << 24) ||
      rows * bins > (std::int64_t{1} << 28))
    return n.bad("{} mel bins of a DFT of length {}", bins, length);
  if (!(rate > 0) || !(low >= 0) || !(high >= low) || !std::isfinite(high))
    return n.bad("mel bins from {} to {} Hz at a sample rate of {} Hz", low, high, rate);
  const auto code = static_cast<std::int32_t>(n.attr_int("output_datatype", 1));
  const auto type = dtype_of(code);
  if (!type || !ir::is_float(*type)) return n.unsupported("output_datatype {}", onnx_type_name(code));
  const auto mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10.0); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  const auto corner = [&](std::int64_t i) {  // the bin of the spectrum
    const double hertz = 700 * std::expm1((static_cast<double>(i) * step + mel(low)) / 2595 * std::log(10.0));
    return whole_number(static_cast<double>(length + 1) * hertz / rate);
  };
  if (corner(bins + 1) > rows)
    return n.bad("mel bins up to {} Hz reach beyond the {} bins of a spectrum at a sample rate of {} Hz", high, rows, rate);
  Tensor t(DType::f32, {rows, bins});
  const auto put = [&](std::int64_t row, std::int64_t bin, std::int64_t part, std::int64_t whole) {
    if (row < rows)
      t.mutable_data<float>()[static_cast<std::size_t>(row * bins + bin)] =
          static_cast<float>(static_cast<double>(part) / static_cast<double>(whole));
  };
  for (std::int64_t b = 0; b < bins; ++b) {
    const std::int64_t from = corner(b), peak = corner(b + 1), to = corner(b + 2);
    if (peak == from) put(peak, b, 1, 1);
    for (std::int64_t row = from; row <= peak && peak > from; ++row) put(row, b, row - from, peak - from);
    for (std::int64_t row = peak; row < to; ++row) put(row, b, to - row, to - peak);
  }
  n.declare(0, *type);
  n.set(0, n.add_constant(std::move(t)));
  return {};
}

constexpr std::array kSignalRows{
    OpRow{"DFT", "", 17, 0, 1, 3, dft},
    OpRow{"STFT", "", 17, 0, 2, 4, stft},
    OpRow{"HannWindow", "", 17, 0, 1, 1, window},
    OpRow{"HammingWindow", "", 17, 0, 1, 1, window},
    OpRow{"BlackmanWindow", "", 17, 0, 1, 1, window},
    OpRow{"MelWeightMatrix", "", 17, 0, 5, 5, mel_weight_matrix},
};

}  // namespace

Family signal_ops() {
  return kSignalRows;
}

}  // namespace octavo::onnx
