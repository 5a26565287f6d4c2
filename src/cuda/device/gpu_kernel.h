// Kernels of a region on a GPU, as engines hold them: machine code in modules, and how its functions are started.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/text/kernel_text.h"
#include "region/provider.h"

namespace octavo::cuda {

/// Launches of several texts (a region of several stages has one a stage), in order.
struct RegionKernels {
  struct Start {
    int module = 0;  ///< index into the region's texts
    Launch launch;
  };
  std::vector<std::string> texts;
  std::vector<Start> starts;
  std::vector<ir::Tensor> constants;
  std::int64_t workspace_bytes = 0;
};

/// What an executor needs. Parameters of kind `buffer` are BufferIds of the plan, those of kind `constant` too (Region::packed).
class GpuKernel final : public region::Kernel {
 public:
  GpuKernel(std::vector<std::span<const std::byte>> modules, std::vector<RegionKernels::Start> starts, std::int64_t workspace_bytes,
            std::string architecture)
      : modules_(std::move(modules)),
        starts_(std::move(starts)),
        workspace_bytes_(workspace_bytes),
        architecture_(std::move(architecture)) {}
  [[nodiscard]] const std::vector<std::span<const std::byte>>& modules() const { return modules_; }
  [[nodiscard]] const std::vector<RegionKernels::Start>& starts() const { return starts_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }

 private:
  std::vector<std::span<const std::byte>> modules_;
  std::vector<RegionKernels::Start> starts_;
  std::int64_t workspace_bytes_;
  std::string architecture_;
};

/// Region::launch: the launches as JSON. Buffers are named by where the region names them ("input", stage, index), so that a plan may
/// number its buffers anew. Error: `internal` for a parameter that is no tensor of the region.
[[nodiscard]] Result<std::string> write_launches(const RegionKernels& kernels, const region::Region& region);
/// Reads it back against the region. `bad_engine` for what write_launches does not write.
[[nodiscard]] Result<RegionKernels> read_launches(std::string_view json, const region::Region& region);

/// Artifact::code: texts or machine codes of a region in one run of bytes.
[[nodiscard]] std::string join_modules(const std::vector<std::string>& modules);
/// Views into `bytes`. `bad_engine` when it is not such a run of `count` modules.
[[nodiscard]] Result<std::vector<std::span<const std::byte>>> split_modules(std::span<const std::byte> bytes);

}  // namespace octavo::cuda
