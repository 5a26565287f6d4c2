#include "ir/graph.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <utility>

#include "ir/output_sizes.h"

namespace octavo::ir {
namespace {

constexpr std::array kOps{
#define OP(id, text, min_in, max_in, traits) OpInfo{Op::id, text, min_in, max_in, traits},
#include "ir/ops.def"
};

template <class T>
const T* find_attr(const Attrs& attrs, std::string_view key) {
  const auto it = attrs.find(key);
  return it == attrs.end() ? nullptr : std::get_if<T>(&it->second);
}

}  // namespace

OCTAVO_DEFINE_OUT_OF_LINE(Value);
OCTAVO_DEFINE_OUT_OF_LINE(Node);
OCTAVO_DEFINE_OUT_OF_LINE(Graph);

const OpInfo& info(Op op) {
  return kOps[static_cast<std::size_t>(op)];
}

std::optional<Op> find_op(std::string_view name) {
  for (const OpInfo& row : kOps) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

std::int64_t get_int(const Attrs& attrs, std::string_view key, std::int64_t fallback) {
  const auto* v = find_attr<std::int64_t>(attrs, key);
  return v ? *v : fallback;
}
double get_float(const Attrs& attrs, std::string_view key, double fallback) {
  if (const auto* v = find_attr<double>(attrs, key)) return *v;
  const auto* i = find_attr<std::int64_t>(attrs, key);
  return i ? static_cast<double>(*i) : fallback;
}
std::string get_text(const Attrs& attrs, std::string_view key, std::string_view fallback) {
  const auto* v = find_attr<std::string>(attrs, key);
  return v ? *v : std::string(fallback);
}
std::vector<std::int64_t> get_ints(const Attrs& attrs, std::string_view key) {
  const auto* v = find_attr<std::vector<std::int64_t>>(attrs, key);
  return v ? *v : std::vector<std::int64_t>{};
}
std::vector<double> get_floats(const Attrs& attrs, std::string_view key) {
  const auto* v = find_attr<std::vector<double>>(attrs, key);
  return v ? *v : std::vector<double>{};
}

NodeId Graph::add_node(Node node, const std::vector<TensorType>& types, const std::vector<std::string>& names) {
  const auto id = static_cast<NodeId>(nodes_.size());
  node.outputs.clear();
  for (std::size_t i = 0; i < types.size(); ++i) {
    Value v;
    v.type = types[i];
    v.producer = id;
    v.output_index = static_cast<int>(i);
    if (i < names.size()) v.name = names[i];
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(v));
  }
  nodes_.push_back(std::move(node));
  if (notes_.on) {
    note(id);
    notes_.suspects.push_back(id);  // until somebody reads it
  }
  touch();
  return id;
}

ValueId Graph::add_input(std::string value_name, TensorType type) {
  Node n;
  n.op = Op::input;
  n.name = value_name;
  const NodeId id = add_node(std::move(n), {std::move(type)}, {std::move(value_name)});
  inputs.push_back(node(id).outputs[0]);
  return inputs.back();
}

ValueId Graph::add_constant(Tensor payload, std::string value_name, std::optional<Quantizer> q) {
  Node n;
  n.op = Op::constant;
  n.name = value_name;
  TensorType type = payload.type();
  if (q) type.dtype = DType::f32;  // a coded constant is read as the float values its codes stand for
  n.payload = std::move(payload);
  n.quantizer = std::move(q);
  return node(add_node(std::move(n), {type}, {std::move(value_name)})).outputs[0];
}

ValueId Graph::add(Op op, std::vector<ValueId> ins, TensorType type, Attrs attrs, std::set<std::string> origin,
                   std::string value_name) {
  Node n;
  n.op = op;
  n.inputs = std::move(ins);
  n.attrs = std::move(attrs);
  n.origin = std::move(origin);
  n.name = value_name;
  return node(add_node(std::move(n), {std::move(type)}, {std::move(value_name)})).outputs[0];
}

ValueId Graph::add_quantizer(Op op, ValueId input, Quantizer q, TensorType type, std::set<std::string> origin,
                             std::string value_name) {
  Node n;
  n.op = op;
  n.inputs = {input};
  n.quantizer = std::move(q);
  n.origin = std::move(origin);
  n.name = value_name;
  return node(add_node(std::move(n), {std::move(type)}, {std::move(value_name)})).outputs[0];
}

void Graph::replace_uses(ValueId from, ValueId to, bool join_origin) {
  if (from == to) return;
  const NodeId old_producer = value(from).producer;
  const NodeId new_producer = value(to).producer;
  for (const auto& [user, slot] : std::vector(users(from))) node(user).inputs[static_cast<std::size_t>(slot)] = to;
  for (ValueId& out : outputs) {
    if (out == from) out = to;
  }
  if (join_origin && old_producer != new_producer && node(new_producer).op != Op::input && node(new_producer).op != Op::constant) {
    node(new_producer).origin.insert(node(old_producer).origin.begin(), node(old_producer).origin.end());
  }
  if (value(to).name.empty()) value(to).name = value(from).name;
  touch();
}

const std::string& Graph::nearest_name(ValueId v) const {
  const auto keeps_elements = [](Op op) { return op == Op::reshape || op == Op::transpose || op == Op::cast || op == Op::view; };
  for (ValueId at = v;;) {
    if (!value(at).name.empty()) return value(at).name;
    const Node& made_by = producer(at);
    if (!keeps_elements(made_by.op)) break;
    at = made_by.inputs[0];
  }
  for (ValueId at = v;;) {
    const auto& readers = users(at);
    const auto next = std::find_if(readers.begin(), readers.end(), [&](const auto& r) { return keeps_elements(node(r.first).op); });
    if (next == readers.end()) return value(v).name;
    at = node(next->first).outputs[0];
    if (!value(at).name.empty()) return value(at).name;
  }
}

int Graph::output_uses(ValueId v) const {
  return static_cast<int>(std::count(outputs.begin(), outputs.end(), v));
}

std::vector<NodeId> Graph::order() const {
  std::vector<NodeId> result;
  std::vector<char> state;  // 1: on the stack, 2: done
  std::vector<std::pair<NodeId, std::size_t>> stack;
  std::multimap<NodeId, NodeId> counts_of;  // by a node whose result they are made of
  const auto finish = [&](NodeId id) {
    state[static_cast<std::size_t>(id)] = 2;
    result.push_back(id);
    const auto [first, last] = counts_of.equal_range(id);
    for (auto c = first; c != last; ++c) {  // at once: what it is the condition of may come next
      const std::vector<ValueId>& made_of = node(c->second).inputs;
      const bool ready = std::all_of(made_of.begin(), made_of.end(), [&](ValueId v) {
        return v == kNone || state[static_cast<std::size_t>(value(v).producer)] == 2;
      });
      if (!ready || state[static_cast<std::size_t>(c->second)] != 0) continue;
      state[static_cast<std::size_t>(c->second)] = 2;
      result.push_back(c->second);
    }
  };
  /// Of "a and b" the one that is a count comes first: the other one may be left out.
  const auto input_of = [&](const Node& n, std::size_t k) {
    const bool turned = n.op == Op::logical_and && counts_of.contains(value(n.inputs[1]).producer) &&
                        !counts_of.contains(value(n.inputs[0]).producer);
    return n.inputs[turned ? 1 - k : k];
  };
  const auto visit = [&](NodeId root) {
    if (state[static_cast<std::size_t>(root)] != 0) return;
    stack.emplace_back(root, 0);
    state[static_cast<std::size_t>(root)] = 1;
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const Node& n = node(id);
      if (next < n.inputs.size()) {
        const ValueId in = input_of(n, next++);
        if (in == kNone) continue;
        const NodeId p = value(in).producer;
        if (state[static_cast<std::size_t>(p)] == 0) {
          state[static_cast<std::size_t>(p)] = 1;
          stack.emplace_back(p, 0);
        }
      } else {
        const NodeId done = id;
        stack.pop_back();
        finish(done);
      }
    }
  };
  const auto visit_all = [&](const std::vector<NodeId>& first) {
    result.clear();
    state.assign(nodes_.size(), 0);
    for (const ValueId in : inputs) visit(value(in).producer);
    for (const NodeId id : first) visit(id);
    for (const ValueId out : outputs) visit(value(out).producer);
  };
  visit_all({});
  // What stands behind a count must know it before it runs: counts come first, each as soon as what it is made of is there.
  if (std::vector<NodeId> counts = count_nodes(*this); !counts.empty()) {
    std::vector<std::size_t> place(nodes_.size(), 0);
    for (std::size_t i = 0; i < result.size(); ++i) place[static_cast<std::size_t>(result[i])] = i;
    std::stable_sort(counts.begin(), counts.end(),
                     [&](NodeId x, NodeId y) { return place[static_cast<std::size_t>(x)] < place[static_cast<std::size_t>(y)]; });
    for (const NodeId c : counts) {
      for (const ValueId v : node(c).inputs) {
        if (v != kNone) counts_of.emplace(value(v).producer, c);
      }
    }
    visit_all(counts);
  }
  return result;
}

ValueId add_inferred(Graph& g, Op op, std::vector<ValueId> inputs, Attrs attrs, std::set<std::string> origin,
                     std::string value_name) {
  Node n;
  n.op = op;
  n.inputs = std::move(inputs);
  n.attrs = std::move(attrs);
  n.origin = std::move(origin);
  n.name = value_name;
  const auto types = infer(g, n);
  assert(types && "add_inferred: the rewrite built an ill-typed node");
  return g.node(g.add_node(std::move(n), *types, {std::move(value_name)})).outputs[0];
}

}  // namespace octavo::ir
