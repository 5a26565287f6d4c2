#include "plan/layout/gates.h"

#include <algorithm>

#include "ir/output_sizes.h"

namespace octavo::plan {

using ir::Node;
using ir::Op;
using ir::ValueId;

GateFinder::GateFinder(const ir::Graph& g, const std::set<ValueId>& whole)
    : g_(g), gates_(static_cast<std::size_t>(g.value_capacity())) {
  for (const ir::OutputSize& s : g.sizes) {
    if (!ir::is_counter(s)) continue;
    const Node& n = g.producer(g.outputs[static_cast<std::size_t>(s.count)]);
    if (n.op != Op::cast || g.type(n.inputs[0]).dtype != ir::DType::boolean) continue;
    outputs_.emplace(plain(n.inputs[0], true), s.count);
  }
  if (outputs_.empty()) return;
  const auto join = [&](ValueId v, const Gate& gate) {
    if (v == ir::kNone || g.is_constant(v)) return;
    Gate& own = gates_[static_cast<std::size_t>(v)];
    own = joined(own, gate);
  };
  for (const ValueId v : whole) join(v, {Gate::Kind::always});
  for (const ValueId v : g.outputs) join(v, {Gate::Kind::always});
  const std::vector<ir::NodeId> order = g.order();
  for (std::size_t i = order.size(); i-- > 0;) {
    const Node& n = g.node(order[i]);
    Gate own;
    for (const ValueId v : n.outputs) own = joined(own, gates_[static_cast<std::size_t>(v)]);
    if (own.kind == Gate::Kind::unread) continue;
    for (std::size_t k = 0; k < n.inputs.size(); ++k) join(n.inputs[k], of_operand(n, k, own));
  }
}

GateFinder::Condition GateFinder::plain(ValueId v, bool holds) const {
  while (g_.producer(v).op == Op::logical_not) v = g_.producer(v).inputs[0], holds = !holds;
  return {v, holds};
}

/// The outermost condition holds for all that is inside. Of "a and b" one operand matters only where the other one holds: the one that is published, and of two
/// the first.
GateFinder::Gate GateFinder::of_operand(const Node& n, std::size_t i, const Gate& own) const {
  if (own.kind != Gate::Kind::always) return own;
  const auto one = [&](ValueId v) { return ir::count(g_.type(v).shape) == 1; };
  const auto published = [&](ValueId v) { return outputs_.contains(plain(v, true)); };
  if (n.op == Op::where && i > 0 && one(n.inputs[0])) {
    const Condition condition = plain(n.inputs[0], i == 1);
    if (outputs_.contains(condition)) return {Gate::Kind::some, condition};
  }
  if (n.op == Op::logical_and && one(n.outputs[0])) {
    const ValueId other = n.inputs[1 - i];
    if (published(other) && (i == 1 || !published(n.inputs[i]))) return {Gate::Kind::some, plain(other, true)};
  }
  return own;
}

GateFinder::Gate GateFinder::joined(const Gate& a, const Gate& b) const {
  if (a == b || b.kind == Gate::Kind::unread || a.kind == Gate::Kind::always) return a;
  if (a.kind == Gate::Kind::unread || b.kind == Gate::Kind::always) return b;
  if (implies(a.condition, b.condition)) return b;
  if (implies(b.condition, a.condition)) return a;
  return {Gate::Kind::always};
}

/// A condition of a later step is "this one, and ...".
bool GateFinder::implies(const Condition& a, const Condition& b) const {
  std::vector<Condition> open{a};
  std::set<Condition> seen;
  while (!open.empty()) {
    const Condition c = open.back();
    open.pop_back();
    if (c == b) return true;
    const Node& n = g_.producer(c.first);
    if (!c.second || n.op != Op::logical_and || !seen.insert(c).second) continue;
    for (const ValueId v : n.inputs) open.push_back(plain(v, true));
  }
  return false;
}

std::optional<int> GateFinder::output_of(const std::vector<ValueId>& values) const {
  if (outputs_.empty()) return std::nullopt;
  Gate gate;
  for (const ValueId v : values) {
    if (v == ir::kNone) return std::nullopt;
    gate = joined(gate, gates_[static_cast<std::size_t>(v)]);
  }
  if (gate.kind != Gate::Kind::some) return std::nullopt;
  return outputs_.at(gate.condition);
}

bool GateFinder::selects(const Node& n) const {
  if (n.op != Op::where || outputs_.empty()) return false;
  return outputs_.contains(plain(n.inputs[0], true)) || outputs_.contains(plain(n.inputs[0], false));
}

}  // namespace octavo::plan
