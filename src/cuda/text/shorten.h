// A program with the same bits in fewer GPU instructions.
//
//   clamp(round(clamp(y) / s), lo, hi) + z   ->   clamp(round(fma(y, high, y * low)) + z, first, last)
//
// with the clamps of both sides as bounds of the code (every step never decreases, so bounds commute with them) and the division as
// program/reciprocal.h does it, where it proves the codes equal. Bounds of 0 and 255 then cost nothing: a saturating store has them.
// A sum of two dequantized codes that is quantized again is a function of two bytes: tried for all pairs, it is two operations.
//
// A sigmoid of a finite value is at most 1 and no NaN: what is made of it needs no guards.
//
// Conversions cost a GPU twice an addition, and the sum 12582912 + n (1.5 * 2^23) of an integer n holds n in its last bits. So
// values within 2^22 are rounded and become integers by that sum, accumulators become floats by starting there, and bytes by taking
// the place of the last byte of 8388608.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace octavo::cuda {

/// The largest magnitude that sources can have; infinity where NaN or infinity is possible or nothing is known.
struct Magnitudes {
  double acc = 0;                ///< of the integer accumulator
  std::vector<double> operands;  ///< one an operand
};
struct Shortened {
  program::Program program;
  std::int32_t acc_offset = 0;    ///< the program expects the accumulator plus this
  std::vector<char> byte_floats;  ///< one an operand: 1: load_f gives 8388608 + the byte, which the program expects
};
/// Equal results for every input within the magnitudes. `p` must verify, and be marked (program/span.h). is_byte: operands that are u8 and may be loaded as
/// byte_floats says.
[[nodiscard]] Shortened shorten(const program::Program& p, const Magnitudes& sources, const std::vector<char>& is_byte);

/// Of a program of which nothing is known, and whose accumulator and operands are as it says.
[[nodiscard]] program::Program shortened(const program::Program& p, std::size_t operands);

/// The program without clamps that a saturating store of u8 or s8 repeats. Only for stores that saturate.
[[nodiscard]] program::Program without_store_clamps(const program::Program& p);

}  // namespace octavo::cuda
