#include "passes/behind_gemm.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace octavo::passes {
namespace {

using ir::Op;

constexpr std::size_t kMost = 64;  // values looked at

/// Each value is looked at once: networks with residuals have paths without number.
bool from_gemm(const ir::Graph& g, ir::ValueId v, std::set<ir::ValueId>& seen) {
  if (v == ir::kNone || g.type(v).shape.size() != 2 || seen.size() == kMost || !seen.insert(v).second) return false;
  const ir::Node& n = g.producer(v);
  if (n.op == Op::gemm) return true;
  return ir::has_trait(n.op, ir::kPointwise) &&
         std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId i) { return from_gemm(g, i, seen); });
}

}  // namespace

bool moves_freely(Op op) {
  return ir::has_trait(op, ir::kPointwise) && op != Op::affine && op != Op::view && op != Op::quantize && op != Op::dequantize &&
         op != Op::quantize_rt && op != Op::dequantize_rt;
}

bool from_gemm(const ir::Graph& g, ir::ValueId matrix) {
  std::set<ir::ValueId> seen;
  return from_gemm(g, matrix, seen);
}

bool one_a_column(const ir::Shape& operand, std::int64_t columns) {
  return ir::count(operand) == columns && !operand.empty() && operand.back() == columns;
}

}  // namespace octavo::passes
