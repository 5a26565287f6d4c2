// One planning makes many plans of a network to compare them, and most of their regions are the same: what costs time is done once for each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
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

/// Lives as long as one planning.
struct Memo {
  CompiledRegions compiled;
  SimplifiedPrograms simplified;
};

}  // namespace octavo::plan
