#include "engine/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace octavo::engine {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// What one group grants; 0: no limit. Both versions' files, of which a group has one kind.
int quota_of(const std::string& folder) {
  if (const int cores = cores_of_quota(first_line(folder + "/cpu.max")); cores > 0) return cores;
  return cores_of_quota(first_line(folder + "/cpu.cfs_quota_us") + " " + first_line(folder + "/cpu.cfs_period_us"));
}

/// The least of a group and its parents, up to the root of the mount.
int least_quota(const std::string& mount, std::string path) {
  int least = 0;
  for (;;) {
    if (const int cores = quota_of(mount + path); cores > 0) least = least == 0 ? cores : std::min(least, cores);
    if (path.empty()) return least;
    path.resize(path.find_last_of('/'));
  }
}

}  // namespace

int cores_of_quota(std::string_view cpu_max) {
  const std::string text(cpu_max);
  long long quota = 0, period = 0;
  if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;  // "max 100000"
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, 1 << 16));
}

int cores_of_groups(const std::string& root, std::string_view membership) {
  int least = 0;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {  // "hierarchy:controllers:path"; version 2 names no controllers
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/' || path.find("/..") != std::string::npos || path == "/") path.clear();
    const std::string mount = controllers.empty() ? root : root + "/" + controllers;
    std::error_code ignored;
    if (!std::filesystem::is_directory(mount + path, ignored)) path.clear();
    if (const int cores = least_quota(mount, path); cores > 0) least = least == 0 ? cores : std::min(least, cores);
  }
  return least;
}

int quota_cores() {
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  return cores_of_groups("/sys/fs/cgroup", membership.str());
}

int cores_of_mask() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);  // fails with more than 1024 processors
  return std::max(1, cores);
}

int available_cores() {
  int cores = cores_of_mask();
  // More threads than a quota has cores would be stopped in turns.
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

}  // namespace octavo::engine
