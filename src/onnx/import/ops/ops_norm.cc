// Normalizations and softmax.
#include <array>
#include <cmath>

#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// Inference form: x * a + b with a = scale / sqrt(var + eps), b = bias - mean * a, in double, rounded once to f32.
Status batch_norm(NodeContext& n) {
  n.ignore({"momentum", "is_test", "consumed_inputs"});
  if (n.opset() < 7 && n.attr_int("is_test", 0) == 0)
    return n.unsupported("training mode (is_test=0); export the model for inference");
  const float epsilon = n.attr_float("epsilon", 1e-5F);
  if (n.attr_int("spatial", 1) != 1)
    return n.unsupported("spatial=0 (statistics for every element); export again with a newer opset");
  if (n.attr_int("training_mode", 0) != 0) return n.unsupported("training mode; export the model for inference (model.eval())");
  OCTAVO_CHECK(n.need_rank(0, 2, 8));
  const std::int64_t channels = n.shape(0)[1];
  for (std::size_t i = 1; i < 5; ++i) {
    if (n.shape(i) != Shape{channels}) {
      return n.bad("input {} \"{}\" is {}, needs [{}], one entry a channel", i, n.input_name(i), ir::to_string(n.type(i)),
                   channels);
    }
  }
  const Tensor* parts[4] = {n.constant(1), n.constant(2), n.constant(3), n.constant(4)};
  if (parts[0] && parts[1] && parts[2] && parts[3]) {
    Tensor a(DType::f32, {channels}), b(DType::f32, {channels});
    for (std::int64_t c = 0; c < channels; ++c) {
      const double factor = parts[0]->at(c) / std::sqrt(parts[3]->at(c) + static_cast<double>(epsilon));
      a.mutable_data<float>()[static_cast<std::size_t>(c)] = static_cast<float>(factor);
      b.mutable_data<float>()[static_cast<std::size_t>(c)] = static_cast<float>(parts[1]->at(c) - parts[2]->at(c) * factor);
    }
    const ValueId scale = n.add_constant(std::move(a));
    const ValueId shift = n.add_constant(std::move(b));
    return n.result(n.emit(Op::affine, {n.in(0), scale, shift}));
  }
  // Statistics computed at run time: the same in f32 arithmetic.
  Shape along(static_cast<std::size_t>(n.rank(0)) - 1, 1);
  along[0] = channels;
  OCTAVO_TRY(ValueId a, n.emit(Op::add, {n.in(4), n.scalar(epsilon)}));
  OCTAVO_TRY(a, n.emit(Op::sqrt, {a}));
  OCTAVO_TRY(a, n.emit(Op::div, {n.in(1), a}));
  OCTAVO_TRY(ValueId b, n.emit(Op::mul, {n.in(3), a}));
  OCTAVO_TRY(b, n.emit(Op::sub, {n.in(2), b}));
  OCTAVO_TRY(a, n.reshape(a, along));
  OCTAVO_TRY(b, n.reshape(b, along));
  OCTAVO_TRY(const ValueId y, n.emit(Op::mul, {n.in(0), a}));
  return n.result(n.emit(Op::add, {y, b}));
}

Status instance_norm(NodeContext& n) {
  n.ignore({"consumed_inputs"});
  return n.result(
      n.emit(Op::instance_norm, {n.in(0), n.in(1), n.in(2)}, {{"epsilon", static_cast<double>(n.attr_float("epsilon", 1e-5F))}}));
}

Ints from_axis(std::int64_t axis, std::int64_t rank) {
  Ints axes;
  for (std::int64_t d = axis; d < rank; ++d) axes.push_back(d);
  return axes;
}

/// ONNX Runtime writes the operator into files of any opset. The results Mean and InvStdDev are computed beside it when something reads them.
Status layer_norm(NodeContext& n) {
  n.ignore({"stash_type"});
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), n.rank(0)));
  if (n.wants(1) || n.wants(2)) {
    Compose c(n);
    const Ints axes = from_axis(axis, n.rank(0));
    const ValueId mean = c.reduce(Op::reduce_mean, n.in(0), axes, true), centred = c.sub(n.in(0), mean);
    const ValueId variance = c.reduce(Op::reduce_mean, c.mul(centred, centred), axes, true);
    const ValueId epsilon = c.number(static_cast<double>(n.attr_float("epsilon", 1e-5F)), n.in(0));
    const ValueId inverse = c.op(Op::reciprocal, {c.sqrt(c.add(variance, epsilon))});
    OCTAVO_CHECK(c.status());
    n.set(1, mean);
    n.set(2, inverse);
    n.declare(1, DType::f32);
    n.declare(2, DType::f32);
  }
  return n.result(n.emit(Op::layer_norm, {n.in(0), n.in(1), n.in(2)},
                         {{"axis", axis}, {"epsilon", static_cast<double>(n.attr_float("epsilon", 1e-5F))}}));
}

