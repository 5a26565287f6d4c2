// Values that matter only in runs in which a condition holds: what a step of a Loop computes that may not happen, and the branches of an If that data decide. Import
// computes them all and selects; the conditions are among the counts that it publishes (ir/output_sizes.h), as 1 or 0. Found from the results backwards.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace octavo::plan {

class GateFinder {
 public:
  /// The graph must outlive it. `whole`: values that matter in every run.
  explicit GateFinder(const ir::Graph& g, const std::set<ir::ValueId>& whole = {});
  /// The output of the graph that is 0 in runs in which none of these values matters. Nothing: there is no such output, or nothing reads them.
  [[nodiscard]] std::optional<int> output_of(const std::vector<ir::ValueId>& values) const;
  /// Does the node, a selection, let through a value that matters only if its condition holds?
  [[nodiscard]] bool selects(const ir::Node& n) const;

 private:
  /// A bool[] that is no "not", and whether it holds.
  using Condition = std::pair<ir::ValueId, bool>;
  struct Gate {
    enum class Kind : std::uint8_t { unread, some, always } kind = Kind::unread;
    Condition condition = {ir::kNone, true};  ///< of `some`
    bool operator==(const Gate&) const = default;
  };
  [[nodiscard]] Condition plain(ir::ValueId v, bool holds) const;
  /// Of an operand of a node whose results have gate `own`.
  [[nodiscard]] Gate of_operand(const ir::Node& n, std::size_t i, const Gate& own) const;
  [[nodiscard]] Gate joined(const Gate& a, const Gate& b) const;
  [[nodiscard]] bool implies(const Condition& a, const Condition& b) const;

  const ir::Graph& g_;
  std::map<Condition, int> outputs_;
  std::vector<Gate> gates_;
};

}  // namespace octavo::plan
