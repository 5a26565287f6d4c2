// What other processes, and the host of a virtual machine, took of the cores while something was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

/// Processor time so far, in seconds, of the processors numbered `cpus`; empty: of all.
struct CoreTimes {
  double busy = 0;    ///< of all processes
  double stolen = 0;  ///< in which the host of a virtual machine ran something else
};
/// From the text of /proc/stat; `ticks`: of a second.
[[nodiscard]] CoreTimes core_times(std::string_view stat, const std::vector<int>& cpus, double ticks);

/// Watches from its creation on.
class OtherLoad {
 public:
  OtherLoad();
  /// Cores, on average since then, that other processes used of those this process may run on; with those that the host took.
  [[nodiscard]] double cores() const;
  /// "other processes used 0.9 of 2 cores ..." of what `cores` gave; empty below a quarter of a core.
  [[nodiscard]] std::string warning(double cores) const;

 private:
  std::vector<int> cpus_;  ///< that this process may run on
  CoreTimes before_;
  double own_ = 0, begun_ = 0;  ///< seconds of this process; by the clock
};

}  // namespace octavo::cli
