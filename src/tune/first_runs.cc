#include "tune/first_runs.h"

#include <algorithm>

namespace octavo::tune {
namespace {

constexpr double kFarBehind =
    2 * kHopeless;                  // times the fastest: twice the bound of later runs, as the first ones find cold caches
constexpr double kShort = 1e-4;     // seconds: what takes less is run some more at first, lest one disturbance decides
constexpr double kLostCore = 0.03;  // seconds: what takes longer did not only lose the core to another process
constexpr int kSecondLooks = 4;     // runs of what is far behind: another process may have the core during several
constexpr double kLooks = 0.01;     // seconds that these runs take together, and the run that passes them

}  // namespace

Result<FirstRuns> first_runs(const std::function<Result<double>()>& run, double least, double seconds_each) {
  FirstRuns out;
  OCTAVO_TRY(out.seconds, run());
  const auto far_behind = [&] { return least > 0 && out.seconds > kFarBehind * least; };
  double looked = 0;
  for (int k = 0; k < kSecondLooks && looked < kLooks && far_behind() && out.seconds <= kLostCore; ++k) {
    OCTAVO_TRY(const double again, run());
    looked += again;
    out.seconds = std::min(out.seconds, again);
  }
  out.hopeless = far_behind();
  if (out.hopeless || out.seconds > kLong * seconds_each) return out;
  for (int k = 0; k == 0 || (k < 4 && out.seconds < kShort); ++k) {
    OCTAVO_TRY(const double warm, run());
    out.seconds = std::min(out.seconds, warm);
  }
  return out;
}

}  // namespace octavo::tune
