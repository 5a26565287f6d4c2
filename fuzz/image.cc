// JPEG and PNG.
#include "cli/inputs/image.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  // Large pictures are valid, and slow under a sanitizer: the extent in a PNG's header is not this target's subject.
  const auto image = octavo::cli::decode_image(bytes, "picture");
  if (!image) return 0;
  const auto want =
      static_cast<std::size_t>(image->width) * static_cast<std::size_t>(image->height) * static_cast<std::size_t>(image->channels);
  if (image->width < 1 || image->height < 1 || image->pixels.size() != want) std::abort();
  return 0;
}
