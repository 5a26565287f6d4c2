// A program with the same bits in fewer GPU instructions.
//
//   clamp(round(clamp(y) / s), lo, hi) + z   ->   clamp(round(fma(y, high, y * low)) + z, first, last)
//
// with the clamps of both sides as bounds of the code (every step never decreases, so bounds commute with them) and the division as
// program/reciprocal.h does it, where it proves the codes equal. Bounds of 0 and 255 then cost nothing: a saturating store has them.
// (code + z) - z is code again; float(code - z) is float(code) - z.
#pragma once

#include <vector>

#include "program/program.h"

namespace octavo::cuda {

/// The largest magnitude that sources can have; infinity where NaN or infinity is possible or nothing is known.
struct Magnitudes {
  double acc = 0;                ///< of the integer accumulator
  std::vector<double> operands;  ///< one an operand
};
/// Equal results for every input within the magnitudes. `p` must verify.
[[nodiscard]] program::Program shorten(const program::Program& p, const Magnitudes& sources);

/// The program without clamps that a saturating store of u8 or s8 repeats. Only for stores that saturate.
[[nodiscard]] program::Program without_store_clamps(const program::Program& p);

}  // namespace octavo::cuda
