// Unary functions: activations and the plain mathematical ones.
#include <array>
#include <cmath>
#include <limits>

#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <Op op>
Status plain(NodeContext& n) {
  return n.result(n.emit(op, {n.in(0)}));
}

/// One float attribute "alpha".
template <Op op, int thousandths>
Status with_alpha(NodeContext& n) {
  return n.result(n.emit(op, {n.in(0)}, {{"alpha", static_cast<double>(n.attr_float("alpha", thousandths / 1000.0F))}}));
}

Status selu(NodeContext& n) {
  const double alpha = static_cast<double>(n.attr_float("alpha", 1.67326319217681884765625F));
  const double gamma = static_cast<double>(n.attr_float("gamma", 1.05070102214813232421875F));
  return n.result(n.emit(Op::selu, {n.in(0)}, {{"alpha", alpha}, {"gamma", gamma}}));
}

Status hard_sigmoid(NodeContext& n) {
  const double alpha = static_cast<double>(n.attr_float("alpha", 0.2F));
  const double beta = static_cast<double>(n.attr_float("beta", 0.5F));
  return n.result(n.emit(Op::hard_sigmoid, {n.in(0)}, {{"alpha", alpha}, {"beta", beta}}));
}

Status gelu(NodeContext& n) {
  const std::string approximate = n.attr_text("approximate", "none");
  if (approximate != "none" && approximate != "tanh") return n.bad("approximate is \"{}\", not none or tanh", approximate);
  return n.result(n.emit(Op::gelu, {n.in(0)}, {{"approximate", approximate}}));
}

/// Bounds are attributes up to opset 10 and constant inputs from 11.
Status clip(NodeContext& n) {
  double low = -kInf, high = kInf;
  if (n.opset() < 11) {
    low = static_cast<double>(n.attr_float("min", std::numeric_limits<float>::lowest()));
    high = static_cast<double>(n.attr_float("max", std::numeric_limits<float>::max()));
  } else {
    for (const std::size_t i : {1U, 2U}) {
      if (n.has(i) && !n.constant(i)) {  // a bound computed at run time: the same selection, by max and min
        OCTAVO_TRY(ValueId y, n.emit(Op::max, {n.in(0), n.has(1) ? n.in(1) : n.in(0)}));
        if (n.has(2)) {
          OCTAVO_TRY(y, n.emit(Op::min, {y, n.in(2)}));
        }
        return n.result(y);
      }
    }
    if (n.has(1)) {
      OCTAVO_TRY(low, n.constant_scalar(1, "lower bound"));
    }
    if (n.has(2)) {
      OCTAVO_TRY(high, n.constant_scalar(2, "upper bound"));
    }
  }
  if (std::isnan(low) || std::isnan(high)) return n.bad("a bound is NaN");
  return n.result(n.emit(Op::clip, {n.in(0)}, {{"min", low}, {"max", high}}));
}

/// celu(x) = max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).
Status celu(NodeContext& n) {
  const float alpha = n.attr_float("alpha", 1.0F);
  OCTAVO_TRY(const ValueId positive, n.emit(Op::relu, {n.in(0)}));
  OCTAVO_TRY(ValueId v, n.emit(Op::div, {n.in(0), n.scalar(alpha)}));
  OCTAVO_TRY(v, n.emit(Op::elu, {v}, {{"alpha", 1.0}}));
  OCTAVO_TRY(v, n.emit(Op::mul, {v, n.scalar(alpha)}));
  OCTAVO_TRY(v, n.emit(Op::min, {v, n.scalar(0.0F)}));
  return n.result(n.emit(Op::add, {positive, v}));
}

/// x where x > alpha, else 0.
Status thresholded_relu(NodeContext& n) {
  OCTAVO_TRY(const ValueId above, n.emit(Op::greater, {n.in(0), n.scalar(n.attr_float("alpha", 1.0F))}));
  return n.result(n.emit(Op::where, {above, n.in(0), n.scalar(0.0F)}));
}

/// x * sigmoid(alpha * x): Swish (opset 24) and com.microsoft.QuickGelu.
Status swish(NodeContext& n) {
  const float alpha = n.attr_float("alpha", n.proto().op_type() == "QuickGelu" ? 1.702F : 1.0F);
  ValueId inner = n.in(0);
  if (alpha != 1.0F) {
    OCTAVO_TRY(inner, n.emit(Op::mul, {inner, n.scalar(alpha)}));
  }
  OCTAVO_TRY(inner, n.emit(Op::sigmoid, {inner}));
  return n.result(n.emit(Op::mul, {n.in(0), inner}));
}

constexpr std::array kActivationRows{
    OpRow{"Relu", "", 1, 0, 1, 1, plain<Op::relu>},
    OpRow{"Clip", "", 6, 0, 1, 3, clip},
    OpRow{"LeakyRelu", "", 1, 0, 1, 1, with_alpha<Op::leaky_relu, 10>},
    OpRow{"Elu", "", 1, 0, 1, 1, with_alpha<Op::elu, 1000>},
    OpRow{"Selu", "", 1, 0, 1, 1, selu},
    OpRow{"Celu", "", 12, 0, 1, 1, celu},
    OpRow{"ThresholdedRelu", "", 10, 0, 1, 1, thresholded_relu},
    OpRow{"Sigmoid", "", 1, 0, 1, 1, plain<Op::sigmoid>},
    OpRow{"HardSigmoid", "", 1, 0, 1, 1, hard_sigmoid},
    OpRow{"HardSwish", "", 14, 0, 1, 1, plain<Op::hard_swish>},
    OpRow{"Swish", "", 24, 0, 1, 1, swish},
    OpRow{"QuickGelu", kMicrosoft, 1, 0, 1, 1, swish},
    OpRow{"Tanh", "", 1, 0, 1, 1, plain<Op::tanh>},
    OpRow{"Erf", "", 9, 0, 1, 1, plain<Op::erf>},
    OpRow{"Gelu", "", 20, 0, 1, 1, gelu},
    OpRow{"Gelu", kMicrosoft, 1, 0, 1, 1, gelu},
    OpRow{"Mish", "", 18, 0, 1, 1, plain<Op::mish>},
    OpRow{"Softplus", "", 1, 0, 1, 1, plain<Op::softplus>},
    OpRow{"Softsign", "", 1, 0, 1, 1, plain<Op::softsign>},
    OpRow{"Exp", "", 1, 0, 1, 1, plain<Op::exp>},
    OpRow{"Log", "", 1, 0, 1, 1, plain<Op::log>},
    OpRow{"Sqrt", "", 1, 0, 1, 1, plain<Op::sqrt>},
    OpRow{"Reciprocal", "", 1, 0, 1, 1, plain<Op::reciprocal>},
    OpRow{"Abs", "", 1, 0, 1, 1, plain<Op::abs>},
    OpRow{"Neg", "", 1, 0, 1, 1, plain<Op::neg>},
    OpRow{"Floor", "", 1, 0, 1, 1, plain<Op::floor>},
    OpRow{"Ceil", "", 1, 0, 1, 1, plain<Op::ceil>},
    OpRow{"Round", "", 11, 0, 1, 1, plain<Op::round>},
    OpRow{"Sign", "", 9, 0, 1, 1, plain<Op::sign>},
    OpRow{"Sin", "", 7, 0, 1, 1, plain<Op::sin>},
    OpRow{"Cos", "", 7, 0, 1, 1, plain<Op::cos>},
    OpRow{"Not", "", 1, 0, 1, 1, plain<Op::logical_not>},
};

}  // namespace

Family activation_ops() {
  return kActivationRows;
}

}  // namespace octavo::onnx
