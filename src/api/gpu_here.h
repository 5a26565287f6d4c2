// A GPU that takes the place of this machine's GPUs, so that tests build, load and run engines for "cuda" by the same functions as everybody, without a GPU.
#pragma once

#include <functional>

#include "base/result.h"
#include "region/device.h"
#include "region/provider.h"

namespace octavo::api {

struct GpuHere {
  const region::Provider* provider =
      nullptr;  ///< also compiles for GPUs that are named ("cuda:H100"), whose device stays the absent one
  const region::Device* device = nullptr;
  std::function<Status(region::Plan& plan)> remake;  ///< cuda::remake_kernels for it
};

/// While it lives, devices "cuda" and "cuda:N" are this GPU, in every thread. There is one at a time, and nothing else builds or loads where it begins and ends.
class GpuScope {
 public:
  explicit GpuScope(GpuHere gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  GpuHere gpu_;
};

/// Null: the GPUs of this machine.
[[nodiscard]] const GpuHere* gpu_in_place();

}  // namespace octavo::api
