// Advice: which Q/DQ pairs cost time, and which would save it if they were there.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "region/provider.h"

namespace octavo::plan {

/// A change that saves less than this part of the plan's time does not pay on its own, nor do all changes that save less together.
inline constexpr double kWorth = 0.01;

struct Advice {
  enum class Kind { drop, add, share, move } kind = Kind::drop;
  std::string tensor;                ///< whose pair it is
  std::set<std::string> onnx_nodes;  ///< drop: the pair's; add: the operator that would be int8; share, move: who would read codes
  std::set<std::string> pair;        ///< share, move: the pair
  std::string behind;                ///< move: the tensor that it comes behind
  double seconds = 0;                ///< what the plan gains, by the sum of its regions' prices
  std::optional<ir::Quantizer> quantizer;  ///< add: of the pair, where the tensor has a range
  double error = -1;      ///< largest change of an output relative to its largest magnitude; -1: not known, as without a range
  bool together = false;  ///< one of those that pay beside each other, taken best first and priced again each time; never an
                          ///< addition without a range
  bool small = false;     ///< saves less than kWorth of the plan's time alone: part of `together` at most
  std::size_t place = 0;  ///< among the changes tried
  Reasons why;
};

/// Tries these changes, one at a time: every pair is left out; a pair is added before every float convolution or product with constant weights (its price does
/// not depend on the scale; `ranges`, as PlanOptions::ranges, give the quantizer); the pair of a tensor whose codes are stored is put before the readers in float32 too (share);
/// and a pair between a convolution and its activation is put behind the activation, if the next convolution is float because it lacks
/// a pair (move). Each changed network is planned and priced with `options.costs`. A change that saves more than 2 % of the regions that it changes
/// is advice. Changes that can be applied come first, the best first. `errors`: for this number of the best, estimate how much the outputs change (runs the reference: slow
/// for large networks). Cost: one planning for each change. Errors: those of make_plan.
struct Advised {
  double plan_seconds = 0;
  double applied_seconds = 0;  ///< of the plan with all changes that are `together`
  int tried = 0;
  std::vector<Advice> advice;
};
[[nodiscard]] Result<Advised> advise(ir::Graph graph, const std::vector<const region::Provider*>& providers,
                                     const PlanOptions& options, int errors, const ir::Ranges& ranges = {});

}  // namespace octavo::plan
