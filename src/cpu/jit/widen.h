// The strip of Dots::pairs: codes as numbers of 16 bits, their zero point subtracted, so that what lies outside the image is 0.
#pragma once

#include "cpu/jit/strip.h"

namespace octavo::cpu::jit {

/// A row of the strip (copy_strip_row); nullptr: outside the image. Writes Phase::strip_row_bytes() and reads nothing but the row's channels.
void widen_strip_row(const Phase& phase, const StripRow& row, const std::byte* from, std::byte* to);
/// `count` pixels of row.channels codes, `step` bytes apart, to places `pitch` bytes apart.
void widen_pixels(const std::byte* from, std::int64_t step, const StripRow& row, std::int64_t count, std::int64_t pitch,
                  std::byte* to);

}  // namespace octavo::cpu::jit
