#include "cuda/families/conv/conv_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

std::int64_t weight_zero(const ConvFilter& filter, std::int64_t channel) {
  const auto& z = filter.zero;
  return z.empty() ? 0 : z[z.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

/// Calls f(channel, channel of the group, row, column, element of the buffer). Channels of the group innermost, as filters are packed: networks have
/// tens of millions of weights, which are read for every kernel that is timed.
template <class F>
void each_place(const ConvFilter& filter, F f) {
  const region::TensorRef& w = filter.ref;
  for (std::int64_t o = 0; o < w.dims[0]; ++o) {
    for (std::int64_t y = 0; y < w.dims[2]; ++y) {
      for (std::int64_t x = 0; x < w.dims[3]; ++x) {
        const std::int64_t first = o * w.strides[0] + y * w.strides[2] + x * w.strides[3];
        for (std::int64_t c = 0; c < w.dims[1]; ++c) f(o, c, y, x, first + c * w.strides[1]);
      }
    }
  }
}
/// The same with the weight less its zero point.
template <class F>
void each_weight(const ConvFilter& filter, F f) {
  const auto* data = filter.data.bytes().data() + filter.ref.offset;
  each_place(filter, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x, std::int64_t at) {
    f(o, c, y, x, static_cast<std::int64_t>(static_cast<std::int8_t>(data[at])) - weight_zero(filter, o));
  });
}

/// Bytes of floats, little end first.
void write_floats(const ConvFilter& filter, const ConvShape& shape, std::vector<std::int8_t>& out) {
  const auto* data = filter.data.bytes().data() + filter.ref.offset;
  const auto size = static_cast<std::size_t>(bytes_of(shape.type));
  each_place(filter, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x, std::int64_t at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + static_cast<std::size_t>(at) * size, size);
    if (shape.type == ConvType::tf32 && (bits & 0x7f800000U) != 0x7f800000U) bits = (bits + 0x1000U) & 0xffffe000U;
    std::memcpy(&out[shape.place(o, c * static_cast<std::int64_t>(size), y, x)], &bits, size);
  });
}

/// A weight that is inf or NaN, or nothing.
std::optional<float> not_finite(const ConvFilter& filter) {
  const auto* data = filter.data.bytes().data() + filter.ref.offset;
  std::optional<float> found;
  each_place(filter, [&](auto, auto, auto, auto, std::int64_t at) {
    float v = 0;
    std::memcpy(&v, data + at * 4, 4);
    if (!found && !std::isfinite(v)) found = v;
  });
  return found;
}

/// A tensor of the stage's space with one spatial dimension as one of an image's row, with three as one of more images. `div`: of an operand.
/// Nothing where frames of neighbouring images are not as far apart as those of one.
std::optional<region::TensorRef> as_images(region::TensorRef r, const ir::Shape& space, std::vector<std::int64_t>* div) {
  if (space.size() == 3) {
    r.dims.insert(r.dims.begin() + 2, 1);
    r.strides.insert(r.strides.begin() + 2, 0);
    if (div != nullptr && !div->empty()) div->insert(div->begin() + 2, 1);
    return r;
  }
  if (space[0] > 1 && space[2] > 1 && r.strides[0] != space[2] * r.strides[2]) return std::nullopt;
  if (div != nullptr && !div->empty()) {
    if ((*div)[0] != 1 || (*div)[2] != 1) return std::nullopt;
    div->erase(div->begin() + 2);
  }
  if (space[2] > 1) r.strides[0] = r.strides[2];
  r.dims[0] *= r.dims[2];
  r.dims.erase(r.dims.begin() + 2);
  r.strides.erase(r.strides.begin() + 2);
  return r;
}
/// The stage with a space of rank 4. Nothing as above.
std::optional<region::Stage> as_images(const region::Stage& s) {
  region::Stage out = s;
  for (region::TensorRef& store : out.stores) {
    auto r = as_images(store, s.space, nullptr);
    if (!r) return std::nullopt;
    store = std::move(*r);
  }
  for (region::Operand& operand : out.operands) {
    auto r = as_images(operand.ref, s.space, &operand.div);
    if (!r) return std::nullopt;
    operand.ref = std::move(*r);
  }
  if (s.space.size() == 3) {
    out.space.insert(out.space.begin() + 2, 1);
  } else {
    out.space[0] *= out.space[2];
    out.space.erase(out.space.begin() + 2);
  }
  return out;
}

}  // namespace

std::string_view name_of(ConvType t) {
  switch (t) {
    case ConvType::u8s8: return "u8s8";
    case ConvType::bf16: return "bf16";
    case ConvType::f16: return "f16";
    case ConvType::tf32: return "tf32";
    default: return "f32";
  }
}