/// x / sqrt(mean(x^2) + epsilon) * scale, over the dimensions from `axis` on.
Status rms_norm(NodeContext& n) {
  Compose c(n);
  n.ignore({"stash_type"});
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), n.rank(0)));
  const ValueId x = n.in(0);
  const ValueId square = c.reduce(Op::reduce_mean, c.mul(x, x), from_axis(axis, n.rank(0)), true);
  const ValueId root = c.sqrt(c.add(square, c.number(static_cast<double>(n.attr_float("epsilon", 1e-5F)), x)));
  const ValueId y = c.mul(c.div(x, root), n.in(1));
  if (c.ok() && c.shape(y) != n.shape(0))
    return n.bad("the scale {} does not fit {}", ir::to_string(n.shape(1)), ir::to_string(n.shape(0)));
  return c.finish(y);
}

/// Instance normalization over groups of channels, then scale and bias: an entry a group in opset 18, a channel from 21.
Status group_norm(NodeContext& n) {
  n.ignore({"stash_type"});
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  const Shape x = n.shape(0);
  const std::int64_t groups = n.attr_int("num_groups", 0), channels = x[1];
  if (groups < 1 || channels % groups != 0) return n.bad("num_groups {} does not divide {} channels", groups, channels);
  const Attrs epsilon{{"epsilon", static_cast<double>(n.attr_float("epsilon", 1e-5F))}};
  Tensor ones(DType::f32, {groups}), zeros(DType::f32, {groups});
  for (float& v : ones.mutable_data<float>()) v = 1.0F;
  const std::int64_t rest = x[0] * groups == 0 ? 0 : ir::count(x) / (x[0] * groups);
  OCTAVO_TRY(ValueId y, n.reshape(n.in(0), {x[0], groups, rest}));
  const ValueId one = n.add_constant(std::move(ones)), zero = n.add_constant(std::move(zeros));
  OCTAVO_TRY(y, n.emit(Op::instance_norm, {y, one, zero}, epsilon));
  OCTAVO_TRY(y, n.reshape(y, x));
  ValueId per_channel[2];
  for (const std::size_t i : {1U, 2U}) {
    const Shape given = n.shape(i);
    ValueId v = n.in(i);
    if (given == Shape{groups} && groups != channels && n.opset() < 21) {
      OCTAVO_TRY(v, n.reshape(v, {groups, 1}));
      OCTAVO_TRY(v, n.emit(Op::expand, {v}, {{"shape", Ints{groups, channels / groups}}}));
      OCTAVO_TRY(v, n.reshape(v, {channels}));
    } else if (given != Shape{channels}) {
      return n.bad("input {} is {}, needs [{}]", i, ir::to_string(given), n.opset() < 21 ? groups : channels);
    }
    per_channel[i - 1] = v;
  }
  if (n.graph().is_constant(per_channel[0]) && n.graph().is_constant(per_channel[1])) {
    return n.result(n.emit(Op::affine, {y, per_channel[0], per_channel[1]}));
  }
  Shape along(x.size() - 1, 1);
  along[0] = channels;
  OCTAVO_TRY(const ValueId a, n.reshape(per_channel[0], along));
  OCTAVO_TRY(const ValueId b, n.reshape(per_channel[1], along));
  OCTAVO_TRY(y, n.emit(Op::mul, {y, a}));
  return n.result(n.emit(Op::add, {y, b}));
}

