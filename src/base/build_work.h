// What builds of this process have cost so far, part by part: a build reports the difference between its end and its begin.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/part_timer.h"

namespace octavo {

/// Seconds by the clock, but for `compile_processor`. Those from `read` to `time` are of the building thread; kernels are compiled beside it.
struct BuildWork {
  double read = 0;              ///< models read and imported
  double open = 0;              ///< devices opened
  double prepare = 0;           ///< tactics made ready to be timed: texts or code, packed constants, memory
  double wait = 0;              ///< for kernels that are not compiled yet
  double time = 0;              ///< tactics and plans run
  std::uint64_t timed = 0;      ///< tactics that were timed
  std::uint64_t kernels = 0;    ///< texts that a compiler got
  std::uint64_t processes = 0;  ///< that were started to compile some of them
  double compile = 0;           ///< in the compiler, of all threads together
  double compile_processor =
      0;  ///< of these, with a processor: far less says that the machine has other work, or that threads hold each other up
};

[[nodiscard]] BuildWork operator-(BuildWork a, const BuildWork& b);

/// All so far. Thread-safe.
[[nodiscard]] BuildWork build_work();
/// Adds to it. Thread-safe.
void add_build_work(const BuildWork& more);

void add_time(double BuildWork::*part, std::chrono::nanoseconds took);
/// Of one of the building thread's parts, `read` to `time`.
using BuildTimer = PartTimer<double BuildWork::*>;

}  // namespace octavo
