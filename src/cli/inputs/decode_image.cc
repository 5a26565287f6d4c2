#include "cli/inputs/decode_image.h"

#include <fmt/format.h>

#include <cstring>

namespace octavo::cli {
namespace {

bool begins(std::span<const std::byte> b, std::string_view magic, std::size_t at = 0) {
  return b.size() >= at + magic.size() && std::memcmp(b.data() + at, magic.data(), magic.size()) == 0;
}

bool is_jpeg(std::span<const std::byte> b) {
  return begins(b, "\xff\xd8\xff");
}
bool is_png(std::span<const std::byte> b) {
  return b.size() > 8 && begins(b, "\x89PNG\r\n\x1a\n");
}

}  // namespace

tl::unexpected<Error> bad_image(std::string_view what, std::string_view why) {
  return fail(ErrorKind::bad_input, fmt::format("decoding {}: {}", what, why));
}

bool is_image(std::span<const std::byte> bytes) {
  return is_jpeg(bytes) || is_png(bytes);
}

std::string_view other_image_format(std::span<const std::byte> b) {
  if (begins(b, "GIF8")) return "GIF";
  if (begins(b, "RIFF") && begins(b, "WEBP", 8)) return "WebP";
  if (begins(b, "BM") && begins(b, std::string_view("\0\0\0\0", 4), 6)) return "BMP";
  if (begins(b, std::string_view("II*\0", 4)) || begins(b, std::string_view("MM\0*", 4))) return "TIFF";
  if (begins(b, "ftyphei", 4) || begins(b, "ftypmif1", 4)) return "HEIF";
  if (begins(b, "ftypavif", 4)) return "AVIF";
  if (begins(b, std::string_view("\0\0\0\x0cjP  ", 8)) || begins(b, "\xff\x4f\xff\x51")) return "JPEG 2000";
  return "";
}

Result<Image> decode_image(std::span<const std::byte> bytes, std::string_view what) {
  if (is_png(bytes)) return decode_png(bytes, what);
  if (is_jpeg(bytes)) return decode_jpeg(bytes, what);
  const std::string_view other = other_image_format(bytes);
  if (!other.empty()) return bad_image(what, fmt::format("a {} picture; convert it to JPEG or PNG first", other));
  return bad_image(what, "neither a JPEG nor a PNG file");
}

}  // namespace octavo::cli
