#include "ir/canonical.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/hash.h"

namespace octavo::ir {
namespace {

std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool is_default(Op op, std::string_view key, const Attr& value) {
  const auto all = [&](std::int64_t v) {
    const auto* list = std::get_if<std::vector<std::int64_t>>(&value);
    return list != nullptr && std::all_of(list->begin(), list->end(), [&](std::int64_t x) { return x == v; });
  };
  const auto one = [&](std::int64_t v) {
    const auto* x = std::get_if<std::int64_t>(&value);
    return x != nullptr && *x == v;
  };
  const auto real = [&](double v) {
    const auto* x = std::get_if<double>(&value);
    return x != nullptr && std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(v);
  };
  const auto text = [&](std::string_view v) {
    const auto* x = std::get_if<std::string>(&value);
    return x != nullptr && *x == v;
  };
  if (key == "strides" || key == "dilations" || key == "steps" || key == "repeats") return all(1);
  if (key == "pads" || key == "output_padding") return all(0);
  if (key == "group" || key == "keepdims" || key == "offset_group") return one(1);
  if (key == "select_last_index" || key == "count_include_pad" || key == "batch_dims" || key == "column_major") return one(0);
  if (key == "mode")
    return (op == Op::pad && text("constant")) || ((op == Op::depth_to_space || op == Op::space_to_depth) && text("DCR"));
  if (key == "approximate") return text("none");
  if (key == "axis" && op == Op::gather_nd) return one(0);  // it has none
  if (op == Op::clip) return key == "min" ? real(-INFINITY) : key == "max" && real(INFINITY);
  if (op == Op::pad && key == "value") return real(0.0);
  if (op == Op::cast || op == Op::bit_cast)
    return key == "saturate" ? one(1) : key == "held" ? one(0) : key == "round_mode" && text("up");
  return false;
}

/// Hash of everything a node is, its operands given by `operand` (already in canonical order).
std::uint64_t hash_node(const Graph& g, const Node& n, const std::vector<std::uint64_t>& operands) {
  std::uint64_t h = hash64(name_of(n.op));
  h = hash_attrs(without_defaults(n.op, n.attrs), h);
  if (n.quantizer) h = hash_quantizer(*n.quantizer, h);
  if (n.op == Op::constant) h = hash_tensor(n.payload, h);
  for (const ValueId v : n.outputs) {  // the stored type: a coded constant may be seen as f32 or f16
    h = mix(h, static_cast<std::uint64_t>(g.type(v).dtype));
    for (const std::int64_t d : g.type(v).shape) h = mix(h, static_cast<std::uint64_t>(d));
  }
  for (const std::uint64_t operand : operands) h = mix(h, operand);
  return mix(h, operands.size());
}

constexpr std::uint64_t kAbsent = 0x6162736e74ULL;

/// Hash of the node's result 0, from the hashes of its operands; sorts nothing in the graph.
std::uint64_t hash_at(const Graph& g, NodeId id, const std::vector<std::uint64_t>& of, const std::vector<int>& input_position) {
  const Node& n = g.node(id);
  if (n.op == Op::input) return mix(hash_node(g, n, {}), static_cast<std::uint64_t>(input_position[idx(id)]));
  std::vector<std::uint64_t> operands;
  for (const ValueId v : n.inputs) operands.push_back(v == kNone ? kAbsent : of[idx(v)]);
  if (commutes(n.op)) std::sort(operands.begin(), operands.end());
  return hash_node(g, n, operands);
}

std::vector<int> input_positions(const Graph& g) {
  std::vector<int> position(idx(g.node_capacity()), -1);
  for (std::size_t i = 0; i < g.inputs.size(); ++i) position[idx(g.value(g.inputs[i]).producer)] = static_cast<int>(i);
  return position;
}

void set_outputs(const Graph& g, NodeId id, std::uint64_t h, std::vector<std::uint64_t>& of) {
  const Node& n = g.node(id);
  for (std::size_t i = 0; i < n.outputs.size(); ++i) of[idx(n.outputs[i])] = mix(h, i);
}

/// What makes a value, as far as a reader nearby can tell: operators towards the inputs, without views and scales. Commutative
/// operands are ordered by this first, so that a rounding or another scale somewhere does not turn operands round in regions that
/// it has nothing to do with: their keys, hence their measured times, stay.
std::vector<std::int64_t> trace(const Graph& g, ValueId v) {
  constexpr int kSteps = 8;
  std::vector<std::int64_t> out;
  for (int step = 0; step < kSteps && v != kNone;) {
    const Node& n = g.producer(v);
    if (n.op != Op::view) {
      out.push_back(static_cast<std::int64_t>(n.op));
      out.push_back(count(g.type(v).shape));
      ++step;
    }
    v = n.inputs.empty() ? kNone : n.inputs[0];
  }
  return out;
}

bool same_node(const Graph& g, const Node& a, const Node& b) {
  if (a.op != b.op || a.inputs != b.inputs || a.outputs.size() != b.outputs.size() || a.quantizer != b.quantizer) return false;
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    if (g.type(a.outputs[i]) != g.type(b.outputs[i])) return false;
  }
  // Bits, not values: 0 and -0 differ, NaN equals itself.
  return hash_attrs(without_defaults(a.op, a.attrs)) == hash_attrs(without_defaults(b.op, b.attrs)) &&
         same_bytes(a.payload, b.payload);
}

}  // namespace

bool commutes(Op op) {
  return has_trait(op, kCommute) && op != Op::max && op != Op::min;
}

