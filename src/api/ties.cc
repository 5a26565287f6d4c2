#include "api/ties.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "reference/evaluate.h"

namespace octavo::api {
namespace {

using ir::Op;
using ir::ValueId;
using Known = std::map<ValueId, ir::Tensor>;

/// A float sum, or a function of one: its last bits depend on the order.
bool sums_floats(const ir::Graph& g, const ir::Grids& grids, ir::NodeId id) {
  const ir::Op op = g.node(id).op;
  if (!ir::has_trait(op, ir::kAnchor) || ir::has_trait(op, ir::kMove)) return false;
  return !ir::classify_anchor(g, grids, id).integer;
}

bool is_exact(const ir::Graph& g, const ir::Grids& grids, ir::NodeId id) {
  const Op op = g.node(id).op;
  if (op == Op::view || op == Op::quantize || op == Op::dequantize || op == Op::relu || op == Op::clip) return true;
  if (ir::has_trait(op, ir::kMove)) return true;
  return (op == Op::conv || op == Op::conv_transpose || op == Op::gemm || op == Op::matmul) &&
         ir::classify_anchor(g, grids, id).integer;
}

/// The nodes between `known` and a value.
class Cone {
 public:
  Cone(const ir::Graph& g, const ir::Grids& grids, const Known& known, bool all) : g_(g), grids_(grids), known_(known), all_(all) {}

  /// Roundings on the way to `wanted` whose operands depend on float sums. False: one of them is summed again, or a scale is computed.
  bool find(ValueId wanted) { return visit(wanted, false); }
  [[nodiscard]] const std::set<ir::NodeId>& roundings() const { return roundings_; }
  /// float16 or bfloat16 is on the way: values may differ by a step of it.
  [[nodiscard]] double narrow() const { return narrow_; }

 private:
  [[nodiscard]] bool ends_at(ValueId v) const {
    return v == ir::kNone || known_.contains(v) || g_.is_constant(v) || g_.producer(v).op == Op::input;
  }
  bool loose(ValueId v) {  // depends on the order of a float sum
    if (ends_at(v)) return false;
    if (const auto at = loose_.find(v); at != loose_.end()) return at->second;
    bool is = all_ || sums_floats(g_, grids_, g_.value(v).producer);
    for (const ValueId in : g_.producer(v).inputs) is = loose(in) || is;
    return loose_[v] = is;
  }
  bool visit(ValueId v, bool summed_behind) {
    if (ends_at(v) || !seen_.insert({v, summed_behind}).second) return true;
    const ir::NodeId id = g_.value(v).producer;
    const ir::Node& n = g_.node(id);
    if (n.op == Op::dynamic_quantize || n.op == Op::quantize_rt) {
      for (const ValueId in : n.inputs) {
        if (loose(in)) return false;
      }
    }
    const bool to_integer = n.op == Op::cast && ir::is_float(g_.type(n.inputs[0]).dtype) && !ir::is_float(g_.type(v).dtype);
    if ((n.op == Op::view || n.op == Op::quantize || to_integer) && loose(n.inputs[0])) {
      if (summed_behind) return false;
      roundings_.insert(id);
    }
    if (n.op == Op::cast && g_.type(v).dtype == ir::DType::bf16) narrow_ = std::max(narrow_, 1.0 / (1 << 8));
    if (n.op == Op::cast && g_.type(v).dtype == ir::DType::f16) narrow_ = std::max(narrow_, 1.0 / (1 << 11));
    const bool sum = ir::has_trait(n.op, ir::kAnchor) && !ir::has_trait(n.op, ir::kMove);
    for (const ValueId in : n.inputs) {
      if (!visit(in, summed_behind || sum)) return false;
    }
    return true;
  }

