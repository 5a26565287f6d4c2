// Times of tactics, taken by running them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "region/provider.h"
#include "region/region.h"
#include "tune/one_region.h"

namespace octavo::tune {

/// Of one tactic: -1 where it fails to be made here. `disturbed`: its turns are so far apart that something else must have had the
/// processor during most of them.
struct TacticSeconds {
  double seconds = -1;
  bool disturbed = false;
};

/// How often this process has timed tactics or plans, a call each: runs of an open model must not.
[[nodiscard]] std::uint64_t measurements();

/// Seconds a run of each tactic, parallel to `candidates`. The tactics take turns, so that
/// what else the machine does falls on all of them; a turn's time is the median of its runs, so that single runs
/// during which another process had a core do not count, and the time is the lower quartile of the turns. A tactic three times
/// slower than the best so far in its first runs is not run again. Tactics whose turns are far apart get as many turns again, and are
/// marked if that does not help. `seconds_each`: how long to measure each (some 4e-3 for a first
/// guess, 1e-1 for a careful one). Runs on plan.threads threads. Cost: making every tactic once, plus the time asked for.
[[nodiscard]] Result<std::vector<TacticSeconds>> measure(const region::Region& region, const region::Plan& plan,
                                                         const std::vector<ProvidedTactic>& candidates, double seconds_each,
                                                         const engine::Devices& devices = {});

struct PairTime {
  double first = 0, second = 0;  ///< seconds: the first's median, and that times the median ratio of neighbours
};
/// Two whole plans (tactics chosen, constants packed), run in turn `pairs` times or for 0.1 s on seeded inputs, whichever is
/// longer (500 pairs at most). A plan of another device than the host keeps its inputs and outputs in that device's memory.
[[nodiscard]] Result<PairTime> measure_pair(const region::Plan& first, const region::Plan& second,
                                            const std::vector<const region::Provider*>& providers, int pairs,
                                            const engine::Devices& devices = {});

}  // namespace octavo::tune
