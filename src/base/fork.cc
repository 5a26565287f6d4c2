#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace octavo {
namespace {

// Never destroyed: a process may fork while its static objects are.
std::mutex& guard = *new std::mutex;
std::atomic<unsigned> generation{0};

[[maybe_unused]] const int registered = ::pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); },
                                                         [] {
                                                           generation.fetch_add(1, std::memory_order_relaxed);
                                                           guard.unlock();
                                                         });

}  // namespace

unsigned fork_generation() {
  return generation.load(std::memory_order_relaxed);
}

std::mutex& fork_safe_mutex() {
  return guard;
}

}  // namespace octavo