std::optional<ConvType> conv_type(const region::Stage& s) {
  const region::Anchor& a = s.anchor;
  if (a.op != ir::Op::conv || !a.weights || a.inputs.empty()) return std::nullopt;
  if (a.integer) return ConvType::u8s8;
  const ir::DType x = a.inputs[0].dtype, w = a.weights->dtype;
  if (x == ir::DType::bf16 && w == ir::DType::bf16) return ConvType::bf16;
  if (x == ir::DType::f16 && w == ir::DType::f16) return ConvType::f16;
  if (x == ir::DType::f32 && w == ir::DType::f32)
    return a.as<ir::Window>().arithmetic == ir::Arithmetic::tf32 ? ConvType::tf32 : ConvType::f32;
  return std::nullopt;
}

double ConvSetting::traffic() const {
  const auto bytes = [](const region::TensorRef& t) { return static_cast<double>(tensor_bytes(t)); };
  double all = bytes(input);
  for (const auto& o : tail.stores) all += bytes(o);
  for (const auto& o : tail.operands) all += o.ref.strides[3] != 0 ? bytes(o.ref) : 0;
  return all;
}

Result<ConvSetting> read_conv(const region::Stage& s, const region::Plan& plan, ConvType type, bool frames) {
  const region::Anchor& a = s.anchor;
  if (conv_type(s) != type)
    return refuse("operator", ir::name_of(a.op),
                  type == ConvType::u8s8 ? "an integer convolution with constant weights"
                                         : "a convolution in bfloat16, float16, tf32 or float32 with constant weights");
  const std::int64_t size = bytes_of(type);
  ConvSetting out;
  ConvShape& shape = out.shape;
  shape.type = type;
  const region::TensorRef& x = out.input = a.inputs[0];
  const std::size_t rank = x.dims.size();
  if (rank != s.space.size() || rank < 3 || rank > (frames ? 5 : 4))
    return refuse("rank of the input", rank, frames ? "3 to 5" : "3 or 4");
  if (type == ConvType::u8s8 && (x.dtype != ir::DType::u8 || a.weights->dtype != ir::DType::s8))
    return refuse("types of input and weights", fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(a.weights->dtype)),
                  "u8 or s8, and s8");
  if (type == ConvType::u8s8 && (!x.quantizer || !x.quantizer->per_tensor()))
    return refuse("quantizer of the input", "none, or one per axis", "one per tensor");
  region::TensorRef weights = *a.weights;
  const auto& window = a.as<ir::Window>();
  const bool deep = rank == 5, flat_rows = rank == 3;
  if (deep) {
    if (weights.dims[2] > 1 && weights.strides[2] != weights.dims[3] * weights.strides[3])
      return refuse("strides of the weights", ir::to_string(weights.strides), "kernel rows side by side");
    shape.kernel_d = weights.dims[2];
    shape.in_d = x.dims[2], shape.out_d = s.space[2];
    shape.stride_d = window.strides[0], shape.dilation_d = window.dilations[0], shape.pad_front = window.pads[0];
    weights.dims[3] *= weights.dims[2];
    weights.dims.erase(weights.dims.begin() + 2);
    weights.strides.erase(weights.strides.begin() + 2);
  } else if (flat_rows) {
    weights.dims.insert(weights.dims.begin() + 2, 1);
    weights.strides.insert(weights.strides.begin() + 2, 0);
  }
  out.filter = {weights, {}, {}, a.weight_zero};
  if (!a.weight_sum) out.filter.data = plan.buffers[static_cast<std::size_t>(a.weights->buffer)].data;
  out.filter.sum = a.weight_sum;
  if (out.filter.data.empty() && !a.weight_sum) return refuse("weights", "computed at run time", "constant");
  if (ir::count(s.space) == 0) return refuse("elements", 0, "some");
  shape.groups = window.group;
  shape.channels = weights.dims[1] * size;
  shape.batch = x.dims[0], shape.in_h = flat_rows ? 1 : x.dims[rank - 2], shape.in_w = x.dims[rank - 1];
  shape.out_channels = s.space[1], shape.out_h = flat_rows ? 1 : s.space[rank - 2], shape.out_w = s.space[rank - 1];
  shape.kernel_h = weights.dims[2], shape.kernel_w = weights.dims[3];
  const std::size_t across = rank - 3;  // of the window's dimensions, the last
  if (!flat_rows) {
    shape.stride_h = window.strides[across - 1], shape.dilation_h = window.dilations[across - 1];
    shape.pad_top = window.pads[across - 1];
  }
  shape.stride_w = window.strides[across], shape.dilation_w = window.dilations[across], shape.pad_left = window.pads[across];
  shape.image = x.strides[0] * size, shape.pixel = x.strides[rank - 1] * size;
  shape.row = flat_rows ? shape.image : x.strides[rank - 2] * size;
  shape.frame = deep ? x.strides[2] * size : 0;
  // Strides of dimensions with one element say nothing, unless they may have more.
  shape.open = s.open == 1 && x.open.dims == 1 && x.open.strides == 0;
  if (shape.in_w == 1) shape.pixel = shape.in_h > 1 ? shape.row : shape.in_d > 1 ? shape.frame : shape.image;
  if (shape.batch == 1 && !shape.open && shape.in_d == 1 && shape.in_h == 1 && shape.in_w == 1)
    shape.pixel = x.dims[1] * size;  // one pixel: gemm of one row
  if (shape.in_h == 1) shape.row = shape.in_w * shape.pixel;
  if (shape.in_d == 1) shape.frame = shape.in_h * shape.row;
  if (shape.batch == 1 && !shape.open) shape.image = shape.in_d * shape.frame;
  shape.fill = type == ConvType::u8s8 ? x.quantizer->zero_point[0] : 0;
  if (shape.fill < 0 || shape.fill > 255) return refuse("zero point of the input", shape.fill, "0 to 255");
  if (x.dims[1] > 1 && x.strides[1] != 1) return refuse("channel stride of the input", x.strides[1], "1");
  if (shape.pixels() > INT32_MAX / 2) return refuse("pixels", shape.pixels(), "less than 2^30");
  const bool plain = shape.kernel_h == 1 && shape.kernel_w == 1 && shape.stride_h == 1 && shape.stride_w == 1 &&
                     shape.pad_top == 0 && shape.pad_left == 0 && shape.out_h == shape.in_h && shape.out_w == shape.in_w &&
                     shape.stride_d == 1 && shape.pad_front == 0 && shape.out_d == shape.in_d;
  shape.flat = plain && shape.row == shape.in_w * shape.pixel && shape.frame == shape.in_h * shape.row &&
               shape.image == shape.in_d * shape.frame;
  shape.aligned = 16;
  for (const std::int64_t v : {x.offset, shape.image, shape.frame, shape.row, shape.pixel})
    shape.aligned = std::gcd(shape.aligned, v);
  shape.piece = static_cast<int>(std::gcd(shape.aligned, shape.channels));
  shape.skew = static_cast<int>(x.offset % 4);
  if (type == ConvType::f32 && !a.weight_sum) {  // the parts of such a weight would make NaN of what is inf
    if (const auto v = not_finite(out.filter)) return refuse("a weight", *v, "finite weights");
  }
  const auto moves = [](std::int64_t zero) { return zero != 0; };
  if (type == ConvType::u8s8 && !a.weight_sum && std::ranges::any_of(a.weight_zero, moves)) {
    bool fits = true;
    each_weight(out.filter, [&](auto, auto, auto, auto, std::int64_t w) { fits &= w >= -128 && w <= 127; });
    if (!fits) return refuse("weights less their zero point", "beyond 8 bits", "within 8 bits");
  }
  if (rank == 4) {
    out.tail = tail_of(s, plan);
  } else {
    const auto images = as_images(s);
    if (!images)
      return refuse("an operand or a store", "with frames apart", "one whose frames follow each other across images as within one");
    out.tail = tail_of(*images, plan);
  }
  return out;
}

