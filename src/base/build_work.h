// What builds of this process have cost so far, part by part: a build reports the difference between its end and its begin.
#pragma once

#include <chrono>
#include <cstdint>

namespace octavo {

/// Seconds by the clock, but for `compile_processor`. Those from `read` to `time` are of the building thread; kernels are compiled beside it.
struct BuildWork {
  double read = 0;            ///< models read and imported
  double open = 0;            ///< devices opened
  double prepare = 0;         ///< tactics made ready to be timed: texts or code, packed constants, memory
  double wait = 0;            ///< for kernels that are not compiled yet
  double time = 0;            ///< tactics and plans run
  std::uint64_t timed = 0;    ///< tactics that were timed
  std::uint64_t kernels = 0;  ///< texts that a compiler got
  double compile = 0;         ///< in the compiler, of all threads together
  double compile_processor =
      0;  ///< of these, with a processor: far less says that the machine has other work, or that threads hold each other up
};

[[nodiscard]] BuildWork operator-(BuildWork a, const BuildWork& b);

/// All so far. Thread-safe.
[[nodiscard]] BuildWork build_work();
/// Adds to it. Thread-safe.
void add_build_work(const BuildWork& more);

/// Counts from here to the end of its life. While another one of the same thread lives inside, only that one counts.
class BuildTimer {
 public:
  explicit BuildTimer(double BuildWork::*part);
  ~BuildTimer();
  BuildTimer(const BuildTimer&) = delete;
  BuildTimer& operator=(const BuildTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void stop(Clock::time_point now) const;
  double BuildWork::*part_;
  BuildTimer* outer_;
  Clock::time_point begin_;
};

}  // namespace octavo
