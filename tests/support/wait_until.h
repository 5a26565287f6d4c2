// Waits for what another thread, another process or the system does. A limit ends the test where that never comes.
#pragma once

#include <chrono>
#include <thread>

namespace octavo::testing {

/// Asks `ready()` again and again, with a pause of at most a millisecond between two questions: what it said last, true or after 30 s false.
template <class Ready>
bool wait_until(const Ready& ready) {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  while (!ready()) {
    const auto waited = steady_clock::now() - begin;
    if (waited > std::chrono::seconds(30)) return false;
    // What comes at once is not made late by a sleep.
    if (waited < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

}  // namespace octavo::testing
