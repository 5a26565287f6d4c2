// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: x [N,C,d...], target [N,d...], weights [C].
#include <array>
#include <numeric>

#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

Result<ValueId> negative_log_likelihood(NodeContext& n, Compose& c, ValueId log_p) {
  const Shape x = c.shape(log_p);
  const std::string reduction = n.attr_text("reduction", "mean");
  const bool ignores = n.has_attr("ignore_index");
  const std::int64_t ignored = n.attr_int("ignore_index", -1);
  if (reduction != "none" && reduction != "sum" && reduction != "mean") return n.bad("reduction \"{}\" is not known", reduction);
  if (x.size() < 2) return n.bad("the scores are {}, need rank 2 at least", ir::to_string(x));
  Shape want = x;
  want.erase(want.begin() + 1);
  if (n.shape(1) != want) return n.bad("the target is {}, needs {}", ir::to_string(n.shape(1)), ir::to_string(want));
  const ValueId target = c.cast(n.in(1), DType::s64), zero = c.filled(DType::f32, {}, 0);
  const ValueId skip = ignores ? c.equal(target, c.integers({}, {ignored})) : ir::kNone;
  const ValueId index = ignores ? c.where(skip, c.integers({}, {0}), target) : target;
  Shape column = want;
  column.insert(column.begin() + 1, 1);
  ValueId loss = c.op(Op::gather_elements, {log_p, c.reshape(index, column)}, {{"axis", std::int64_t{1}}});
  loss = c.neg(c.reshape(loss, want));
  if (ignores) loss = c.where(skip, zero, loss);
  ValueId weight = ir::kNone;
  if (n.has(2)) {
    weight = c.gather(n.in(2), index, 0);
    if (ignores) weight = c.where(skip, zero, weight);
    loss = c.mul(loss, weight);
  } else if (ignores) {
    weight = c.where(skip, zero, c.filled(DType::f32, {}, 1));
  }
  if (reduction == "none") return c.value(loss);
  Ints all(want.size());
  std::iota(all.begin(), all.end(), 0);
  const auto sum = [&](Op op, ValueId v) { return c.reduce(op, v, all, false); };
  if (reduction == "sum") return c.value(sum(Op::reduce_sum, loss));
  if (weight == ir::kNone) return c.value(sum(Op::reduce_mean, loss));
  return c.value(c.div(sum(Op::reduce_sum, loss), sum(Op::reduce_sum, weight)));
}

Status nll_loss(NodeContext& n) {
  Compose c(n);
  return n.result(negative_log_likelihood(n, c, n.in(0)));
}

Status softmax_cross_entropy(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 2, 32));
  const ValueId log_p = c.op(Op::log_softmax, {n.in(0)}, {{"axis", std::int64_t{1}}});
  OCTAVO_CHECK(c.status());
  n.set(1, log_p);
  return n.result(negative_log_likelihood(n, c, log_p));
}

constexpr std::array kLossRows{
    OpRow{"NegativeLogLikelihoodLoss", "", 12, 0, 2, 3, nll_loss},
    OpRow{"SoftmaxCrossEntropyLoss", "", 12, 0, 2, 3, softmax_cross_entropy},
};

}  // namespace

Family loss_ops() {
  return kLossRows;
}

}  // namespace octavo::onnx
