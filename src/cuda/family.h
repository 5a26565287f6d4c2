// A family: one way to compute one kind of region on a GPU, as the text of kernels and how to launch them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/refusal.h"
#include "region/region.h"

namespace octavo::cuda {

using region::refusal_of;
using region::refuse;
using region::unmet;

/// What one kernel parameter points to. Every parameter of a kernel is one pointer; shapes, strides and other numbers are literals
/// of the text.
struct Parameter {
  enum class Kind : std::uint8_t { buffer, constant, workspace };
  Kind kind = Kind::buffer;
  std::int32_t index = 0;   ///< buffer: its BufferId in the plan; constant: its index in KernelText::constants; workspace: 0
  std::int64_t offset = 0;  ///< bytes behind the beginning
  bool operator==(const Parameter&) const = default;
};

/// One launch of a `extern "C" __global__` function of the text.
struct Launch {
  std::string function;
  std::array<int, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::int64_t shared_bytes = 0;  ///< dynamic shared memory
  bool early = false;             ///< may start while the kernel before runs (cuda/early_start.h); the provider sets it
  std::vector<Parameter> parameters;
  bool operator==(const Launch&) const = default;
};

/// A region on the GPU. `text` does not begin with the prelude (device functions that every text may use: cuda/prelude.inc), which is
/// put in front when it is compiled. Equal texts are compiled once, so no name of a region, buffer or tensor is part of a text.
struct KernelText {
  std::string text;
  std::vector<Launch> launches;       ///< in order, on one stream
  std::vector<ir::Tensor> constants;  ///< packed for these kernels; uploaded once, 256-byte aligned
  std::int64_t workspace_bytes = 0;   ///< device memory of this region alone, zero before its first run
};

/// The GPU that kernels are made for.
struct Target {
  std::string architecture = "sm_90a";  ///< as NVRTC spells it
  int multiprocessors = 132;
  std::int64_t shared_bytes = 227 * 1024;  ///< that one block can use
};

/// Readable settings of a family that a search can vary: {"tile", "128x64x64"}, {"stages", "3"}.
using Parameters = std::map<std::string, std::string>;

/// One way that a family offers for a region. `seconds` is an estimate that orders candidates until a time was measured.
struct Candidate {
  Parameters parameters;
  double seconds = 0;
};

/// Immutable, static storage, thread-safe; nothing may depend on addresses or time.
class Family {
 public:
  virtual ~Family() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  ///< "conv.u8s8.mma"
  /// Raised when packed constants or arithmetic change.
  [[nodiscard]] virtual int version() const { return 1; }
  /// The kinds of regions this family is about; for others it is silent.
  [[nodiscard]] virtual bool about(const region::Region& region) const = 0;
  /// Why a region of its kind is refused, with the values; empty: taken.
  [[nodiscard]] virtual Reasons why_not(const region::Region& region, const region::Plan& plan, const Target& target) const = 0;
  /// The best guess first. Asked only where why_not is empty; never empty then.
  [[nodiscard]] virtual std::vector<Candidate> candidates(const region::Region& region, const region::Plan& plan,
                                                          const Target& target) const = 0;
  [[nodiscard]] virtual Result<KernelText> emit(const region::Region& region, const region::Plan& plan,
                                                const Parameters& parameters, const Target& target) const = 0;
};

}  // namespace octavo::cuda
