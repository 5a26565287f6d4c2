// NVIDIA GPUs as a device of plans: memory, and an executor that replays captured graphs on a stream.
#pragma once

#include <memory>
#include <string>

#include "region/device.h"

namespace octavo::cuda {

/// The GPU's facts that kernels are made by and reports name.
struct GpuFacts {
  std::string name;          ///< "NVIDIA H100 80GB HBM3"
  std::string architecture;  ///< "sm_90a"
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0;  ///< that one block can use
  std::int64_t memory_bytes = 0;
};

/// GPU number `ordinal`. It is opened by the first call that needs it and kept; such calls fail with `unsupported` and the reason where
/// there is no driver or no such GPU.
[[nodiscard]] const region::Device& gpu(int ordinal = 0);
[[nodiscard]] Result<GpuFacts> gpu_facts(int ordinal = 0);

}  // namespace octavo::cuda
