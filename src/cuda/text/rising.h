// Programs that keep the order of accumulators: the greatest of several results is the result of the greatest accumulator.
#pragma once

#include "cuda/text/epilogue.h"

namespace octavo::cuda {

/// Is the program's first output, for every channel, never less where the accumulator, an integer of at most `accumulator` in magnitude, is greater?
/// False where that is not seen: sums, products with factors that are not negative, limits, roundings and rising tables are.
[[nodiscard]] bool rises(const Tail& tail, double accumulator);

}  // namespace octavo::cuda
