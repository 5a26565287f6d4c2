// The decoders behind decode_image, one a file format. Their bytes are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "cli/inputs/image.h"

namespace octavo::cli {

inline constexpr std::uint64_t kMaxPixels = 1ULL << 28;

/// More pixels than `bytes` bytes can code, at `per_byte` pixels each: a header that lies costs seconds and gigabytes.
[[nodiscard]] inline bool too_many(std::uint64_t pixels, std::size_t bytes, std::uint64_t per_byte) {
  constexpr std::uint64_t kHarmless = 1ULL << 20;
  return pixels > kHarmless && pixels / per_byte > bytes;
}

/// "decoding WHAT: WHY", of kind `bad_input`.
[[nodiscard]] tl::unexpected<Error> bad_image(std::string_view what, std::string_view why);

/// A whole baseline or progressive JPEG of 8-bit grey or RGB pixels, turned upright. A file that ends early or whose data
/// contradict themselves is refused, although libjpeg would fill the rest with grey and go on.
[[nodiscard]] Result<Image> decode_jpeg(std::span<const std::byte> bytes, std::string_view what);
/// Grey or RGB, transparency over black, 16 bits reduced to the upper 8, palettes expanded, gamma left alone, turned upright.
[[nodiscard]] Result<Image> decode_png(std::span<const std::byte> bytes, std::string_view what);

}  // namespace octavo::cli
