// On which core a thread runs, whether it runs at all, and how to move it to another. Linux; elsewhere nothing is known, and nothing moves.
#pragma once

#include <cstdint>
#include <span>

namespace octavo::engine {

/// The core that the calling thread is on; -1: unknown. Cost: some nanoseconds.
[[nodiscard]] int current_core();

/// The system's number of the calling thread; 0: unknown. Cost: a system call.
[[nodiscard]] int current_thread();

/// Processor time of a thread of this process so far, in ns, up to this moment: it stands still while the thread has no core. -1: unknown.
/// Cost: a system call.
[[nodiscard]] std::int64_t processor_time(int thread);

/// Moves the calling thread to a core that it may use and that is not in `taken`; false: there is none, or the system refuses. Which cores
/// the thread may use is the same before and after. Cost: three system calls and about 10 us for the move.
bool leave_cores(std::span<const int> taken);

/// Moves another thread of this process to the core of the calling thread; false: it may not use that core, or the system refuses. Which cores
/// it may use is the same before and after. A thread that waits for a core runs here as soon as the calling thread sleeps. Cost: three system calls.
bool bring_here(int thread);

}  // namespace octavo::engine
