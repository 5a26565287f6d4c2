#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "cli/inputs/image.h"

namespace octavo::cli {
namespace {

/// For each output position: the first input position and the weights of a triangle as wide as the reduction.
struct Taps {
  std::vector<int> first;
  std::vector<std::vector<float>> weight;
};

Taps taps(int in, int out) {
  Taps t;
  const double step = static_cast<double>(in) / out, radius = std::max(step, 1.0);
  for (int i = 0; i < out; ++i) {
    const double center = (i + 0.5) * step;
    const int lo = std::max(0, static_cast<int>(center - radius + 0.5)), hi = std::min(in, static_cast<int>(center + radius + 0.5));
    std::vector<float> w;
    double sum = 0;
    for (int j = lo; j < hi; ++j) {
      const double v = std::max(0.0, 1.0 - std::abs((j + 0.5 - center) / radius));
      w.push_back(static_cast<float>(v));
      sum += v;
    }
    for (float& v : w) v = static_cast<float>(v / sum);
    t.first.push_back(lo);
    t.weight.push_back(std::move(w));
  }
  return t;
}

std::uint8_t to_byte(float v) {
  return static_cast<std::uint8_t>(std::clamp(std::nearbyint(v), 0.0F, 255.0F));
}

/// One pass along x or y. `outer` rows of `in` positions, `inner` interleaved values each.
std::vector<std::uint8_t> resample(const std::vector<std::uint8_t>& from, int outer, int in, int out, int inner) {
  const Taps t = taps(in, out);
  std::vector<std::uint8_t> to(static_cast<std::size_t>(outer) * static_cast<std::size_t>(out) * static_cast<std::size_t>(inner));
  std::size_t o = 0;
  for (int r = 0; r < outer; ++r) {
    const std::uint8_t* row =
        from.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(in) * static_cast<std::size_t>(inner);
    for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
      for (int c = 0; c < inner; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < t.weight[i].size(); ++k) {
          sum +=
              t.weight[i][k] *
              static_cast<float>(
                  row[(static_cast<std::size_t>(t.first[i]) + k) * static_cast<std::size_t>(inner) + static_cast<std::size_t>(c)]);
        }
        to[o++] = to_byte(sum);
      }
    }
  }
  return to;
}

Image crop(const Image& image, int height, int width) {
  const int top = (image.height - height) / 2, left = (image.width - width) / 2;
  Image out{width, height, image.channels, {}};
  for (int y = 0; y < height; ++y) {
    const auto* row = image.pixels.data() +
                      (static_cast<std::size_t>(top + y) * static_cast<std::size_t>(image.width) + static_cast<std::size_t>(left)) *
                          static_cast<std::size_t>(image.channels);
    out.pixels.insert(out.pixels.end(), row, row + static_cast<std::ptrdiff_t>(width) * image.channels);
  }
  return out;
}

Image letterbox(const Image& image, int height, int width, int fill) {
  const double ratio = std::min(static_cast<double>(height) / image.height, static_cast<double>(width) / image.width);
  const Image small =
      resize(image, std::max(1, static_cast<int>(image.height * ratio)), std::max(1, static_cast<int>(image.width * ratio)));
  const auto row = static_cast<std::size_t>(width * image.channels),
             small_row = static_cast<std::size_t>(small.width * image.channels);
  Image out{width, height, image.channels,
            std::vector<std::uint8_t>(row * static_cast<std::size_t>(height), static_cast<std::uint8_t>(fill))};
  for (std::size_t y = 0; y < static_cast<std::size_t>(small.height); ++y) {
    std::copy_n(small.pixels.begin() + static_cast<std::ptrdiff_t>(y * small_row), small_row,
                out.pixels.begin() + static_cast<std::ptrdiff_t>(y * row));
  }
  return out;
}

/// Grey to RGB by repetition; RGB to grey by ITU-R 601 luma (as Pillow's "L").
Image with_channels(const Image& image, int channels) {
  if (image.channels == channels) return image;
  Image out{image.width, image.height, channels, {}};
  const auto n = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  out.pixels.reserve(n * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < n; ++i) {
    if (channels == 3) {
      out.pixels.insert(out.pixels.end(), 3, image.pixels[i]);
    } else {
      const std::uint8_t* p = image.pixels.data() + 3 * i;
      out.pixels.push_back(static_cast<std::uint8_t>((p[0] * 19595U + p[1] * 38470U + p[2] * 7471U + 0x8000U) >> 16));
    }
  }
  return out;
}

void store(ir::Tensor& t, std::size_t i, float v) {
  switch (t.dtype()) {
    case ir::DType::u8: t.mutable_data<std::uint8_t>()[i] = to_byte(v); break;
    case ir::DType::f16: t.mutable_data<std::uint16_t>()[i] = f32_to_f16(v); break;
    default: t.mutable_data<float>()[i] = v;
  }
}

}  // namespace

Image resize(const Image& image, int height, int width) {
  Image out{width, height, image.channels, image.pixels};
  if (width != image.width) out.pixels = resample(out.pixels, image.height, image.width, width, image.channels);
  if (height != image.height) out.pixels = resample(out.pixels, 1, image.height, height, width * image.channels);
  return out;
}