ConvWeights read_weights(const ConvSetting& conv) {
  const ConvShape& shape = conv.shape;
  ConvWeights out;
  if (conv.filter.sum) {
    out.largest_sum = 255.0 * static_cast<double>(*conv.filter.sum);
    return out;
  }
  out.values.resize(static_cast<std::size_t>(shape.out_channels * shape.taps() * shape.tap_bytes()));
  if (shape.type != ConvType::u8s8) {
    out.start.resize(static_cast<std::size_t>(shape.out_channels));
    write_floats(conv.filter, shape, out.values);
    return out;
  }
  std::vector<std::int64_t> sums(static_cast<std::size_t>(shape.out_channels)), sizes(sums.size());
  each_weight(conv.filter, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x, std::int64_t w) {
    out.values[shape.place(o, c, y, x)] = static_cast<std::int8_t>(w);
    sums[static_cast<std::size_t>(o)] += w;
    sizes[static_cast<std::size_t>(o)] += std::abs(w);
  });
  for (const std::int64_t sum : sums) out.start.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(-shape.fill * sum)));
  for (const std::int64_t size : sizes) out.largest_sum = std::max(out.largest_sum, 255.0 * static_cast<double>(size));
  return out;
}

ir::Tensor layout_mark(std::initializer_list<std::int64_t> numbers) {
  return ir::Tensor::of<std::int64_t>({static_cast<std::int64_t>(numbers.size())}, numbers);
}

float float_at(const void* p, ir::DType type) {
  float out = 0;
  std::uint16_t half = 0;
  if (type == ir::DType::f32) {
    std::memcpy(&out, p, sizeof out);
    return out;
  }
  std::memcpy(&half, p, sizeof half);
  return type == ir::DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

}  // namespace octavo::cuda
