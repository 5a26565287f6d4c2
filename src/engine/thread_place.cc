#include "engine/thread_place.h"

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace octavo::engine {

#ifdef __linux__
namespace {

/// The system moves a thread at once when its core is no longer allowed, and leaves it there when all are allowed again.
bool move(int thread, const cpu_set_t& allowed, const cpu_set_t& wanted) {
  if (sched_setaffinity(thread, sizeof wanted, &wanted) != 0) return false;
  return sched_setaffinity(thread, sizeof allowed, &allowed) == 0;
}

}  // namespace

int current_core() {
  return sched_getcpu();
}

int current_thread() {
  return static_cast<int>(syscall(SYS_gettid));
}

std::int64_t processor_time(int thread) {
  // The clock of a thread, as pthread_getcpuclockid makes it: the thread's number inverted, and CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3U) | 6U);
  timespec time{};
  if (thread <= 0 || clock_gettime(clock, &time) != 0) return -1;
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

bool leave_cores(std::span<const int> taken) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;  // more processors than the set holds
  cpu_set_t wanted = allowed;
  for (const int core : taken) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_CLR(static_cast<unsigned>(core), &wanted);
  }
  return CPU_COUNT(&wanted) > 0 && move(0, allowed, wanted);
}

bool bring_here(int thread) {
  const int here = current_core();
  cpu_set_t allowed;
  if (thread <= 0 || here < 0 || here >= CPU_SETSIZE || sched_getaffinity(thread, sizeof allowed, &allowed) != 0) return false;
  if (!CPU_ISSET(static_cast<unsigned>(here), &allowed)) return false;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  CPU_SET(static_cast<unsigned>(here), &wanted);
  return move(thread, allowed, wanted);
}
#else
int current_core() {
  return -1;
}
int current_thread() {
  return 0;
}
std::int64_t processor_time(int) {
  return -1;
}
bool leave_cores(std::span<const int>) {
  return false;
}
bool bring_here(int) {
  return false;
}
#endif

}  // namespace octavo::engine
