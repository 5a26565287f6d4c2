// Plans ready to run, with memory for what callers pass.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "region/region.h"

namespace octavo::tune {

class Runner {
 public:
  /// What runners of plans with the same inputs and outputs, which never run at once, have together on the host.
  struct Together {
    engine::SharedMemory memory;
    std::vector<std::size_t> bytes;  ///< of the inputs, then of the outputs
    std::vector<std::shared_ptr<std::byte[]>> host;
    std::vector<engine::Address> in, out;
  };
  /// `plan`: tactics chosen and compiled; code is finished here. Inputs, and what the first region reads of the arena, hold activations as
  /// networks have them. Errors: those of the provider's finish, of Engine::create and of Context::create.
  [[nodiscard]] static Result<std::unique_ptr<Runner>> create(region::Plan plan, const engine::Providers& providers,
                                                              const engine::Devices& devices, Together* together = nullptr);

  /// Seconds of one run, by the host's clock; of a plan for another device by that device's, without transfers where it can be.
  [[nodiscard]] Result<double> run();
  /// Seconds of one region of a plan for another device, the mean of `runs`; behind a run.
  [[nodiscard]] Result<double> time(std::size_t region, int runs) { return context_->time(region, region + 1, runs); }

 private:
  Runner() = default;
  [[nodiscard]] Status take_memory(const region::Plan& plan, Together* together);
  [[nodiscard]] Status fill(const region::TensorRef& ref);

  std::unique_ptr<engine::Context> context_;
  std::vector<std::shared_ptr<std::byte[]>> host_;
  std::vector<std::unique_ptr<region::DeviceMemory>> device_;
  std::vector<engine::Address> in_, out_;
};

}  // namespace octavo::tune
