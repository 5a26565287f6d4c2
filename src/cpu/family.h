// A family: one way to compute one kind of region, for every instruction set it was written for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine.h"
#include "cpu/access.h"
#include "cpu/cost_model.h"
#include "cpu/isa.h"
#include "region/host_kernel.h"
#include "region/refusal.h"

namespace octavo::cpu {

using Kernel = region::HostKernel;
using region::Memory;
using region::Offer;
using region::Plan;
using region::refusal_of;
using region::refuse;
using region::Region;
using region::Stage;
using region::Tactic;
using region::unmet;
using region::Worker;
using Packed = std::span<const std::byte* const>;

/// Tasks for `units` pieces of work, none of less than `grain`: a power of two below 64, which 2, 4 and 8 threads share evenly.
[[nodiscard]] inline int even_tasks(std::int64_t work, std::int64_t grain, std::int64_t units, std::int64_t most = 256) {
  const auto n = std::clamp<std::int64_t>(work / grain, 1, std::clamp<std::int64_t>(units, 1, most));
  return static_cast<int>(n < 64 ? std::bit_floor(static_cast<std::uint64_t>(n)) : static_cast<std::uint64_t>(n));
}

/// The levels that block kernels are compiled for, best first.
inline constexpr std::array kBlockIsas{Isa::avx512, Isa::avx2, Isa::portable};
/// The levels of products on the dot instructions of 8-bit codes, which block kernels do not need.
inline constexpr std::array kDotIsas{Isa::amx, Isa::avx512vnni, Isa::avx2, Isa::portable};

class Family {
 public:
  virtual ~Family() = default;
  /// What Tactic::family begins with: "pointwise.block".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Of one region, where it says more than name() does (always name() first).
  [[nodiscard]] virtual std::string name_for(const Region&) const { return std::string(name()); }
  /// Of a family whose tactics are made of others (packs_parts): the parts that it would choose on this machine, under the parameters
  /// of the region's tactic, and their estimated seconds on one thread; or why there are none.
  struct Composed {
    std::vector<Tactic> parts;
    double cost = 0;
    Reasons refusal;
  };
  [[nodiscard]] virtual Composed compose(const Region&, const Plan&) const { return {}; }
  /// Further sets of parameters than none, for searches that take their time, and whether tactics may have a parameter. `pack` may
  /// not depend on them, unless the family packs_parts.
  [[nodiscard]] virtual std::vector<std::map<std::string, std::string>> parameter_sets(const Region&, const Plan&, Isa) const {
    return {};
  }
  [[nodiscard]] virtual bool takes_parameter(std::string_view) const { return false; }
  /// Raised when packing or arithmetic changes (Tactic::version).
  [[nodiscard]] virtual int version() const { return 1; }
  /// Capabilities beside the instruction set of a family that is made for several.
  [[nodiscard]] virtual std::vector<std::string> required() const { return {}; }
  /// Tactic::reference, Tactic::forwards_stages.
  [[nodiscard]] virtual bool reference() const { return false; }
  [[nodiscard]] virtual bool forwards_stages() const { return false; }
  /// The kinds of regions this family is about; for others it is silent.
  [[nodiscard]] virtual bool about(const Region& region) const = 0;
  /// Why a region of its kind is refused, by what it is alone; empty: taken.
  [[nodiscard]] virtual Reasons why_not(const Region& region, const Plan& plan) const = 0;
  /// Estimated seconds on one thread.
  [[nodiscard]] virtual double cost(const Region& region, const Plan& plan, Isa isa) const = 0;
  /// The levels that there are kernels for, best first.
  [[nodiscard]] virtual std::span<const Isa> levels() const { return kBlockIsas; }
  /// False: compiled once, for any processor.
  [[nodiscard]] virtual bool per_isa() const { return true; }
  [[nodiscard]] virtual bool vector(Isa isa) const { return isa != Isa::portable; }
  [[nodiscard]] virtual Result<std::vector<ir::Tensor>> pack(const Region&, const Plan&, Isa) const {
    return std::vector<ir::Tensor>{};
  }
  /// Bytes of each constant that `pack` makes, in its order, from the region alone. The provider holds both `pack` and what a file
  /// brings to it: a kernel reads its constants without looking.
  [[nodiscard]] virtual Result<std::vector<std::int64_t>> packed_bytes(const Region&, const Plan&, Isa) const {
    return std::vector<std::int64_t>{};
  }
  /// More constants may follow those of `packed_bytes`: the kernels of parts, each checked where its part is made.
  [[nodiscard]] virtual bool packs_parts() const { return false; }
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> instantiate(const Region& region, const Plan& plan, Isa isa,
                                                                    Packed packed) const = 0;
};

/// A tactic of an engine file is the one that this version makes of its parameters. Errors: `unsupported` for another version of the
/// family, `bad_engine` for anything else that differs.
[[nodiscard]] Status check_tactic(const Tactic& stored, const Tactic& own);

/// The constants that a region has (Region::packed, `packed` of them) are those that its tactic makes. `bad_engine` names the
/// region, the constant and both sizes. `more`: further ones may follow.
[[nodiscard]] Status check_packed(const Region& region, const Plan& plan, std::size_t packed, std::span<const std::int64_t> bytes,
                                  bool more = false);

/// The CPU provider of each part of a tactic for `stages` stages. Error: `bad_engine` when there are not as many, or nobody knows one.
[[nodiscard]] Result<std::vector<const region::Provider*>> providers_of(const std::vector<Tactic>& parts, std::size_t stages);

/// The parameter of tactics that divide by multiplying where that gives the same bits: quicker where slow_division(). Fixed when the
/// tactic is offered, so that an engine computes in one way wherever it runs.
inline constexpr std::string_view kDivision = "division", kMultiply = "multiply";
[[nodiscard]] inline bool multiplies(const Tactic& t) {
  const auto found = t.parameters.find(std::string(kDivision));
  return found != t.parameters.end() && found->second == kMultiply;
}
/// Has the region a division that may be one by a constant?
[[nodiscard]] bool divides(const Region& region);

/// The stage of a region of one stage.
[[nodiscard]] inline const Stage& only(const Region& r) {
  return r.stages.front();
}

/// Every store of the region has a dimension of 0: nothing_family takes it, and no other is asked.
[[nodiscard]] bool stores_nothing(const Region& r);

// The families, in the order they are asked. Static storage.
[[nodiscard]] const Family& nothing_family();
[[nodiscard]] const Family& copy_family();
[[nodiscard]] const Family& pointwise_family();
[[nodiscard]] const std::vector<const Family*>& move_families();
[[nodiscard]] const Family& max_pool_family();
[[nodiscard]] const Family& avg_pool_family();
[[nodiscard]] const Family& reduce_family();
[[nodiscard]] const Family& conv_family();
[[nodiscard]] const Family& depthwise_family();
[[nodiscard]] const Family& depthwise_f32_family();
[[nodiscard]] const Family& conv_f32_family();
[[nodiscard]] const Family& resize_family();
[[nodiscard]] const Family& softmax_family();
[[nodiscard]] const Family& staged_family();
[[nodiscard]] const Family& grouped_family();
[[nodiscard]] const Family& reference_family();

}  // namespace octavo::cpu
