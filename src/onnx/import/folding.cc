#include "onnx/import/folding.h"

namespace octavo::onnx {

using ir::Op;

namespace {

double elements(const ir::TensorType& t) {
  return static_cast<double>(ir::count(t.shape));
}

struct Elements {
  double in = 0, out = 0;
};
Elements elements_of(const ir::Graph& g, const ir::Node& n, const std::vector<ir::TensorType>& types) {
  Elements e;
  for (const ir::TensorType& t : types) e.out += elements(t);
  for (const ir::ValueId v : n.inputs) e.in += v == ir::kNone ? 0.0 : elements(g.type(v));
  return e;
}

double product(const std::vector<std::int64_t>& values) {
  double out = 1;
  for (const std::int64_t v : values) out *= static_cast<double>(v);
  return out;
}

}  // namespace

double folding_steps(const ir::Graph& g, const ir::Node& n, const std::vector<ir::TensorType>& types) {
  constexpr double kTaps = 16, kCompared = 32;  // bicubic ones; log2 of what is sorted
  const auto [in, out] = elements_of(g, n, types);
  const double all = out + in;
  switch (n.op) {
    case Op::conv:
    case Op::conv_transpose:
    case Op::deform_conv: return all + out * elements(g.type(n.inputs[1]));
    case Op::gemm:
    case Op::matmul: return all + out * static_cast<double>(g.type(n.inputs[0]).shape.back());
    case Op::max_pool:
    case Op::max_pool_index:
    case Op::avg_pool: return all + out * product(ir::get_ints(n.attrs, "kernel"));
    case Op::lrn: return all + out * static_cast<double>(ir::get_int(n.attrs, "size", 1));
    case Op::resize_linear:
    case Op::resize_cubic:
    case Op::grid_sample: return all * kTaps;
    case Op::top_k: return all * kCompared;
    case Op::dynamic_quantize:
    case Op::reduce_mean:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_prod:
    case Op::reduce_l2:
    case Op::softmax:
    case Op::log_softmax:
    case Op::arg_max:
    case Op::instance_norm:
    case Op::layer_norm:
    case Op::math:
    case Op::bitwise:
    case Op::bit_cast:
    case Op::scatter:
    case Op::cumulate:
    case Op::non_zero: return all;
    default: return ir::has_trait(n.op, ir::kPointwise) || ir::has_trait(n.op, ir::kMove) ? all : all * all;
  }
}

bool FoldingBudget::pay(const ir::Graph& g, const ir::Node& n, const std::vector<ir::TensorType>& types) {
  constexpr double kMostSteps = 1e8, kMostGrown = 1 << 24;
  const auto [in, out] = elements_of(g, n, types);
  const double steps = folding_steps(g, n, types);
  if (steps >= kMostSteps || (out >= kMostGrown && out >= 4 * in) || steps > left_) return false;
  left_ -= steps;
  return true;
}

}  // namespace octavo::onnx
