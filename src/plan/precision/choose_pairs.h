// --qdq permit: whether the model's pairs become permissions, by time.
//
// Candidate pairs:  y = dequantize(quantize(x))  <==>  y = x, and x may be read through the quantizer of the pair (plan/precision/permit_pairs.h)
//   Why    a pair inside a region is a rounding that has to be computed. Without it, a region stores codes only if the next region
//          reads codes. But a pair between a convolution and its activation turns the activation into a table of 256 bytes; without
//          the pair, the activation is arithmetic.
//   Exact  not bit for bit: each pair that becomes a permission is a rounding less. The third candidate keeps those between a layer and its activation.
//   Needs  --qdq permit. Priced at every effort: by estimates at effort 0, by measured regions from effort 1 on, and by whole runs from effort 2 on.
//   Order  around everything but by-image and tactics: each candidate is planned as a network of its own. Default: every pair as it stands.
#pragma once

#include "base/result.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace octavo::plan {

/// The plan with every pair where it stands, or the one without pairs if that costs less (plan/search/margins.h); adds a Decision with the times of
/// all candidates. PermitReport::pairs counts what was taken: nothing where the pairs stay. A model whose pairs contradict the caller's precision
/// rules, or cannot be planned, has the second and third candidate alone. Cost: up to three plannings. Errors: those of `plan_once` for the second.
[[nodiscard]] Result<Planned> choose_pairs(const ir::Graph& graph, const PlanContext& context, const PlanOnce& plan_once);

}  // namespace octavo::plan
