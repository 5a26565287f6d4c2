// `octavo doctor --system`: what this machine offers, and what of it Octavo uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine.h"
#include "cpu/cap.h"
#include "cuda/device/gpu_device.h"

namespace octavo::cli {

struct SystemFacts {
  std::string version, compiler, libc, kernel, onednn;  ///< onednn: empty in a build without it
  std::uint32_t engine_format = 0;

  std::string processor, capabilities, cap;  ///< cap: what OCTAVO_CPU says; empty: unset
  std::vector<cpu::LevelState> levels;
  MachineModel machine;                                   ///< caches of one core, clock
  int processors = 0;                                     ///< that are online
  int affinity = 0;                                       ///< that this process may run on
  int quota = 0;                                          ///< cores that its control groups grant; 0: no limit
  int threads = 0;                                        ///< what engines use by default
  std::int64_t memory_bytes = 0, memory_limit_bytes = 0;  ///< of the machine; of the cgroup, 0: none

  std::string driver_path, driver_refusal;  ///< either is empty
  std::vector<cuda::GpuFacts> gpus;
  std::vector<std::string> gpu_refusals;  ///< one a GPU; empty: it is supported
  std::string nvrtc_path, nvrtc_version, nvrtc_refusal;

  std::string timing_cache;  ///< path; empty: builds go without
  std::int64_t timing_bytes = 0;
  std::size_t timing_entries = 0;
  std::string timing_refusal;  ///< why the file cannot be read
};

/// Opens each GPU for its facts; everything else reads files.
[[nodiscard]] SystemFacts system_facts();
[[nodiscard]] std::string text_of(const SystemFacts& facts);
[[nodiscard]] std::string json_of(const SystemFacts& facts);

}  // namespace octavo::cli
