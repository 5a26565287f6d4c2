// Where the time of a first run of new shapes goes: seconds that this process spent in each part so far. For measurements; a timer costs two readings of the
// clock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/part_timer.h"

namespace octavo {

/// extents: a plan gets the extents of the shapes, memory, keys. starts: how its kernels are started, from the table or by emission. load: an engine is made of
/// it. prepare: an executor finds its functions. allocate: memory of a device. capture: graphs. copy: between host and device. launch: graphs are started.
/// wait: for a device.
enum class RunPart : std::uint8_t { extents, starts, load, prepare, allocate, capture, copy, launch, wait };
inline constexpr std::array<std::string_view, 9> kRunParts{"extents", "starts", "load",   "prepare", "allocate",
                                                           "capture", "copy",   "launch", "wait"};

/// By RunPart. Thread-safe.
[[nodiscard]] std::array<double, kRunParts.size()> run_part_seconds();

void add_time(RunPart part, std::chrono::nanoseconds took);
using RunPartTimer = PartTimer<RunPart>;

}  // namespace octavo
