#include "cli/commands/other_load.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>

namespace octavo::cli {
namespace {

constexpr double kWorthSaying = 0.25;  // cores: a tick of 10 ms is the least that can be told

double own_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
CoreTimes now(const std::vector<int>& cpus) {
  std::ostringstream text;
  text << std::ifstream("/proc/stat").rdbuf();
  return core_times(text.str(), cpus, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace

CoreTimes core_times(std::string_view stat, const std::vector<int>& cpus, double ticks) {
  CoreTimes out;
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::array<double, 8> times{};  // user nice system idle iowait irq softirq steal
    words >> name;
    if (name.size() < 4 || name.compare(0, 3, "cpu") != 0 || name.find_first_not_of("0123456789", 3) != std::string::npos) continue;
    for (double& t : times) words >> t;
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), std::stoi(name.substr(3))) == cpus.end()) continue;
    out.busy += (times[0] + times[1] + times[2] + times[5] + times[6]) / ticks;
    out.stolen += times[7] / ticks;
  }
  return out;
}

OtherLoad::OtherLoad() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus_.push_back(cpu);
    }
  }
  before_ = now(cpus_);
  own_ = own_seconds();
  begun_ = clock_seconds();
}

double OtherLoad::cores() const {
  const double wall = clock_seconds() - begun_;
  if (wall < 0.05) return 0;
  const CoreTimes after = now(cpus_);
  const double others = after.busy - before_.busy - (own_seconds() - own_) + after.stolen - before_.stolen;
  return std::max(0.0, others / wall);
}

std::string OtherLoad::warning(double used) const {
  if (used < kWorthSaying) return {};
  return fmt::format(
      "other processes used {:.1f} of {} cores during the measurement. Times are longer than on idle cores, those of single "
      "regions "
      "most",
      used, cpus_.size());
}

}  // namespace octavo::cli
