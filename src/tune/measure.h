// Times of tactics, taken by running them.
#pragma once

#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::tune {

struct Candidate {
  region::Tactic tactic;
  const region::Provider* provider = nullptr;
};

/// Seconds a run of each tactic, parallel to `candidates`; -1 for those that fail to be made here. The tactics take turns, so that
/// what else the machine does falls on all of them; a turn's time is the median of its runs, so that single runs
/// during which another process had a core do not count, and the time is the lower quartile of the turns. A tactic three times
/// slower than the best so far in its first runs is not run again. `seconds_each`: how long to measure each (some 4e-3 for a first
/// guess, 1e-1 for a careful one). Runs on plan.threads threads. Cost: making every tactic once, plus the time asked for.
[[nodiscard]] Result<std::vector<double>> measure(const region::Region& region, const region::Plan& plan,
                                                  const std::vector<Candidate>& candidates, double seconds_each);

struct PairTime {
  double first = 0, second = 0;  ///< seconds: the first's median, and that times the median ratio of neighbours
};
/// Two whole plans (tactics chosen, constants packed), run in turn `pairs` times or for 0.1 s on seeded inputs, whichever is
/// longer (500 pairs at most).
[[nodiscard]] Result<PairTime> measure_pair(const region::Plan& first, const region::Plan& second,
                                            const std::vector<const region::Provider*>& providers, int pairs);

}  // namespace octavo::tune
