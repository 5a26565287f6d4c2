// One planning makes many plans of a network to compare them, and most of their regions are the same: what costs time is done once for each.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "program/program.h"
#include "region/provider.h"

namespace octavo::plan {

/// What was compiled during one planning. Artifacts that have code or a source are not kept: it may name buffers by their numbers in the plan.
class CompiledRegions {
 public:
  /// Provider::compile, or what it gave for an equal region with the same tactic.
  [[nodiscard]] Result<region::Artifact> compile(const region::Provider& provider, const region::Region& region,
                                                 const region::Plan& plan, const region::Tactic& tactic);

 private:
  std::map<std::string, region::Artifact> made_;
};

/// Programs as program::simplify leaves them.
class SimplifiedPrograms {
 public:
  [[nodiscard]] const program::Program& of(const program::Program& p, const std::vector<bool>& operand_is_u8);

 private:
  std::map<std::string, program::Program> made_;
};

/// How weights of the graph become what a region reads.
struct WeightForm {
  std::optional<ir::DType> narrow;  ///< rounded to a type of 16 bits
  bool codes = false, transposed = false;
  auto operator<=>(const WeightForm&) const = default;
};

/// Weights as regions read them. They follow from a constant of the graph alone, and all plans of a network have the same.
class LoweredWeights {
 public:
  /// What `make` gives for the constant, or what it gave for the same bytes in memory with the same quantizer.
  [[nodiscard]] ir::Tensor of(const ir::Node& constant, const WeightForm& form, const std::function<ir::Tensor()>& make);

 private:
  struct Made {
    ir::Tensor from;  ///< held, so that its address stays its own
    std::optional<ir::Quantizer> quantizer;
    ir::Tensor weights;
  };
  std::map<std::pair<const std::byte*, WeightForm>, Made> made_;
};

/// Lives as long as one planning; then providers may forget what they kept for it. They must outlive it.
struct Memo {
  explicit Memo(const std::vector<const region::Provider*>& providers) : providers_(providers) {}
  ~Memo();
  Memo(const Memo&) = delete;
  Memo& operator=(const Memo&) = delete;

  CompiledRegions compiled;
  SimplifiedPrograms simplified;
  LoweredWeights weights;

 private:
  std::vector<const region::Provider*> providers_;
};

}  // namespace octavo::plan
