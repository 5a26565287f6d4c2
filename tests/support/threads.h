// Threads of this process, as the system lists them. A thread that was joined stays in that list for a moment, so counts are waited for.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

namespace octavo::testing {

/// Threads that the system lists now.
inline std::size_t threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Whether the thread of this number is gone within 20 s.
inline bool thread_ends(int number) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(number))) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// The number of threads once it is at most `most`, or after 20 s.
inline std::size_t threads_within(std::size_t most) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::size_t count = threads_now();
  for (; count > most && std::chrono::steady_clock::now() < end; count = threads_now())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return count;
}

}  // namespace octavo::testing
