#include "passes/behind_gemm.h"

#include <algorithm>

namespace octavo::passes {
namespace {

using ir::Op;

constexpr int kDeepest = 32;  // operators looked through

bool from_gemm(const ir::Graph& g, ir::ValueId v, int depth) {
  if (v == ir::kNone || depth > kDeepest || g.type(v).shape.size() != 2) return false;
  const ir::Node& n = g.producer(v);
  if (n.op == Op::gemm) return true;
  return ir::has_trait(n.op, ir::kPointwise) &&
         std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId i) { return from_gemm(g, i, depth + 1); });
}

}  // namespace

bool moves_freely(Op op) {
  return ir::has_trait(op, ir::kPointwise) && op != Op::affine && op != Op::view && op != Op::quantize && op != Op::dequantize &&
         op != Op::quantize_rt && op != Op::dequantize_rt;
}

bool from_gemm(const ir::Graph& g, ir::ValueId matrix) {
  return from_gemm(g, matrix, 0);
}

}  // namespace octavo::passes
