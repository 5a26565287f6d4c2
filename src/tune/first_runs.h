// The first runs of a tactic on the host, which decide whether it is worth timing.
#pragma once

#include <functional>

#include "base/result.h"

namespace octavo::tune {

constexpr double kHopeless = 3;  ///< times the fastest in the first runs: not run again
constexpr double kLong = 10;     ///< times what was asked for a tactic: one that takes longer runs twice

struct FirstRuns {
  double seconds = 0;     ///< the least of them
  bool hopeless = false;  ///< so far behind the fastest that more runs would be wasted
};

/// `run`: runs the tactic once and returns its seconds. `least`: the fastest tactic's first runs so far, 0 if there is none. `seconds_each`:
/// how long each tactic will be timed.
///
/// One run alone never makes a short tactic hopeless, because another process may have had the core during it: while the tactic is far behind,
/// it runs up to four times more, until these runs have taken 10 ms together. A run of more than 30 ms is not repeated, because losing the core
/// does not explain it. A tactic that is not hopeless runs once more, or up to four times if it takes less than 0.1 ms; not again where a run
/// takes longer than kLong times `seconds_each`. Errors of `run` are returned.
[[nodiscard]] Result<FirstRuns> first_runs(const std::function<Result<double>()>& run, double least, double seconds_each);

}  // namespace octavo::tune
