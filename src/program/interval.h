// Interval analysis: what is known about each value of a program without running it.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace octavo::program {

/// Bounds of one value (of its int32 or of its float). Floats: `nan` says whether NaN is possible besides lo..hi.
struct Interval {
  double lo = 0, hi = 0;
  bool nan = false;
  [[nodiscard]] bool is_code() const { return !nan && lo >= 0 && hi <= 255; }
};

/// One interval a value, sound for every accumulator and operand. Simple on purpose: conversions, selections, clamps, integer sums,
/// shifts, masks and tables are followed; float arithmetic other than rounding gives "anything".
[[nodiscard]] std::vector<Interval> find_intervals(const Program& p, const std::vector<bool>& operand_is_u8);

}  // namespace octavo::program