  const ir::Graph& g_;
  const ir::Grids& grids_;
  const Known& known_;
  const bool all_;
  std::map<ValueId, bool> loose_;
  std::set<std::pair<ValueId, bool>> seen_;
  std::set<ir::NodeId> roundings_;
  double narrow_ = 0;
};

/// `values` more or less by the tolerance.
ir::Tensor moved(const ir::Tensor& values, const std::optional<ir::Quantizer>& q, double tolerance, int sign) {
  constexpr double kPartOfStep = 1e-3;
  double largest = 0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values.at(i))) largest = std::max(largest, std::abs(values.at(i)));
  }
  const double step = q ? *std::max_element(q->scale.begin(), q->scale.end()) : 0;  // none: a cast, which cuts off
  const double by = std::max(kPartOfStep * step, tolerance * largest);
  ir::Tensor out(values.dtype(), values.shape());
  const auto to = out.mutable_data<float>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(values.at(static_cast<std::int64_t>(i)) + sign * by);
  return out;
}

ir::Tensor copy_of(const ir::Tensor& t) {
  ir::Tensor out(t.dtype(), t.shape());
  std::copy(t.bytes().begin(), t.bytes().end(), out.mutable_bytes().begin());
  return out;
}

void widen(Between& b, const ir::Tensor& other) {
  const std::size_t size = ir::size_of(other.dtype());
  const auto copy = [&](ir::Tensor& to, std::int64_t i) {
    const auto at = static_cast<std::size_t>(i) * size;
    std::copy_n(other.bytes().begin() + static_cast<std::ptrdiff_t>(at), size,
                to.mutable_bytes().begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::int64_t i = 0; i < other.size(); ++i) {
    if (other.at(i) < b.least.at(i)) copy(b.least, i);
    if (other.at(i) > b.most.at(i)) copy(b.most, i);
  }
}

}  // namespace

bool exact_between(const ir::Graph& g, const ir::Grids& grids, const Known& known, ValueId wanted) {
  std::set<ValueId> seen;
  std::vector<ValueId> next{wanted};
  while (!next.empty()) {
    const ValueId v = next.back();
    next.pop_back();
    if (v == ir::kNone || known.contains(v) || g.is_constant(v) || g.producer(v).op == Op::input || !seen.insert(v).second)
      continue;
    if (!is_exact(g, grids, g.value(v).producer)) return false;
    const auto& inputs = g.producer(v).inputs;
    next.insert(next.end(), inputs.begin(), inputs.end());
  }
  return true;
}

Result<AtTies> at_ties(const ir::Graph& g, const ir::Grids& grids, const Known& known, ValueId wanted, double tolerance,
                       Loose loose) {
  constexpr std::size_t kMostRoundings = 4;  // every combination of their ends is evaluated
  Cone cone(g, grids, known, loose == Loose::all);
  AtTies out;
  if (!cone.find(wanted) || cone.roundings().size() > kMostRoundings) return out;
  std::vector<ir::NodeId> in_order;  // a rounding may read what another one has rounded
  std::ranges::copy_if(g.order(), std::back_inserter(in_order), [&](ir::NodeId id) { return cone.roundings().contains(id); });
  for (const ir::NodeId id : in_order) {
    if (g.type(g.node(id).inputs[0]).dtype != ir::DType::f32) return out;
  }
  OCTAVO_TRY(auto exact, reference::evaluate_between(g, grids, known, {wanted}));
  out.between = {copy_of(exact[0]), copy_of(exact[0])};
  const double by = std::max(tolerance, cone.narrow());
  for (std::size_t ends = 0; ends < (std::size_t{1} << in_order.size()); ++ends) {
    Known with = known;
    std::size_t k = 0;
    for (const ir::NodeId id : in_order) {
      const ir::Node& n = g.node(id);
      OCTAVO_TRY(const auto operand, reference::evaluate_between(g, grids, with, {n.inputs[0]}));
      OCTAVO_TRY(auto rounded,
                 reference::evaluate_node(g, grids, id, {moved(operand[0], n.quantizer, by, (ends >> k & 1) != 0 ? 1 : -1)}));
      with.insert_or_assign(n.outputs[0], std::move(rounded[0]));
      ++k;
    }
    OCTAVO_TRY(const auto there, reference::evaluate_between(g, grids, with, {wanted}));
    widen(out.between, there[0]);
  }
  out.decided = true;
  return out;
}

}  // namespace octavo::api
