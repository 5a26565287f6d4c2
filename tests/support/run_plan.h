// Runs a plan without the engine: buffers on the heap, kernels one after another. For tests of plans and kernels.
#pragma once

#include <functional>
#include <vector>

#include "region/provider.h"
#include "region/region.h"

namespace octavo::testing {

/// Buffers of a plan with 64 bytes of slack around each, filled with `fill` so that forgotten writes show.
class PlanMemory {
 public:
  explicit PlanMemory(const region::Plan& plan, std::uint8_t fill = 0xA5);
  region::Memory memory;

 private:
  std::vector<std::vector<std::byte>> storage_;
};

/// Runs every region in order; `tasks_backwards` runs the tasks of each kernel one at a time in reverse order. Returns tensors
/// parallel to plan.outputs.
[[nodiscard]] Result<std::vector<ir::Tensor>> run_plan(
    const region::Plan& plan, const std::vector<const region::Provider*>& providers, const std::vector<ir::Tensor>& inputs,
    bool tasks_backwards = false, const std::function<void(std::size_t region, const region::Memory&)>& after = nullptr);

/// Some anchor with weights sums floats, in an order that is the kernel's.
[[nodiscard]] bool has_float_sum(const region::Plan& plan);

}  // namespace octavo::testing
