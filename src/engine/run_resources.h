// What the contexts of several engines of one model take for the time of a run: arenas, scratch, threads and memory of devices. A new shape finds memory whose
// pages are there, and starts no threads.
#pragma once

#include <cstddef>

#include "engine/arena_pool.h"
#include "engine/device_arenas.h"
#include "engine/thread_pools.h"

namespace octavo::engine {

/// Any thread may take and give.
struct RunResources {
  /// `most`: as ArenaPool has it.
  explicit RunResources(std::size_t most = 0) : arenas(most) {}
  /// Gives everything that is idle back to the system and to the devices.
  void trim() {
    threads.trim(), devices.trim();
    arenas.trim(), scratch.trim();
  }

  ArenaPool arenas;
  ArenaPool scratch;  ///< memory that the threads of a run work in
  ThreadPools threads;
  DeviceArenas devices;  ///< arenas on other devices
};

}  // namespace octavo::engine
