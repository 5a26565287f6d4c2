// Threads of this process, as the system lists them. A thread that was joined stays in that list for a moment, so counts are waited for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

#include "support/wait_until.h"

namespace octavo::testing {

/// Threads that the system lists now.
inline std::size_t threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Whether the thread of this number is gone in time.
inline bool thread_ends(int number) {
  return wait_until([&] { return !std::filesystem::exists("/proc/self/task/" + std::to_string(number)); });
}

/// The number of threads once it is at most `most`, or when that did not come in time.
inline std::size_t threads_within(std::size_t most) {
  std::size_t count = 0;
  wait_until([&] { return (count = threads_now()) <= most; });
  return count;
}

}  // namespace octavo::testing
