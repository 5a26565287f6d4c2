// fold-constants:  f(constants) ==> constant
//   Why    nodes that do not depend on the inputs are computed once, when the engine is built.
//   Exact  bit for bit: the reference computes it, and the reference is what the engine must equal.
//   Needs  every operand is a constant; the result lies on no grid (codes stay codes: that is for the laws); the result takes at
//          most 1 MiB, or four times what its operands take.
//   Order  after drop-identity. Before fold-batch-norm, which needs literal parameters.

#include <algorithm>

#include "base/causes/passes.h"
#include "base/causes/quant.h"
#include "passes/rules.h"
#include "quant/codes.h"
#include "reference/evaluate.h"

namespace octavo::passes {
namespace {

std::int64_t bytes_of(const ir::TensorType& t) {
  return ir::count(t.shape) * static_cast<std::int64_t>(ir::size_of(t.dtype));
}

struct FoldConstants final : rewrite::Rule {
  std::string_view name() const override { return "fold-constants"; }
  std::string_view equation() const override { return "f(constants) ==> constant"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node& n = g.node(id);
    if (n.inputs.empty()) return rewrite::no_match();
    std::int64_t operand_bytes = 0, result_bytes = 0;
    for (const ir::ValueId v : n.inputs) {
      if (v == ir::kNone) continue;
      if (!g.is_constant(v)) return rewrite::no_match();
      operand_bytes += bytes_of(g.type(v));
    }
    for (const ir::ValueId v : n.outputs) {
      result_bytes += bytes_of(g.type(v));
      if (const ir::Quantizer* q = grids.get(v)) return rewrite::refuse(because<cause::result_stays_codes>(ir::to_string(*q)));
    }
    constexpr std::int64_t kSmall = std::int64_t{1} << 20;
    if (result_bytes > std::max(kSmall, 4 * operand_bytes)) {
      return rewrite::refuse(because<cause::result_too_large>(result_bytes, operand_bytes));
    }
    auto results = reference::evaluate_between(g, {}, n.outputs);
    if (!results) return rewrite::refuse(because<cause::not_evaluated>(results.error().message));
    const std::vector<ir::ValueId> outputs = n.outputs;  // adding nodes moves the original
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const ir::ValueId folded = g.add_constant(std::move((*results)[i]), g.value(outputs[i]).name);
      quant::substitute(g, outputs[i], folded);
    }
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& fold_constants() {
  static const FoldConstants rule;
  return rule;
}

}  // namespace octavo::passes