Attrs without_defaults(Op op, const Attrs& attrs) {
  Attrs out;
  for (const auto& [key, value] : attrs) {
    if (!is_default(op, key, value)) out.emplace(key, value);
  }
  return out;
}

std::uint64_t hash_attrs(const Attrs& attrs, std::uint64_t seed) {
  std::uint64_t h = mix(seed, attrs.size());
  for (const auto& [key, value] : attrs) {
    h = mix(hash64(key, h), value.index());
    if (const auto* i = std::get_if<std::int64_t>(&value)) h = mix(h, static_cast<std::uint64_t>(*i));
    if (const auto* d = std::get_if<double>(&value)) h = mix(h, std::bit_cast<std::uint64_t>(*d));
    if (const auto* s = std::get_if<std::string>(&value)) h = hash64(*s, h);
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
      h = hash64(std::as_bytes(std::span(*list)), mix(h, list->size()));
    if (const auto* list = std::get_if<std::vector<double>>(&value))
      h = hash64(std::as_bytes(std::span(*list)), mix(h, list->size()));
  }
  return h;
}

std::uint64_t hash_quantizer(const Quantizer& q, std::uint64_t seed) {
  std::uint64_t h = hash64(name_of(q.type), seed);
  h = hash64(name_of(q.arith), h);
  h = mix(h, static_cast<std::uint64_t>(static_cast<std::int64_t>(q.axis)));
  h = hash64(std::as_bytes(std::span(q.scale)), mix(h, q.scale.size()));
  return hash64(std::as_bytes(std::span(q.zero_point)), mix(h, q.zero_point.size()));
}

std::uint64_t hash_tensor(const Tensor& t, std::uint64_t seed) {
  std::uint64_t h = hash64(name_of(t.dtype()), seed);
  for (const std::int64_t d : t.shape()) h = mix(h, static_cast<std::uint64_t>(d));
  return t.empty() ? h : hash64(t.bytes(), mix(h, t.shape().size()));
}

std::vector<std::uint64_t> value_hashes(const Graph& g) {
  std::vector<std::uint64_t> of(idx(g.value_capacity()), 0);
  const std::vector<int> positions = input_positions(g);
  for (const NodeId id : g.order()) set_outputs(g, id, hash_at(g, id, of, positions), of);
  return of;
}

int number_values(Graph& g) {
  std::vector<std::uint64_t> of(idx(g.value_capacity()), 0);
  const std::vector<int> positions = input_positions(g);
  std::unordered_map<std::uint64_t, std::vector<NodeId>> seen;
  int merged = 0;
  for (const NodeId id : g.order()) {
    Node& n = g.node(id);
    const std::uint64_t h = hash_at(g, id, of, positions);
    set_outputs(g, id, h, of);
    if (commutes(n.op) && n.inputs.size() == 2 &&
        std::pair(trace(g, n.inputs[1]), of[idx(n.inputs[1])]) < std::pair(trace(g, n.inputs[0]), of[idx(n.inputs[0])])) {
      std::swap(n.inputs[0], n.inputs[1]);
      g.touch();
    }
    if (n.op == Op::input) continue;
    std::vector<NodeId>& candidates = seen[h];
    const auto counterpart =
        std::find_if(candidates.begin(), candidates.end(), [&](NodeId other) { return same_node(g, g.node(other), n); });
    if (counterpart == candidates.end()) {
      candidates.push_back(id);
      continue;
    }
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId kept = g.node(*counterpart).outputs[i];
      std::optional<Quantizer>& range = g.value(kept).range;  // the wider of two ranges, whichever node comes first
      if (const auto other = g.value(n.outputs[i]).range) range = range ? Quantizer(wider(*range, *other)) : *other;
      g.replace_uses(n.outputs[i], kept);
    }
    ++merged;
  }
  if (merged > 0) g.remove_dead();
  return merged;
}

std::uint64_t graph_hash(const Graph& g) {
  const std::vector<std::uint64_t> of = value_hashes(g);
  std::uint64_t h = mix(g.inputs.size(), g.outputs.size());
  for (const ValueId v : g.inputs) h = mix(h, of[idx(v)]);
  for (const ValueId v : g.outputs) h = mix(h, of[idx(v)]);
  return h;
}

Graph compact(const Graph& g) {
  Graph out;
  out.name = g.name;
  std::vector<ValueId> renamed(idx(g.value_capacity()), kNone);
  for (const NodeId id : g.order()) {
    Node n = g.node(id);
    const std::vector<ValueId> old_outputs = n.outputs;
    for (ValueId& v : n.inputs) v = v == kNone ? kNone : renamed[idx(v)];
    std::vector<TensorType> types;
    for (const ValueId v : old_outputs) types.push_back(g.type(v));
    const NodeId copy = out.add_node(std::move(n), types);
    for (std::size_t i = 0; i < old_outputs.size(); ++i) {
      const ValueId v = out.node(copy).outputs[i];
      out.value(v).name = g.value(old_outputs[i]).name;
      out.value(v).range = g.value(old_outputs[i]).range;
      renamed[idx(old_outputs[i])] = v;
    }
  }
  for (const ValueId v : g.inputs) out.inputs.push_back(renamed[idx(v)]);
  for (const ValueId v : g.outputs) out.outputs.push_back(renamed[idx(v)]);
  out.output_names = g.output_names;
  out.sizes = g.sizes;
  return out;
}

}  // namespace octavo::ir
