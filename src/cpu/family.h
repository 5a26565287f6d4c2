// A row of the CPU's table of kernels: a family (region/family.h), whatever its setting is. FamilyOf<Setting> is what families derive from.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/machine.h"
#include "cpu/access.h"
#include "cpu/cost_model.h"
#include "cpu/isa.h"
#include "region/family.h"
#include "region/host_kernel.h"
#include "region/refusal.h"

namespace octavo::cpu {

using Kernel = region::HostKernel;
using region::Match;
using Results = region::About::Results;
using region::Memory;
using region::Offer;
using region::ParameterRow;
using region::Parameters;
using region::Plan;
using region::refusal_of;
using region::refuse;
using region::Region;
using region::Stage;
using region::Tactic;
using region::unmet;
using region::Worker;
/// The constants that a kernel reads, in the order of `pack`, 64-byte aligned.
using Packed = std::span<const std::span<const std::byte>>;

/// A kernel that counts its tasks when it is made.
class TaskedKernel : public Kernel {
 public:
  [[nodiscard]] int tasks() const final { return tasks_; }

 protected:
  int tasks_ = 1;
};

/// Tasks for `units` pieces of work, none of less than `grain`: a power of two below 64, which 2, 4 and 8 threads share evenly.
[[nodiscard]] inline int even_tasks(std::int64_t work, std::int64_t grain, std::int64_t units, std::int64_t most = 256) {
  const auto n = std::clamp<std::int64_t>(work / grain, 1, std::clamp<std::int64_t>(units, 1, most));
  return static_cast<int>(n < 64 ? std::bit_floor(static_cast<std::uint64_t>(n)) : static_cast<std::uint64_t>(n));
}

[[nodiscard]] constexpr std::int64_t padded_to(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

/// The levels that block kernels are compiled for, best first.
inline constexpr std::array kBlockIsas{Isa::avx512, Isa::avx2, Isa::portable};
/// The levels of products on the dot instructions of 8-bit codes, which block kernels do not need.
inline constexpr std::array kDotIsas{Isa::amx, Isa::avx512vnni, Isa::avx2, Isa::portable};
/// Of kernels that are compiled once, for any processor.
inline constexpr std::array kAnyIsa{Isa::portable};

/// What a family says of itself.
struct Row {
  std::string_view name;  ///< what Tactic::family begins with, "pointwise.block"; the level follows where there are several
  int version = 1;        ///< raised when packing or arithmetic changes (Tactic::version)
  std::span<const Isa> levels = kBlockIsas;       ///< that there are kernels for, best first; the tactic requires its level
  std::vector<std::string_view> required = {};    ///< capabilities beside the level
  std::span<const ParameterRow> parameters = {};  ///< that its tactics may have
  int rank = 1;                                   ///< Offer::rank: 0 for generated code, which others are not tried beside
  bool vector = true;                             ///< Tactic::vector, of levels above portable
  bool reference = false, forwards_stages = false, stores_in_place = false;  ///< as in Tactic
  region::About about = {};                                                  ///< or the family has a function `about` of its own
  bool composed = false;  ///< its tactics have a part for each stage, and pack the constants of the parts behind their own

  [[nodiscard]] bool has_levels() const { return levels.size() > 1; }
};

/// What a family is asked about: a region, and the tactic in question as far as it is fixed.
struct Request {
  const Region& region;
  const Plan& plan;
  Isa isa = Isa::portable;  ///< one of the family's levels
  const Parameters& parameters;
  std::span<const Tactic> parts = {};  ///< of a composed tactic; empty: the family chooses them
};

/// A family's setting for one region, of whatever type. Kept while one request is answered.
class Matched {
 public:
  virtual ~Matched() = default;
  [[nodiscard]] virtual double cost(Isa isa) const = 0;
  [[nodiscard]] virtual Parameters parameters() const = 0;
  [[nodiscard]] virtual std::vector<Tactic> parts() const = 0;
  [[nodiscard]] virtual std::vector<Parameters> variants() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> packed_bytes() const = 0;
  [[nodiscard]] virtual Result<std::vector<ir::Tensor>> pack() const = 0;
  [[nodiscard]] virtual std::optional<std::string> layout() const = 0;
  /// Once: the kernel takes the setting.
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> load(Packed packed) = 0;
};

class Family {
 public:
  explicit Family(Row row) : row_(std::move(row)) {}
  virtual ~Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  [[nodiscard]] const Row& row() const { return row_; }
  /// The kinds of regions this family is about; for others it is silent.
  [[nodiscard]] virtual bool about(const Region& region) const { return row_.about.holds(region); }
  /// The name for one region, where it says more than the row's (always that first).
  [[nodiscard]] virtual std::string name_for(const Region&) const { return std::string(row_.name); }
  /// Why it is not offered on this machine, which has what it requires; empty: it is. The one function that may ask the machine.
  [[nodiscard]] virtual Reasons why_not_here() const { return {}; }
  /// Is it left out, without a word, where the machine has something better?
  [[nodiscard]] virtual bool outdated_here() const { return false; }
  /// Parameters that say what the machine has, for what is offered on it.
  [[nodiscard]] virtual Parameters parameters_here() const { return {}; }
  /// Capabilities that tactics with these parameters need beside the row's.
  [[nodiscard]] virtual std::vector<std::string> required_by(const Parameters&) const { return {}; }
  /// The setting; an error's reasons are the refusal.
  [[nodiscard]] virtual Result<std::unique_ptr<Matched>> matched(const Request& request) const = 0;

 private:
  Row row_;
};

/// A family with its setting's type. `match` alone reads the region, by what it is and not by what the machine has.
template <class Setting>
class FamilyOf : public Family {
 public:
  using Family::Family;
  [[nodiscard]] virtual Match<Setting> match(const Request& request) const = 0;
  /// Estimated seconds on one thread at a level, which may be another than the setting was matched for.
  [[nodiscard]] virtual double cost(const Setting& setting, Isa isa) const = 0;
  /// Of the parameters that it was matched with those that make a difference: the tactic has no others, so that it runs wherever it can.
  [[nodiscard]] virtual Parameters parameters(const Setting&, const Parameters& given) const { return given; }
  /// Of a composed tactic.
  [[nodiscard]] virtual std::vector<Tactic> parts(const Setting&) const { return {}; }
  /// Further sets of parameters, for searches that take their time.
  [[nodiscard]] virtual std::vector<Parameters> variants(const Setting&) const { return {}; }
  [[nodiscard]] virtual std::vector<std::int64_t> packed_bytes(const Setting&) const { return {}; }
  [[nodiscard]] virtual Result<std::vector<ir::Tensor>> pack(const Setting&) const { return std::vector<ir::Tensor>{}; }
  /// What `pack` makes of the region's constants beside their values, as text: settings of one tactic with equal texts and equal constants have equal
  /// packed ones, whatever the extents of their activations are. Nothing: it is not known.
  [[nodiscard]] virtual std::optional<std::string> layout(const Setting& setting) const {
    return packed_bytes(setting).empty() ? std::optional<std::string>("") : std::nullopt;
  }
  [[nodiscard]] virtual Result<std::unique_ptr<Kernel>> load(Setting setting, Packed packed) const = 0;

  [[nodiscard]] Result<std::unique_ptr<Matched>> matched(const Request& request) const final {
    OCTAVO_TRY(Setting setting, match(request));
    return std::make_unique<Held>(*this, std::move(setting), request.parameters);
  }

 private:
  class Held final : public Matched {
   public:
    Held(const FamilyOf& family, Setting setting, const Parameters& given)
        : family_(family), setting_(std::move(setting)), given_(given) {}
    double cost(Isa isa) const override { return family_.cost(setting_, isa); }
    Parameters parameters() const override { return family_.parameters(setting_, given_); }
    std::vector<Tactic> parts() const override { return family_.parts(setting_); }
    std::vector<Parameters> variants() const override { return family_.variants(setting_); }
    std::vector<std::int64_t> packed_bytes() const override { return family_.packed_bytes(setting_); }
    Result<std::vector<ir::Tensor>> pack() const override { return family_.pack(setting_); }
    std::optional<std::string> layout() const override { return family_.layout(setting_); }
    Result<std::unique_ptr<Kernel>> load(Packed packed) override { return family_.load(std::move(setting_), packed); }

   private:
    const FamilyOf& family_;
    Setting setting_;
    Parameters given_;
  };
};

/// A family whose kernel is made of the setting alone.
template <class Setting, class KernelType>
class KernelFamily : public FamilyOf<Setting> {
 public:
  using FamilyOf<Setting>::FamilyOf;
  [[nodiscard]] Result<std::unique_ptr<Kernel>> load(Setting setting, Packed) const final {
    return std::make_unique<KernelType>(std::move(setting));
  }
};

/// Has the region a division that may be one by a constant?
[[nodiscard]] bool divides(const Region& region);

/// The stage of a region of one stage.
[[nodiscard]] inline const Stage& only(const Region& r) {
  return r.stages.front();
}
/// One stage with this operator; its results leave by a program.
[[nodiscard]] inline bool is_one(const Region& r, ir::Op op) {
  return r.stages.size() == 1 && only(r).anchor.op == op;
}

/// Every store of the region has a dimension of 0: the family "nothing" takes it, and no other is asked.
[[nodiscard]] bool stores_nothing(const Region& r);

}  // namespace octavo::cpu
