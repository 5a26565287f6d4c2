// fold-coded-move:  M(coded constant) ==> coded constant
//   Why    weights that are transposed or sliced behind their DequantizeLinear stay codes. An integer anchor can read codes, but
//          not floats.
//   Exact  bit for bit: codes move as their values would; a per-axis quantizer follows its axis.
//   Needs  M is transpose, reshape, slice, concat, gather, depth_to_space or space_to_depth; every operand is constant, the data
//          coded, and the result lies on one grid (an axis that is split or merged does not).
//   Order  after code-constant. Operators that repeat (expand, tile, ...) are left alone: they would enlarge the constants.

#include <algorithm>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"
#include "reference/evaluate.h"

namespace octavo::quant {
namespace {

bool folds(ir::Op op) {
  using ir::Op;
  constexpr Op kOps[] = {Op::transpose, Op::reshape, Op::slice, Op::concat, Op::gather, Op::depth_to_space, Op::space_to_depth};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

struct FoldCodedMove final : rewrite::Rule {
  std::string_view name() const override { return "fold-coded-move"; }
  std::string_view equation() const override { return "M(coded constant) ==> coded constant"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node n = g.node(id);
    if (!folds(n.op) || !g.is_constant(n.inputs[0]) || !g.producer(n.inputs[0]).quantizer) return rewrite::no_match();
    const ir::DType type = g.payload(n.inputs[0]).dtype();
    ir::Graph codes;  // M over the codes alone
    std::vector<ir::ValueId> operands;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const ir::ValueId v = n.inputs[i];
      if (!g.is_constant(v)) return rewrite::no_match();
      const bool data = n.op != ir::Op::gather || i == 0;
      if (data && (!g.producer(v).quantizer || g.payload(v).dtype() != type))
        return rewrite::refuse(because<cause::operand_not_coded>(i, ir::name_of(type)));
      operands.push_back(codes.add_constant(g.payload(v)));
    }
    const ir::Quantizer* grid = grids.get(n.outputs[0]);
    if (grid == nullptr || grid->type != type) return rewrite::refuse(because<cause::result_without_one_quantizer>());
    codes.outputs = {ir::add_inferred(codes, n.op, operands, n.attrs)};
    codes.output_names = {"codes"};
    auto moved = reference::evaluate(codes, {});
    if (!moved) return rewrite::refuse(because<cause::not_evaluated>(moved.error().message));

    const std::string name = g.value(n.outputs[0]).name;
    const ir::Quantizer q = *grid;
    substitute(g, n.outputs[0], add_coded(g, std::move(moved->front()), q, name));
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& fold_coded_move() {
  static const FoldCodedMove law;
  return law;
}

}  // namespace octavo::quant
