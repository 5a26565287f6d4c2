// drop-identity:  f(x) ==> x, where f changes nothing
//   Why    exporters leave such nodes behind; each would be a copy of its tensor.
//   Exact  bit for bit: every element is passed on unchanged.
//   Needs  transpose in order, reshape or expand to the same shape, slice of everything, tile once, pad by 0, concat of one,
//          nearest resize of every index to itself, cast to the same type, clip to -inf..inf, or relu of relu.
//   Order  first, so that the other rules see fewer nodes.
#include <cmath>

#include "passes/rules.h"
#include "quant/codes.h"

namespace octavo::passes {
namespace {

using ir::Op;

bool counts_up(const std::vector<std::int64_t>& list, std::int64_t size) {
  if (static_cast<std::int64_t>(list.size()) != size) return false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

bool all(const std::vector<std::int64_t>& list, std::int64_t value) {
  for (const std::int64_t v : list) {
    if (v != value) return false;
  }
  return true;
}

bool passes_on(const ir::Graph& g, const ir::Node& n) {
  const ir::TensorType& x = g.type(n.inputs[0]);
  switch (n.op) {
    case Op::transpose: return counts_up(ir::get_ints(n.attrs, "perm"), static_cast<std::int64_t>(x.shape.size()));
    case Op::reshape:
    case Op::expand:
    case Op::cast: return g.type(n.outputs[0]) == x;
    case Op::slice: return g.type(n.outputs[0]) == x && all(ir::get_ints(n.attrs, "steps"), 1);
    case Op::tile: return all(ir::get_ints(n.attrs, "repeats"), 1);
    case Op::pad: return all(ir::get_ints(n.attrs, "pads"), 0);
    case Op::concat: return n.inputs.size() == 1;
    case Op::resize_nearest:
      for (std::size_t k = 0; k < x.shape.size(); ++k) {
        const std::string key = "index" + std::to_string(k);
        if (n.attrs.contains(key) && !counts_up(ir::get_ints(n.attrs, key), x.shape[k])) return false;
      }
      return true;
    case Op::clip:
      return ir::get_float(n.attrs, "min", -INFINITY) == -INFINITY && ir::get_float(n.attrs, "max", INFINITY) == INFINITY;
    case Op::relu: return g.producer(n.inputs[0]).op == Op::relu;
    default: return false;
  }
}

struct DropIdentity final : rewrite::Rule {
  std::string_view name() const override { return "drop-identity"; }
  std::string_view equation() const override { return "f(x) ==> x, where f changes nothing"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.inputs.empty() || n.inputs[0] == ir::kNone || !passes_on(g, n)) return rewrite::no_match();
    // What goes stands for its readers' ONNX nodes too, if one of them was divided (a MatMul has a reshape in front): these are no nodes of the producer, whose
    // precision rules of theirs would decide.
    for (const auto& [user, slot] : g.users(n.outputs[0])) {
      for (const std::string& name : g.node(user).origin) n.origin.erase(name);
    }
    quant::substitute(g, n.outputs[0], n.inputs[0]);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_identity() {
  static const DropIdentity rule;
  return rule;
}

}  // namespace octavo::passes
