// The orientation that a camera wrote into a picture's EXIF data, and turning the pixels accordingly.
#pragma once

#include <cstddef>
#include <span>

#include "cli/inputs/image.h"

namespace octavo::cli {

/// 1 to 8 as EXIF tag 0x0112 defines them; 1 (upright) when the block has no such tag or is damaged. `tiff` begins with the TIFF
/// header ("II" or "MM"): a JPEG's APP1 segment behind "Exif\0\0", or the contents of a PNG's eXIf chunk. The bytes are not trusted.
/// Source: CIPA DC-008 (EXIF 2.32), section 4.6.4.
[[nodiscard]] int exif_orientation(std::span<const std::byte> tiff);

/// The picture as it is meant to be seen. Orientations 5 to 8 swap width and height.
[[nodiscard]] Image upright(Image image, int orientation);

}  // namespace octavo::cli
