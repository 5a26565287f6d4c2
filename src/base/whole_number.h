// A whole number of one that a file gives as a double: C++ leaves the conversion undefined where the type cannot hold it.
#pragma once

#include <cstdint>

namespace octavo {

/// x towards 0. Beyond the range of 64 bits the nearest of it; 0 for NaN.
[[nodiscard]] constexpr std::int64_t whole_number(double x) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63, the first that is too large
  if (x >= kBeyond) return INT64_MAX;
  if (x < -kBeyond) return INT64_MIN;
  return x == x ? static_cast<std::int64_t>(x) : 0;
}

}  // namespace octavo
