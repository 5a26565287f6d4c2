// Life after fork(): the child has one thread and a copy of everything else. Threads that the parent had are gone, and a mutex that
// one of them held stays locked for ever.
#pragma once

#include <mutex>

namespace octavo {

/// How often this process and its ancestors have forked since the library was loaded, as far as they are its children: an object
/// that remembers the number of its creation knows whether its threads still exist. Cost: one load.
[[nodiscard]] unsigned fork_generation();

/// One mutex of the whole process that no fork() catches locked: the forking thread takes it first, and both processes release it.
/// For short critical sections only, and never while another lock is waited for.
[[nodiscard]] std::mutex& fork_safe_mutex();

}  // namespace octavo
