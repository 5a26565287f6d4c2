// Pictures: JPEG and PNG files to 8-bit pixels, and from pixels to a model's input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::cli {

/// Pixels row by row, channels interleaved: grey (1) or RGB (3).
struct Image {
  int width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

[[nodiscard]] bool is_image(std::span<const std::byte> bytes);  ///< by its first bytes: JPEG or PNG
/// The name of a picture format that is not decoded here ("WebP"), by the first bytes; empty for everything else.
[[nodiscard]] std::string_view other_image_format(std::span<const std::byte> bytes);
/// Decodes a JPEG or PNG: transparency over black, 16-bit reduced to 8, turned upright by its EXIF orientation. At most 2^28
/// pixels. The bytes are not trusted: a file that is cut off, damaged, CMYK or of more than 8 bits (JPEG) is refused. Fails with
/// `bad_input`; `what` names the source in the text.
[[nodiscard]] Result<Image> decode_image(std::span<const std::byte> bytes, std::string_view what);

/// How a picture becomes a tensor: resize, crop or letterbox; then, for each channel, (x * scale - mean) / std.
struct Preprocess {
  std::optional<std::array<int, 2>> resize;  ///< {H, W}; {S, 0}: the short side to S; absent: the input's size
  std::optional<std::array<int, 2>> crop;    ///< centre crop {H, W}, after resize
  std::optional<int> letterbox;              ///< keep the aspect ratio, fill right and bottom with this grey value
  float scale = 1.0F;
  std::vector<float> mean{0.0F}, std{1.0F};  ///< one entry or one a channel, in the order of the tensor's channels
  bool bgr = false;
  std::string layout;  ///< "nchw", "nhwc" or empty: whichever has 1 or 3 channels
};

/// Fills `p` with a named recipe: torch (also imagenet), tf, caffe, cifar, yolox. `size` is the input's {H, W}. Fails with `usage` on other names.
[[nodiscard]] Result<Preprocess> preset(std::string_view name, std::array<int, 2> size);
/// The {H, W, C} of an input shape of rank 4 (or 3: no batch), by layout. Fails with `bad_input` if it is not that of a picture.
[[nodiscard]] Result<std::array<int, 3>> picture_shape(const ir::Shape& shape, const std::string& layout, bool& channels_last);
/// One picture as a tensor of `type`, whose batch dimension must be 1 (f32, f16 or u8; u8 rounds and clamps).
/// Resizing is bilinear and, when it makes the picture smaller, averages over the pixels it skips (as Pillow's BILINEAR does).
[[nodiscard]] Result<ir::Tensor> to_tensor(const Image& image, const Preprocess& p, const ir::TensorType& type);
/// The resizing step alone.
[[nodiscard]] Image resize(const Image& image, int height, int width);

}  // namespace octavo::cli
