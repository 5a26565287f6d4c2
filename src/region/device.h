// Devices: what runs regions, and memory of its own. The host is one, which the engine knows; others are handed to it as providers are.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::region {

/// Bytes in a device's memory, freed with this object.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Not to be read or written by the host, unless the device says otherwise.
  [[nodiscard]] virtual std::byte* address() const = 0;
};

/// Runs the regions of one device for one context. Not for two threads at once.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Starts regions first..last-1 of the plan, all of this device, in order, behind what was started before. May return before they
  /// are done. `stream`: the queue of the device's own kind (a CUstream) that the caller wants the work in; null: the executor's own.
  /// Addresses of bindings in `memory` may differ from call to call, the others never do. Allocates nothing that a call before it
  /// with the same addresses did not.
  [[nodiscard]] virtual Status start(std::size_t first, std::size_t last, const Memory& memory, void* stream) = 0;
  /// Returns when everything that was started is done. Errors: what went wrong in it.
  [[nodiscard]] virtual Status wait() = 0;
  /// From now on all elements of counted regions are computed (Region::count). Nothing changes where no kernel leaves elements out.
  virtual void compute_all() {}
  /// Seconds that regions first..last-1 take, run `runs` times (at least 1) one behind the other: the mean, by the device's own clock
  /// where it has one. `memory` as for `start`, every address set. Waits for what was started before. By default the host's clock is
  /// read around `start` and `wait`.
  [[nodiscard]] virtual Result<double> time(std::size_t first, std::size_t last, const Memory& memory, int runs);
};

/// One kind of device, in one process. Thread-safe; outlives the engines that use it.
class Device {
 public:
  virtual ~Device() = default;
  /// DeviceUse::name of plans for it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// What times taken on this device are true for, in one line without " | ": its name, its clocks, the versions of the software that
  /// makes and runs its kernels. For timing caches and people. Error: `unsupported` where the device cannot be opened.
  [[nodiscard]] virtual Result<std::string> description() const { return std::string(name()); }
  /// False for a device that engines are built for by its name alone: nothing runs there.
  [[nodiscard]] virtual bool is_here() const { return true; }
  /// Zeros, at an address that is a multiple of 256. Error: `io` when there is not as much.
  [[nodiscard]] virtual Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) const = 0;
  /// Copies that return when they are done; for constants, and for looking at what a region made.
  [[nodiscard]] virtual Status write(std::byte* to, std::span<const std::byte> from) const = 0;
  [[nodiscard]] virtual Status read(std::span<std::byte> to, const std::byte* from) const = 0;
  /// Has machine code (Artifact::code) ready for executors as long as the result lives, which goes before the code does. Null: executors make it
  /// ready when they need it. This and `expect_transfers` have no default, which a device that stands for another one would silently take.
  [[nodiscard]] virtual Result<std::shared_ptr<const void>> hold(std::span<const std::byte> code) const = 0;
  /// `kernels`: by region, those of other devices null; they and the plan outlive the executor.
  [[nodiscard]] virtual Result<std::unique_ptr<Executor>> executor(const Plan& plan,
                                                                   std::span<const Kernel* const> kernels) const = 0;
  /// Will copy so many bytes each between the host and the device in one run: what such copies need is made ready now, as far as it goes, instead of in the first run that
  /// needs it. May take some milliseconds.
  virtual void expect_transfers(std::span<const std::size_t> bytes) const = 0;
};

}  // namespace octavo::region
