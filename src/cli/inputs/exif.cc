#include "cli/inputs/exif.h"

#include <cstdint>
#include <utility>

namespace octavo::cli {
namespace {

/// Integers of a TIFF block in its own byte order; reading behind the end gives 0, which no field that is looked for has.
struct Tiff {
  std::span<const std::byte> bytes;
  bool big = false;

  [[nodiscard]] std::uint32_t read(std::size_t at, std::size_t size) const {
    if (at > bytes.size() || size > bytes.size() - at) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + (big ? i : size - 1 - i)]);
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t kOrientation = 0x0112, kShort = 3;
  if (tiff.size() < 8) return 1;
  const Tiff t{tiff, tiff[0] == std::byte{'M'}};
  if (tiff[0] != tiff[1] || (tiff[0] != std::byte{'I'} && tiff[0] != std::byte{'M'}) || t.read(2, 2) != 42) return 1;
  const std::size_t directory = t.read(4, 4);
  const std::uint32_t entries = t.read(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t at = directory + 2 + std::size_t{12} * i;
    if (at + 12 > tiff.size()) return 1;
    if (t.read(at, 2) != kOrientation) continue;
    const std::uint32_t value = t.read(at + 8, 2);
    return t.read(at + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool swapped = orientation >= 5;
  const int w = image.width, h = image.height;
  Image out{swapped ? h : w, swapped ? w : h, image.channels, {}};
  out.pixels.reserve(image.pixels.size());
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      int from_x = swapped ? y : x, from_y = swapped ? x : y;
      // Which corner of the stored picture is the upper left one: 2, 3, 7 and 8 count columns from the right (3, 4, 6, 7: rows from
      // below).
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) from_x = w - 1 - from_x;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) from_y = h - 1 - from_y;
      const auto at = (static_cast<std::size_t>(from_y) * static_cast<std::size_t>(w) + static_cast<std::size_t>(from_x)) *
                      static_cast<std::size_t>(image.channels);
      for (std::size_t c = 0; c < static_cast<std::size_t>(image.channels); ++c) out.pixels.push_back(image.pixels[at + c]);
    }
  }
  return out;
}

}  // namespace octavo::cli
