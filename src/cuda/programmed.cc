#include "cuda/programmed.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

/// Operators on floats with one result, whose kernels have it in a register as a float.
bool gives_float(Op op) {
  switch (op) {
    case Op::matmul:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::reduce_mean:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_prod:
    case Op::reduce_l2:
    case Op::softmax:
    case Op::log_softmax:
    case Op::resize_linear:
    case Op::resize_cubic:
    case Op::instance_norm:
    case Op::layer_norm:
    case Op::lrn: return true;
    default: return false;
  }
}

bool is_half(DType t) {
  return t == DType::f16 || t == DType::bf16;
}

}  // namespace

std::optional<region::Region> programmed(const region::Region& region) {
  if (region.stages.size() != 1) return std::nullopt;
  const region::Stage& s = region.stages[0];
  if (!s.program.outputs.empty() || s.stores.empty() || !gives_float(s.anchor.op) || s.anchor.inputs.empty()) return std::nullopt;
  for (const region::TensorRef& y : s.stores) {
    if (!is_half(y.dtype) || y.quantizer || y.dtype != s.anchor.inputs[0].dtype) return std::nullopt;
  }
  region::Region out = region;
  region::Stage& stage = out.stages[0];
  const int acc = stage.program.push(program::Op::acc_f);
  for (const region::TensorRef& y : stage.stores) stage.program.outputs.push_back({acc, y.dtype});
  stage.anchor.store_results.clear();
  return out;
}

}  // namespace octavo::cuda
