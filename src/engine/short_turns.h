// How long a thread keeps a core that others wait for.
#pragma once

namespace octavo::engine {

/// Asks the scheduler to give the calling thread turns of 0.3 ms instead of the usual 1 to 4 ms on a core that it shares with other threads:
/// more often, and shorter, the same share of the time. A region waits for each of its threads, so a thread that has lost its core stops all
/// others for the length of a turn. Without effect where the core is not shared, before Linux 6.12, on other systems, and for threads with a
/// real-time or batch policy. Keeps the thread's nice value; lasts as long as the thread. Cost: two system calls.
void ask_for_short_turns();

}  // namespace octavo::engine
