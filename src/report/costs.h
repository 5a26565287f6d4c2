// What a region costs, counted from the plan: multiply-accumulates, bytes, and whether a vector kernel does it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "region/region.h"

namespace octavo::report {

/// Counts of one region. Bytes: every tensor read or written by its stages, weights included, each element once (broadcast and
/// upsampled elements once, not once a use); of weights that a kernel keeps as codes, these. What stays between the stages of one region is not counted.
struct Costs {
  std::int64_t macs = 0;  ///< of convolutions and matrix products; 0 for the rest
  std::int64_t bytes = 0;
  bool integer = false;  ///< the macs are 8-bit
};
[[nodiscard]] Costs costs_of(const region::Region& region, const region::Plan& plan);

/// Sums over a plan. `*_vector` is the part that vector kernels do.
struct Totals {
  int regions = 0, int8_regions = 0,
      float_regions = 0;  ///< by Region::precision, tf32, bfloat16 and float16 as float; "move" and others: neither
  std::int64_t int8_macs = 0, int8_macs_vector = 0;
  std::int64_t float_macs = 0, float_macs_vector = 0;
  std::int64_t bytes = 0, bytes_vector = 0;
};
[[nodiscard]] Totals totals_of(const region::Plan& plan);

/// Are the plan's times measured? Otherwise they are estimates. The plan keeps where they come from as a text.
[[nodiscard]] bool measured(const region::Plan& plan);

/// "1.5 kB", "43.4 M int8 MAC": three digits and a decimal prefix.
[[nodiscard]] std::string amount(std::int64_t n, std::string_view unit);

}  // namespace octavo::report
