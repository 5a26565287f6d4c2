// How many cores this process may use.
#pragma once

#include <string>
#include <string_view>

namespace octavo::engine {

/// Processors this process may use: its affinity mask, capped by the processor quotas of its control groups, rounded up; at least 1.
/// Reads a few small files.
[[nodiscard]] int available_cores();

/// Processors of the affinity mask of this process, whatever its quotas grant; at least 1. So many of its threads can run at the same moment.
[[nodiscard]] int cores_of_mask();

/// What the quotas of this process's control groups grant, in cores, rounded up; 0: none has a limit.
[[nodiscard]] int quota_cores();

/// Cores that a line of cgroup 2's cpu.max grants ("150000 100000": 2); 0 for no limit ("max 100000") or another text.
[[nodiscard]] int cores_of_quota(std::string_view cpu_max);

/// The least that the control groups of a process grant, each with its parents; 0: none has a limit. `membership`: the text of
/// /proc/self/cgroup; `root`: where the control groups' file systems are mounted, version 2 in itself or version 1 in a folder for each
/// controller. Inside a container the path may be the host's: then the root of the mount is the container's own group.
[[nodiscard]] int cores_of_groups(const std::string& root, std::string_view membership);

}  // namespace octavo::engine
