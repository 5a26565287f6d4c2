#include "base/limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>

namespace octavo {

std::int64_t bytes_of_limit(std::string_view memory_max) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(memory_max.data(), memory_max.data() + memory_max.size(), n);
  return error == std::errc() && end != memory_max.data() && n > 0 ? n : 0;
}

std::int64_t memory_bytes() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto limit = [&](std::int64_t n) {
    if (n > 0) least = std::min(least, n);
  };
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) limit(pages * page);
  struct rlimit space {};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    limit(static_cast<std::int64_t>(std::min<rlim_t>(space.rlim_cur, std::numeric_limits<std::int64_t>::max())));
  std::ifstream in("/sys/fs/cgroup/memory.max");
  std::string line;
  if (std::getline(in, line)) limit(bytes_of_limit(line));
  return least;
}

}  // namespace octavo
