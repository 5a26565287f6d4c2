#include "engine/short_turns.h"

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace octavo::engine {

#ifdef __linux__
namespace {

/// struct sched_attr of the system call, in its second version; C libraries before 2.41 do not declare it.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  ///< ns; of SCHED_OTHER: the length of a turn, 0.1 to 100 ms
  std::uint64_t deadline = 0, period = 0;
  std::uint32_t least_utilization = 0, most_utilization = 0;
};

constexpr std::uint64_t kTurn = 300'000;

}  // namespace

void ask_for_short_turns() {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  SchedulingAttributes now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) return;
  SchedulingAttributes wanted;
  wanted.policy = now.policy;
  wanted.nice = now.nice;
  wanted.flags = now.flags & 1U;  // SCHED_FLAG_RESET_ON_FORK
  wanted.runtime = kTurn;
  static_cast<void>(syscall(SYS_sched_setattr, 0, &wanted, 0));  // refused: the thread stays as it is
#endif
}
#else
void ask_for_short_turns() {}
#endif

}  // namespace octavo::engine
