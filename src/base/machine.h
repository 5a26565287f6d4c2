// What estimates and thresholds know of a processor, in one place.
//
// Two of them are used. The standard machine is a fixed set of numbers: the geometry of kernels (row tiles, blocks, tasks) follows from
// it, because engine files store constants that are packed for that geometry and are loaded anywhere; and so do estimates, so that a
// plan for which nothing was measured is the same on every machine. The machine at hand, read once from the system, is for what is
// measured or decided on it and stored as a decision: how much memory a timing must touch, from where on stages are forwarded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo {

struct MachineModel {
  std::int64_t l1_bytes = 32 << 10;  ///< data, of one core
  std::int64_t l2_bytes = 1 << 20;   ///< of one core
  std::int64_t l3_bytes = 32 << 20;  ///< shared; 0: none
  int cores = 2;
  int vector_bytes = 64;
  double clock_hz = 4.5e9;
  bool operator==(const MachineModel&) const = default;
};

/// The fixed numbers: `MachineModel()`.
[[nodiscard]] constexpr MachineModel standard_machine() {
  return {};
}
/// This machine, from /sys and the processor; what cannot be found out is the standard machine's. Read once.
[[nodiscard]] const MachineModel& this_machine();

/// "l1=32768 l2=1048576 l3=33554432 cores=2 vector=64 clock=4.5e+09"; read back by parse_machine. Errors: `usage`, naming the field.
[[nodiscard]] std::string to_string(const MachineModel& machine);
[[nodiscard]] Result<MachineModel> parse_machine(std::string_view text);

}  // namespace octavo
