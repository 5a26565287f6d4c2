#include <fmt/format.h>
#include <png.h>

#include <cstring>

#include "cli/inputs/decode_image.h"
#include "cli/inputs/exif.h"

namespace octavo::cli {
namespace {

/// A byte of PNG codes at most 1032 bytes of 8 pixels.
constexpr std::uint64_t kPixelsPerByte = 8256;

std::uint32_t big_endian(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + i]);
  return value;
}

/// libpng's simplified reader gives pixels only: the eXIf chunk is looked for here. A chunk is length, type, data, checksum.
int orientation_of(std::span<const std::byte> bytes) {
  for (std::size_t at = 8; bytes.size() - at >= 12;) {
    const std::size_t length = big_endian(bytes, at);
    if (length > bytes.size() - at - 12) return 1;
    if (std::memcmp(bytes.data() + at + 4, "eXIf", 4) == 0) return exif_orientation(bytes.subspan(at + 8, length));
    at += 12 + length;
  }
  return 1;
}

}  // namespace

Result<Image> decode_png(std::span<const std::byte> bytes, std::string_view what) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return bad_image(what, png.message);
  if (static_cast<std::uint64_t>(png.width) * png.height > kMaxPixels) {
    png_image_free(&png);
    return bad_image(what, fmt::format("{}x{} is more than 2^28 pixels", png.width, png.height));
  }
  if (too_many(static_cast<std::uint64_t>(png.width) * png.height, bytes.size(), kPixelsPerByte)) {
    png_image_free(&png);
    return bad_image(what, fmt::format("its header claims {}x{} pixels, more than a file of {} bytes can hold", png.width,
                                       png.height, bytes.size()));
  }
  const bool color = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  png.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // otherwise 16-bit files count as linear light and come out brighter
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), color ? 3 : 1, {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) return bad_image(what, png.message);
  return upright(std::move(image), orientation_of(bytes));
}

}  // namespace octavo::cli
