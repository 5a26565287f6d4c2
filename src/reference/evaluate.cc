// Dispatch, and walks over whole graphs and parts of them.
#include "reference/evaluate.h"

#include <fmt/format.h>

#include "base/task.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

Result<Tensors> dispatch(const Args& a) {
  switch (a.n.op) {
    case Op::view:
    case Op::quantize:
    case Op::dequantize:
    case Op::quantize_rt:
    case Op::dequantize_rt:
    case Op::dynamic_quantize: return eval_quantization(a);
    case Op::conv:
    case Op::conv_transpose:
    case Op::gemm: return eval_weighted(a);
    case Op::matmul: return eval_matmul(a);
    case Op::max_pool:
    case Op::max_pool_index:
    case Op::avg_pool: return eval_pool(a);
    case Op::scatter:
    case Op::top_k:
    case Op::cumulate:
    case Op::bitwise:
    case Op::bit_cast:
    case Op::math:
    case Op::non_zero:
    case Op::det: return eval_index(a);
    case Op::grid_sample:
    case Op::roi_align:
    case Op::deform_conv:
    case Op::non_max_suppression: return eval_sample(a);
    case Op::recurrent: return eval_recurrent(a);
    case Op::reduce_mean:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min:
    case Op::reduce_prod:
    case Op::reduce_l2:
    case Op::arg_max: return eval_reduce(a);
    case Op::softmax:
    case Op::log_softmax: return eval_softmax(a);
    case Op::instance_norm:
    case Op::layer_norm:
    case Op::lrn: return eval_norm(a);
    case Op::resize_linear:
    case Op::resize_cubic: return eval_resize(a);
    case Op::cast: return eval_cast(a);
    case Op::affine: return eval_affine(a);
    case Op::gather:
    case Op::gather_elements:
    case Op::gather_nd: return eval_gather(a);
    case Op::input:
    case Op::constant: return a.error(ErrorKind::internal, "an input or constant is not computed");
    default: break;
  }
  if (a.n.op == Op::where || ir::has_trait(a.n.op, ir::kMove)) return eval_move(a);
  return ir::info(a.n.op).max_inputs == 1 ? eval_unary(a) : eval_binary(a);
}

/// A constant as its readers see it.
Tensor constant_value(const ir::Graph& g, ir::ValueId v) {
  const ir::Node& n = g.producer(v);
  return n.quantizer ? decode(n.payload, *n.quantizer, g.type(v).dtype) : n.payload;
}

/// The nodes needed to compute `wanted` when `have` values are known, producers first.
std::vector<ir::NodeId> needed(const ir::Graph& g, const std::vector<ir::ValueId>& wanted, const std::vector<Tensor>& have) {
  std::vector<char> seen(idx(g.node_capacity()), 0);
  std::vector<ir::NodeId> order;
  std::vector<std::pair<ir::NodeId, std::size_t>> stack;
  const auto visit = [&](ir::ValueId v) {
    if (v == ir::kNone || !have[idx(v)].empty() || seen[idx(g.value(v).producer)]) return;
    seen[idx(g.value(v).producer)] = 1;
    stack.emplace_back(g.value(v).producer, 0);
  };
  for (const ir::ValueId root : wanted) {
    visit(root);
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      if (next < g.node(id).inputs.size()) {
        visit(g.node(id).inputs[next++]);
      } else {
        order.push_back(id);
        stack.pop_back();
      }
    }
  }
  return order;
}

/// Computes `wanted` from `have` (indexed by value); a value is forgotten after its last reader.
Result<Tensors> walk(const ir::Graph& g, const ir::Grids& grids, std::vector<Tensor> have, const std::vector<ir::ValueId>& wanted) {
  const std::vector<ir::NodeId> order = needed(g, wanted, have);
  std::vector<int> readers(idx(g.value_capacity()), 0);
  for (const ir::NodeId id : order) {
    for (const ir::ValueId v : g.node(id).inputs) {
      if (v != ir::kNone) ++readers[idx(v)];
    }
  }
  for (const ir::ValueId v : wanted) ++readers[idx(v)];
  for (const ir::NodeId id : order) {
    const ir::Node& n = g.node(id);
    if (n.op == Op::input) {
      return fail(ErrorKind::bad_input,
                  fmt::format("evaluating: input \"{}\" is needed but not given", g.value(n.outputs[0]).name));
    }
    if (n.op == Op::constant) {
      have[idx(n.outputs[0])] = constant_value(g, n.outputs[0]);
      continue;
    }
    OCTAVO_CHECK(check_cancelled());
    Tensors inputs;
    for (const ir::ValueId v : n.inputs) inputs.push_back(v == ir::kNone ? Tensor{} : have[idx(v)]);
    OCTAVO_TRY(Tensors results, evaluate_node(g, grids, id, inputs));
    for (std::size_t i = 0; i < results.size(); ++i) have[idx(n.outputs[i])] = std::move(results[i]);
    for (const ir::ValueId v : n.inputs) {
      if (v != ir::kNone && --readers[idx(v)] == 0) have[idx(v)] = Tensor{};
    }
  }
  Tensors out;
  for (const ir::ValueId v : wanted) out.push_back(have[idx(v)]);
  return out;
}

Status check_type(const ir::Graph& g, ir::ValueId v, const Tensor& t) {
  if (!t.empty() && t.type() == g.type(v)) return {};
  return fail(ErrorKind::bad_input, fmt::format("evaluating: value \"{}\" is {}, given {}", g.value(v).name,
                                                ir::to_string(g.type(v)), t.empty() ? "nothing" : ir::to_string(t.type())));
}

}  // namespace

Result<Tensors> evaluate_node(const ir::Graph& g, const ir::Grids& grids, ir::NodeId node, const Tensors& inputs) {
  const ir::Node& n = g.node(node);
  OCTAVO_TRY(const ir::Facts facts, ir::facts_of(g, n));
  return dispatch(Args{g, grids, node, n, facts, inputs});
}

Result<Tensors> evaluate(const ir::Graph& g, const Tensors& feeds) {
  if (feeds.size() != g.inputs.size()) {
    return fail(ErrorKind::bad_input, fmt::format("evaluating: the graph has {} inputs, given {}", g.inputs.size(), feeds.size()));
  }
  std::vector<Tensor> have(idx(g.value_capacity()));
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    OCTAVO_CHECK(check_type(g, g.inputs[i], feeds[i]));
    have[idx(g.inputs[i])] = feeds[i];
  }
  return walk(g, ir::find_grids(g), std::move(have), g.outputs);
}

Result<Tensors> evaluate_between(const ir::Graph& g, const std::map<ir::ValueId, Tensor>& known,
                                 const std::vector<ir::ValueId>& wanted) {
  return evaluate_between(g, ir::find_grids(g), known, wanted);
}

Result<Tensors> evaluate_between(const ir::Graph& g, const ir::Grids& grids, const std::map<ir::ValueId, Tensor>& known,
                                 const std::vector<ir::ValueId>& wanted) {
  std::vector<Tensor> have(idx(g.value_capacity()));
  for (const auto& [v, t] : known) {
    OCTAVO_CHECK(check_type(g, v, t));
    have[idx(v)] = t;
  }
  return walk(g, grids, std::move(have), wanted);
}

}  // namespace octavo::reference