/// (x - mean) / (deviation + 1e-9) over the axes, two passes.
Status mean_variance_norm(NodeContext& n) {
  OCTAVO_TRY(const Ints axes, n.axes(n.attr_ints("axes", {0, 2, 3}), n.rank(0)));
  const Attrs over{{"axes", axes}, {"keepdims", std::int64_t{1}}};
  OCTAVO_TRY(const ValueId mean, n.emit(Op::reduce_mean, {n.in(0)}, over));
  OCTAVO_TRY(const ValueId centred, n.emit(Op::sub, {n.in(0), mean}));
  OCTAVO_TRY(ValueId spread, n.emit(Op::mul, {centred, centred}));
  OCTAVO_TRY(spread, n.emit(Op::reduce_mean, {spread}, over));
  OCTAVO_TRY(spread, n.emit(Op::sqrt, {spread}));
  OCTAVO_TRY(spread, n.emit(Op::add, {spread, n.scalar(1e-9F)}));
  return n.result(n.emit(Op::div, {centred, spread}));
}

Status lrn(NodeContext& n) {
  return n.result(n.emit(Op::lrn, {n.in(0)},
                         {{"size", n.attr_int("size", 0)},
                          {"alpha", static_cast<double>(n.attr_float("alpha", 1e-4F))},
                          {"beta", static_cast<double>(n.attr_float("beta", 0.75F))},
                          {"bias", static_cast<double>(n.attr_float("bias", 1.0F))}}));
}

/// x / norm along one axis; 0 where the norm is 0.
Status lp_normalization(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", -1), n.rank(0)));
  const std::int64_t p = n.attr_int("p", 2);
  if (p != 1 && p != 2) return n.bad("p is {}, must be 1 or 2", p);
  const Attrs attrs{{"axes", Ints{axis}}, {"keepdims", std::int64_t{1}}};
  ValueId norm = n.in(0);
  if (p == 1) {
    OCTAVO_TRY(norm, n.emit(Op::abs, {norm}));
  }
  OCTAVO_TRY(norm, n.emit(p == 1 ? Op::reduce_sum : Op::reduce_l2, {norm}, attrs));
  Compose c(n);
  const ValueId zero = c.number(0, n.in(0));
  return c.finish(c.where(c.equal(norm, zero), zero, c.div(n.in(0), norm)));
}

template <Op op>
Status softmax(NodeContext& n) {
  const bool flattens = n.opset() < 13;
  return n.result(lower_softmax(n, op, n.in(0), n.attr_int("axis", flattens ? 1 : -1), flattens));
}

constexpr std::array kNormRows{
    OpRow{"BatchNormalization", "", 1, 0, 5, 5, batch_norm},
    OpRow{"InstanceNormalization", "", 1, 0, 3, 3, instance_norm},
    OpRow{"LayerNormalization", "", 1, 0, 2, 3, layer_norm},
    OpRow{"RMSNormalization", "", 23, 0, 2, 2, rms_norm},
    OpRow{"SimplifiedLayerNormalization", "", 1, 0, 2, 2, rms_norm},
    OpRow{"GroupNormalization", "", 18, 0, 3, 3, group_norm},
    OpRow{"MeanVarianceNormalization", "", 9, 0, 1, 1, mean_variance_norm},
    OpRow{"LRN", "", 1, 0, 1, 1, lrn},
    OpRow{"LpNormalization", "", 1, 0, 1, 1, lp_normalization},
    OpRow{"Softmax", "", 1, 0, 1, 1, softmax<Op::softmax>},
    OpRow{"LogSoftmax", "", 1, 0, 1, 1, softmax<Op::log_softmax>},
};

}  // namespace

Family norm_ops() {
  return kNormRows;
}

Result<ValueId> lower_softmax(NodeContext& n, Op op, ValueId x, std::int64_t axis, bool flattens) {
  const Shape shape = n.shape_of(x);
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (flattens && (axis == rank || rank == 0)) {  // one element a distribution
    OCTAVO_TRY(const ValueId flat, n.reshape(x, {ir::count(shape), 1}));
    OCTAVO_TRY(const ValueId y, n.emit(op, {flat}, {{"axis", std::int64_t{1}}}));
    return n.reshape(y, shape);
  }
  OCTAVO_TRY(axis, n.axis(axis, rank));
  std::int64_t before = 1, after = 1;
  for (std::int64_t i = 0; i < rank; ++i) (i < axis ? before : after) *= shape[static_cast<std::size_t>(i)];
  if (!flattens || after == shape[static_cast<std::size_t>(axis)]) return n.emit(op, {x}, {{"axis", axis}});
  OCTAVO_TRY(const ValueId flat, n.reshape(x, {before, after}));
  OCTAVO_TRY(const ValueId y, n.emit(op, {flat}, {{"axis", std::int64_t{1}}}));
  return n.reshape(y, shape);
}

}  // namespace octavo::onnx
