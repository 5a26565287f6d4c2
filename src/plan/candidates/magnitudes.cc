#include "plan/candidates/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/task.h"
#include "ir/grid.h"
#include "plan/candidates/narrow.h"
#include "reference/evaluate.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

constexpr std::uint64_t kSeed = 1;

bool is_layer(Op op) {
  return op == Op::conv || op == Op::conv_transpose || op == Op::gemm || op == Op::matmul;
}

/// A float32 layer whose data have neither a range nor a pair, or whose result has no range.
bool unknown(const Graph& g, const Node& n, const ir::Ranges& ranges) {
  if (!is_layer(n.op) || g.type(n.outputs[0]).dtype != ir::DType::f32 || g.producer(n.inputs[0]).quantizer) return false;
  return !ranges.contains(g.value(n.inputs[0]).name) || !ranges.contains(g.value(n.outputs[0]).name);
}

/// Seconds that the reference takes for an operator, on a processor of today: it computes one scalar at a time.
double seconds_of(const Graph& g, const Node& n) {
  constexpr double kMultiplyAdd = 2.5e-9, kElement = 2e-7, kLayerElement = 1e-6, kFunction = 2e-6;
  if (n.op == Op::input || n.op == Op::constant) return 0;
  const auto elements = [&](ValueId v) { return v == ir::kNone ? 0.0 : static_cast<double>(ir::count(g.type(v).shape)); };
  double results = 0;
  for (const ValueId v : n.outputs) results += elements(v);
  const ir::Shape& first = g.type(n.inputs[0]).shape;
  switch (n.op) {
    case Op::conv: {
      const double of_one = elements(n.inputs[1]) / static_cast<double>(std::max<std::int64_t>(g.type(n.inputs[1]).shape[0], 1));
      return results * (of_one * kMultiplyAdd + kLayerElement);
    }
    case Op::conv_transpose: {
      const double of_one = elements(n.inputs[1]) / static_cast<double>(std::max<std::int64_t>(g.type(n.inputs[1]).shape[0], 1));
      return elements(n.inputs[0]) * of_one * kMultiplyAdd + results * kLayerElement;
    }
    case Op::gemm:
    case Op::matmul: return results * (static_cast<double>(first.empty() ? 1 : first.back()) * kMultiplyAdd + kLayerElement);
    case Op::recurrent:  // every step of every sequence multiplies by both matrices
      return elements(n.inputs[0]) / static_cast<double>(std::max<std::int64_t>(first.empty() ? 1 : first.back(), 1)) *
             (elements(n.inputs[1]) + elements(n.inputs[2])) * kMultiplyAdd;
    case Op::relu:
    case Op::clip:
    case Op::cast:
    case Op::view: return results * kElement;
    case Op::max_pool: return results * kFunction;
    default: break;
  }
  if (ir::has_trait(n.op, ir::kMove)) return std::max(results, elements(n.inputs[0])) * kElement;
  return std::max(results, elements(n.inputs[0])) *
         (ir::has_trait(n.op, ir::kPointwise) && n.inputs.size() > 1 ? kElement : kFunction);
}

/// Walks the graph once and keeps each named tensor's largest magnitude.
class Walk {
 public:
  explicit Walk(const Graph& g)
      : g_(g), grids_(ir::find_grids(g)), have_(capacity()), readers_(capacity(), 0), counts_(capacity(), 0) {}

