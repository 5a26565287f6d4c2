// The GPU that a request names. A device's name is resolved here alone, and here tests put an emulated GPU in the place of this machine's.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "cuda/device/gpu_device.h"
#include "region/device.h"
#include "region/provider.h"

namespace octavo::api {

/// A GPU that takes the place of this machine's GPUs, so that tests build, load and run engines for "cuda" by the same functions as everybody, without a GPU.
struct GpuHere {
  const region::Provider* provider =
      nullptr;  ///< also compiles for GPUs that are named ("cuda:H100"), whose device stays the absent one
  const region::Device* device = nullptr;
  std::function<Status(region::Plan& plan)> remake;  ///< cuda::remake_kernels for it
};

class UsedGpu {
 public:
  /// Of "cuda", "cuda:N" and "cuda:NAME", with or without ",cpu"; nothing for other devices. Error: a name that no GPU has.
  [[nodiscard]] static Result<std::optional<UsedGpu>> named(std::string_view device);
  /// The same, after check_options.
  [[nodiscard]] static std::optional<UsedGpu> of(std::string_view device);
  /// Of the loader of an engine file: the first GPU, where `device` is none.
  [[nodiscard]] static UsedGpu or_first(std::string_view device);

  /// Its facts, where it is the name of a GPU that need not be in this machine.
  [[nodiscard]] const std::optional<cuda::GpuFacts>& absent() const { return absent_; }
  /// What plans and compiles for it.
  [[nodiscard]] const region::Provider& planner() const;
  /// What knows the kernels of engine files: that of a GPU of this machine, also where the device is the name of another.
  [[nodiscard]] const region::Provider& loader() const;
  [[nodiscard]] const region::Device& device() const;
  /// An error with the way out if it is a GPU of this machine that cannot be opened.
  [[nodiscard]] Status check() const;
  /// Compiles the plan's kernels anew.
  [[nodiscard]] Status remake(region::Plan& plan) const;

 private:
  int ordinal_ = 0;                       ///< of a GPU of this machine
  std::optional<cuda::GpuFacts> absent_;  ///< of one that is named, and need not be here
  const GpuHere* in_place_ = nullptr;     ///< a test's
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

}  // namespace octavo::api
