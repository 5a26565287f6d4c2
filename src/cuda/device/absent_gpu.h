// GPUs that are not in this machine: engines are planned and compiled for them by name, and saved.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/device/gpu_device.h"
#include "region/device.h"

namespace octavo::cuda {

/// The facts of a GPU by its name ("RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090") or its architecture ("sm_89": a representative GPU of it). Memory,
/// clocks and driver are not known: 0 and empty. Errors: usage for other names, with the nearest; unsupported for architectures that the kernels do not
/// run on.
[[nodiscard]] Result<GpuFacts> find_gpu(std::string_view name);
inline constexpr std::string_view kGpuExamples = "its architecture, for example sm_86, or its name, for example \"RTX 4090\"";
/// "H100 (sm_90a)", for messages; the name alone if it ends with the architecture ("a GPU of sm_90a").
[[nodiscard]] std::string with_architecture(const GpuFacts& facts);

/// Names that find_gpu takes, as people write them, and architectures.
[[nodiscard]] std::vector<std::string> known_gpus();

/// A device of the name "cuda" that engines for such a GPU can be made and saved on. It keeps no bytes. Reading and running fail with `unsupported`, which
/// names the GPU. One object for each name, for ever.
[[nodiscard]] const region::Device& absent_gpu(const GpuFacts& facts);

}  // namespace octavo::cuda
