// Kernels of a region on a GPU, as engines hold them: machine code in modules, and how its functions are started.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/text/architecture.h"
#include "cuda/text/kernel_text.h"
#include "region/provider.h"

namespace octavo::cuda {

/// Tactics of these kernels name this provider.
inline constexpr std::string_view kProvider = "cuda";

/// Launches of several texts (a region of several stages has one a stage), in order.
struct RegionKernels {
  struct Start {
    int module = 0;  ///< index into the region's texts
    Launch launch;
  };
  std::vector<std::string> texts;
  std::vector<Start> starts;
  std::vector<PackedConstant> constants;
  std::int64_t workspace_bytes = 0;
};

/// What an executor needs. Parameters of kind `buffer` are BufferIds of the plan, those of kind `constant` too (Region::packed).
class GpuKernel final : public region::Kernel {
 public:
  GpuKernel(std::vector<std::span<const std::byte>> modules, std::vector<RegionKernels::Start> starts, std::int64_t workspace_bytes,
            std::optional<Architecture> architecture)
      : modules_(std::move(modules)), starts_(std::move(starts)), workspace_bytes_(workspace_bytes), architecture_(architecture) {}
  [[nodiscard]] const std::vector<std::span<const std::byte>>& modules() const { return modules_; }
  [[nodiscard]] const std::vector<RegionKernels::Start>& starts() const { return starts_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Nothing: any.
  [[nodiscard]] const std::optional<Architecture>& architecture() const { return architecture_; }

 private:
  std::vector<std::span<const std::byte>> modules_;
  std::vector<RegionKernels::Start> starts_;
  std::int64_t workspace_bytes_;
  std::optional<Architecture> architecture_;
};

/// Region::launch: the launches as JSON. Buffers are named by where the region names them ("input", stage, index), so that a plan may
/// number its buffers anew. Error: `internal` for a parameter that is no tensor of the region.
[[nodiscard]] Result<std::string> write_launches(const RegionKernels& kernels, const region::Region& region);
/// Reads it back against the region. `bad_engine` for what write_launches does not write.
[[nodiscard]] Result<RegionKernels> read_launches(std::string_view json, const region::Region& region);

/// Launches without their numbers: everything in them that is the same for all shapes which start the same kernels. `Number`: an index into a list of numbers.
struct LaunchForm {
  using Number = std::uint32_t;
  struct Parameter {
    enum class Kind : std::uint8_t { workspace, count, next, number, constant, input, operand, store, weights };
    Kind kind = Kind::number;
    bool image = false;  ///< of a tensor: numbers[3] is the image's
    std::array<Number, 4>
        numbers{};  ///< workspace, count, next, number: offset. constant: index, offset. Tensors: stage, index, offset
  };
  struct Start {
    std::string function;
    Number module = 0, shared = 0;
    std::array<Number, 3> grid{}, block{};
    bool early = false;
    std::vector<std::array<Number, 15>> images;
    std::vector<Parameter> parameters;
  };
  std::vector<Start> starts;
  Number workspace = 0;
  /// How many of its numbers a parameter has.
  [[nodiscard]] static std::size_t count_of(const Parameter& p) {
    return p.kind <= Parameter::Kind::number ? 1 : p.kind == Parameter::Kind::constant ? 2 : p.image ? 4 : 3;
  }
};
/// Of JSON in which each number is an index (region/restarts.h). `bad_engine` for what write_launches does not write.
[[nodiscard]] Result<LaunchForm> read_form(std::string_view json);
/// As read_launches of the JSON with these numbers.
[[nodiscard]] Result<RegionKernels> launches_of(const LaunchForm& form, std::span<const std::int64_t> numbers,
                                                const region::Region& region);

/// Artifact::code: texts or machine codes of a region in one run of bytes.
[[nodiscard]] std::string join_modules(const std::vector<std::string>& modules);
/// Views into `bytes`. `bad_engine` when it is not such a run of `count` modules.
[[nodiscard]] Result<std::vector<std::span<const std::byte>>> split_modules(std::span<const std::byte> bytes);

}  // namespace octavo::cuda
