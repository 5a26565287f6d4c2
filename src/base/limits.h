// How much memory this process may ask for. What a file claims to need is held against it before anything of that size is
// allocated, counted or walked: a forged size ends in an error, not in minutes of work or in the system killing a process.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo {

/// Bytes: the smallest of physical memory, the address-space limit (ulimit -v) and the container's limit (cgroup 2, memory.max).
/// At least 1. Cost: two system calls and one small file.
[[nodiscard]] std::int64_t memory_bytes();

/// Bytes in a memory.max ("1073741824\n"); 0 for no limit ("max") or another text.
[[nodiscard]] std::int64_t bytes_of_limit(std::string_view memory_max);

}  // namespace octavo
