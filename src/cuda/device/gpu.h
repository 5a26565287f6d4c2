// One opened GPU: its context, its facts, its memory. What devices, executors and transfers have in common.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/device/driver_api.h"
#include "cuda/device/gpu_device.h"
#include "cuda/device/pinned.h"
#include "region/device.h"

namespace octavo::cuda {

[[nodiscard]] inline std::byte* pointer(CuAddress a) {
  return reinterpret_cast<std::byte*>(a);  // NOLINT: an address of the device, never read here
}
[[nodiscard]] inline CuAddress address(const std::byte* p) {
  return reinterpret_cast<CuAddress>(p);
}

/// Machine code that the driver has loaded.
class LoadedModule {
 public:
  LoadedModule(const class Gpu& gpu, CuModule module) : gpu_(gpu), module_(module) {}
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  [[nodiscard]] CuModule get() const { return module_; }

 private:
  const class Gpu& gpu_;
  CuModule module_;
};

class Gpu final : public region::Device {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Gpu>> open(int ordinal);
  explicit Gpu(const DriverApi& api) : api_(api), pinned_(api) {}

  [[nodiscard]] const GpuFacts& facts() const { return facts_; }
  [[nodiscard]] const DriverApi& api() const { return api_; }
  [[nodiscard]] PinnedMemory& pinned() const { return pinned_; }
  /// Makes the GPU's context current on this thread.
  [[nodiscard]] Status enter() const { return api_.check(api_.set_current(context_), "entering the GPU's context"); }

  /// The machine code at this address, loaded once for all who have it at a time: engines of one model for other shapes share their code. It has to stay
  /// there as long as the module. `who`: for messages.
  [[nodiscard]] Result<std::shared_ptr<const LoadedModule>> load(const std::byte* code, const std::string& who) const;
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte> code) const override;

  std::string_view name() const override { return "cuda"; }
  Result<std::string> description() const override;
  void expect_transfers(std::span<const std::size_t> bytes) const override;
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t bytes) const override;
  Status write(std::byte* to, std::span<const std::byte> from) const override;
  Status read(std::span<std::byte> to, const std::byte* from) const override;
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan& plan,
                                                     std::span<const region::Kernel* const> kernels) const override;

 private:
  /// Waits for work of the default stream that a driver call with this result began.
  [[nodiscard]] Status finished(int code, std::string_view what) const;

  const DriverApi& api_;
  CuContext context_ = nullptr;
  mutable PinnedMemory pinned_;
  mutable std::mutex mutex_;
  mutable std::map<const std::byte*, std::weak_ptr<const LoadedModule>> loaded_;  ///< under mutex_
  GpuFacts facts_;
};

}  // namespace octavo::cuda