Result<Preprocess> preset(std::string_view name, std::array<int, 2> size) {
  Preprocess p;
  const auto imagenet_crop = [&] {
    p.resize = {(std::min(size[0], size[1]) * 256 + 112) / 224, 0};
    p.crop = size;
  };
  if (name == "torch" || name == "imagenet" || name == "cifar") {
    p.scale = 1.0F / 255.0F;
    p.mean = {0.485F, 0.456F, 0.406F};
    p.std = {0.229F, 0.224F, 0.225F};
    if (name != "cifar") imagenet_crop();
  } else if (name == "tf") {
    p.scale = 1.0F / 127.5F;
    p.mean = {1.0F};
    imagenet_crop();
  } else if (name == "caffe") {
    p.bgr = true;
    p.mean = {104.0F, 117.0F, 123.0F};
    imagenet_crop();
  } else if (name == "yolox") {
    p.bgr = true;
    p.letterbox = 114;
  } else {
    return fail(ErrorKind::usage, fmt::format("--preset {}: not one of torch, tf, caffe, cifar, yolox", name));
  }
  return p;
}

Result<std::array<int, 3>> picture_shape(const ir::Shape& shape, const std::string& layout, bool& channels_last) {
  const std::size_t batch = shape.size() == 4 ? 1 : 0;
  const auto picture = [](std::int64_t channels) { return channels == 1 || channels == 3; };
  if (shape.size() == 3 + batch) {
    const bool first = layout != "nhwc" && picture(shape[batch]), last = layout != "nchw" && picture(shape[batch + 2]);
    channels_last = !first && last;
    const std::int64_t h = shape[batch + (channels_last ? 0 : 1)], w = shape[batch + (channels_last ? 1 : 2)];
    constexpr std::int64_t limit = 1 << 14;
    if ((first || last) && h > 0 && w > 0 && h <= limit && w <= limit) {
      return std::array<int, 3>{static_cast<int>(h), static_cast<int>(w), static_cast<int>(shape[batch + (channels_last ? 2 : 0)])};
    }
  }
  return fail(
      ErrorKind::bad_input,
      fmt::format("an input of shape {} cannot take a picture: it needs 1 or 3 channels in NCHW or NHWC order (see --layout)\n"
                  "  pass an array instead: --input file.npy",
                  ir::to_string(shape)));
}

Result<ir::Tensor> to_tensor(const Image& picture, const Preprocess& p, const ir::TensorType& type) {
  bool channels_last = false;
  OCTAVO_TRY(const auto size, picture_shape(type.shape, p.layout, channels_last));
  const auto [height, width, channels] = size;
  if (type.shape.size() == 4 && type.shape[0] != 1) {
    return fail(ErrorKind::bad_input,
                fmt::format("a picture fills one of the {} places of the input's batch\n  build with batch 1, or pass an array",
                            type.shape[0]));
  }
  if (type.dtype != ir::DType::f32 && type.dtype != ir::DType::f16 && type.dtype != ir::DType::u8) {
    return fail(ErrorKind::bad_input,
                fmt::format("an input of type {} cannot take a picture; f32, f16 and u8 can", ir::name_of(type.dtype)));
  }
  const auto per_channel = [&](const std::vector<float>& v) {
    return v.size() == 1 || v.size() == static_cast<std::size_t>(channels);
  };
  if (!per_channel(p.mean) || !per_channel(p.std)) {
    return fail(ErrorKind::usage, fmt::format("--mean has {} and --std has {} values; the input has {} channels", p.mean.size(),
                                              p.std.size(), channels));
  }

  Image image = with_channels(picture, channels);
  if (p.letterbox) {
    image = letterbox(image, height, width, *p.letterbox);
  } else if (p.resize) {
    auto [h, w] = *p.resize;
    if (w == 0) {  // the long side is truncated, as torchvision does
      const int shorter = h, in_h = image.height, in_w = image.width;
      h = in_h <= in_w ? shorter : static_cast<int>(static_cast<std::int64_t>(shorter) * in_h / in_w);
      w = in_w <= in_h ? shorter : static_cast<int>(static_cast<std::int64_t>(shorter) * in_w / in_h);
    }
    image = resize(image, h, w);
  } else if (!p.crop) {
    image = resize(image, height, width);
  }
  if (p.crop) {
    const auto [h, w] = *p.crop;
    if (h > image.height || w > image.width) {
      return fail(ErrorKind::usage,
                  fmt::format("--crop {}x{} is larger than the picture after --resize ({}x{})", h, w, image.height, image.width));
    }
    image = crop(image, h, w);
  }
  if (image.height != height || image.width != width) {
    return fail(ErrorKind::usage, fmt::format("the picture is {}x{} after --resize and --crop; the input is {}x{} (height x width)",
                                              image.height, image.width, height, width));
  }

  ir::Tensor tensor(type);
  const auto area = static_cast<std::size_t>(height) * static_cast<std::size_t>(width), count = static_cast<std::size_t>(channels);
  for (std::size_t c = 0; c < count; ++c) {
    const std::size_t from = p.bgr ? count - 1 - c : c;
    const float mean = p.mean[p.mean.size() == 1 ? 0 : c], deviation = p.std[p.std.size() == 1 ? 0 : c];
    for (std::size_t i = 0; i < area; ++i) {
      const float v = (static_cast<float>(image.pixels[i * count + from]) * p.scale - mean) / deviation;
      store(tensor, channels_last ? i * count + c : c * area + i, v);
    }
  }
  return tensor;
}

}  // namespace octavo::cli
