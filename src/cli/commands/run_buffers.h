// Inputs and outputs for runs that are timed.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::cli {

/// Random inputs (seed 1) and room for the outputs of a plan. Not to be copied: `in` and `out` point into it.
struct RunBuffers {
  explicit RunBuffers(const region::Plan& plan);
  RunBuffers(const RunBuffers&) = delete;
  RunBuffers& operator=(const RunBuffers&) = delete;

  /// Takes these inputs instead, of the plan's types.
  void feed(std::vector<ir::Tensor> tensors);

  std::vector<ir::Tensor> inputs, outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
};

/// The same in the memory of the device that the engine runs on, so that a run copies nothing to or from the host. Empty where the
/// engine runs on the host alone.
struct DeviceBuffers {
  /// Copies the inputs. `engine` must outlive what is returned. Errors: `io` when the device has not as much memory.
  [[nodiscard]] static Result<DeviceBuffers> create(const engine::Engine& engine, const RunBuffers& from);

  std::vector<engine::Address> in, out;
  std::vector<std::unique_ptr<region::DeviceMemory>> memory;
};

}  // namespace octavo::cli