  Result<std::map<std::string, double>> run() {
    const std::vector<NodeId> order = g_.order();
    for (const NodeId id : order) {
      for (const ValueId v : g_.node(id).inputs) {
        if (v != ir::kNone) ++readers_[at(v)];
      }
    }
    std::mt19937_64 random(kSeed);
    std::vector<ir::Tensor> feeds = random_feeds(g_, random);
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      const ValueId v = g_.inputs[i];
      counts_[at(v)] = feeds[i].dtype() == ir::DType::f32;
      have_[at(v)] = std::move(feeds[i]);
    }
    for (const NodeId id : order) OCTAVO_CHECK(step(id));
    return std::move(large_);
  }

 private:
  [[nodiscard]] std::size_t capacity() const { return static_cast<std::size_t>(g_.value_capacity()); }
  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

  Status step(NodeId id) {
    const Node& n = g_.node(id);
    if (n.op == Op::input) return {};
    if (n.op == Op::constant) {
      if (!n.quantizer) {
        have_[at(n.outputs[0])] = n.payload;
        return {};
      }
      OCTAVO_TRY(auto decoded, reference::evaluate_between(g_, grids_, {}, {n.outputs[0]}));
      have_[at(n.outputs[0])] = std::move(decoded[0]);
      return {};
    }
    OCTAVO_CHECK(check_cancelled());
    std::vector<ir::Tensor> inputs;
    bool counts = is_layer(n.op) || (n.op == Op::gather && g_.is_constant(n.inputs[0]));
    for (const ValueId v : n.inputs) {
      inputs.push_back(v == ir::kNone ? ir::Tensor() : have_[at(v)]);
      counts = counts || (v != ir::kNone && counts_[at(v)]);
    }
    OCTAVO_TRY(auto results, reference::evaluate_node(g_, grids_, id, inputs));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId v = n.outputs[i];
      counts_[at(v)] = counts;
      if (counts) note(v, results[i]);
      if (readers_[at(v)] > 0) have_[at(v)] = std::move(results[i]);
    }
    for (const ValueId v : n.inputs) {
      if (v != ir::kNone && --readers_[at(v)] == 0) have_[at(v)] = {};
    }
    return {};
  }

  void note(ValueId v, const ir::Tensor& t) {
    const std::string& name = g_.value(v).name;
    if (name.empty() || t.empty() || t.dtype() != ir::DType::f32) return;
    double largest = 0;
    for (const float x : t.data<float>()) {
      if (std::isfinite(x)) largest = std::max(largest, std::abs(static_cast<double>(x)));
    }
    if (largest < kFloat16Limit) return;
    double& kept = large_[name];
    kept = std::max(kept, largest);
  }

  const Graph& g_;
  ir::Grids grids_;
  std::vector<ir::Tensor> have_;
  std::vector<int> readers_;
  std::vector<char> counts_;  ///< it depends on more than integer inputs and constants
  std::map<std::string, double> large_;
};

}  // namespace

std::vector<ir::Tensor> random_feeds(const Graph& g, std::mt19937_64& random) {
  std::vector<ir::Tensor> feeds;
  for (const ValueId v : g.inputs) {
    ir::Tensor t(g.type(v));
    if (t.dtype() == ir::DType::f32) {
      for (float& x : t.mutable_data<float>()) x = static_cast<float>(static_cast<double>(random() >> 40) / (1 << 23) - 1.0);
    } else if (ir::is_int8(t.dtype())) {
      for (std::byte& b : t.mutable_bytes()) b = static_cast<std::byte>(random() >> 56);
    }
    feeds.push_back(std::move(t));
  }
  return feeds;
}

Result<std::shared_ptr<const SampledMagnitudes>> magnitudes_of(const Graph& g, const PlanOptions& options) {
  if (!options.allowed.contains(LayerType::float16) || !options.model_types.empty()) return nullptr;
  const std::vector<NodeId> order = g.order();
  if (std::none_of(order.begin(), order.end(), [&](NodeId id) { return unknown(g, g.node(id), options.ranges); })) return nullptr;
  auto out = std::make_shared<SampledMagnitudes>();
  for (const NodeId id : order) out->seconds += seconds_of(g, g.node(id));
  if (out->seconds > kMostEvaluation) {
    out->found = SampledMagnitudes::Found::too_long;
    return out;
  }
  OCTAVO_CHECK(begin_step("plan: magnitudes on one random input, for float16"));
  auto found = Walk(g).run();
  if (found) {
    out->large = std::move(*found);
    return out;
  }
  OCTAVO_CHECK(begin_step("plan"));  // fails where the caller cancelled
  out->found = SampledMagnitudes::Found::failed;
  out->error = found.error().message;
  return out;
}

}  // namespace octavo::plan
