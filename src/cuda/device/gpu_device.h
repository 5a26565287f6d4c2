// NVIDIA GPUs as a device of plans: memory, and an executor that replays captured graphs on a stream.
#pragma once

#include <memory>
#include <string>

#include "cuda/text/architecture.h"
#include "region/device.h"

namespace octavo::cuda {

/// The GPU's facts that kernels are made by and reports name.
struct GpuFacts {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  Architecture architecture;
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0;  ///< that one block can use
  std::int64_t memory_bytes = 0;
  std::string driver;                       ///< the newest CUDA that the driver knows: "13.0"
  int clock_mhz = 0, memory_clock_mhz = 0;  ///< the highest
};

/// What a core needs for a kernel: 370 core-seconds for the 920 of DenseNet121 in int8 at batch 8 (NVRTC 13.0, the processor beside an H100).
inline constexpr double kCompileSeconds = 0.4;

/// GPU number `ordinal`. It is opened by the first call that needs it and kept; such calls fail with `unsupported` and the reason where
/// there is no driver or no such GPU.
[[nodiscard]] const region::Device& gpu(int ordinal = 0);
[[nodiscard]] Result<GpuFacts> gpu_facts(int ordinal = 0);
/// For builds, before they plan and compile: an error with the way out if the GPU cannot be opened.
[[nodiscard]] Status check_gpu_for_builds(int ordinal);
/// How many GPUs the driver shows. Error: `unsupported`, why there is no driver.
[[nodiscard]] Result<int> gpu_count();
/// Why the kernels do not run on this architecture; empty: they do.
[[nodiscard]] std::string why_unsupported(const GpuFacts& facts);

}  // namespace octavo::cuda
