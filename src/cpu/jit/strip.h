// The padded copy of input rows that a row tile's tiles read (Phase::copies): the pixels that the taps reach, zero points where that
// is outside, each at its multiple of Phase::pitch. Bytes between pixels are undefined: zero weights meet them.
#pragma once

#include <span>

#include "cpu/jit/conv_plan.h"

namespace octavo::cpu::jit {

struct StripRow {
  std::int64_t width = 0, channels = 0, pixel = 0;  ///< of the input; pixel: bytes from one to the next
  std::int32_t zero = 0;
  bool may_read_on = false;  ///< 64 bytes behind the input may be read
  bool wide = true;          ///< by instructions of AVX-512; not of a joined strip otherwise
};
/// `from`: the input rows that this row of the strip holds, Phase::together of them; nullptr for one outside. Writes up to 64 bytes
/// behind the strip's row.
void copy_strip_row(const Phase& phase, const StripRow& row, std::span<const std::byte* const> from, std::byte* to);

}  // namespace octavo::cpu::jit
