// The graph: SSA values, nodes, provenance. One output of one node, or a graph input, defines each value.
//
// Q/DQ pairs are `view` nodes: value numbering makes two equal views of one value the same node, so "this consumer reads v
// through q" is simply "this consumer's input is view(v, q)". The normal form (quant/) moves views towards the producers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/out_of_line.h"
#include "base/result.h"
#include "ir/quantizer.h"
#include "ir/tensor.h"

namespace octavo::ir {

enum class Op : std::uint16_t {
#define OP(id, text, min_in, max_in, traits) id,
#include "ir/ops.def"
};

enum : unsigned { kPointwise = 1, kMove = 2, kCommute = 4, kAnchor = 8, kImages = 16 };

struct OpInfo {
  Op op;
  std::string_view name;
  int min_inputs, max_inputs;  ///< max -1: any number
  unsigned traits;
};
[[nodiscard]] const OpInfo& info(Op op);
[[nodiscard]] std::optional<Op> find_op(std::string_view name);
[[nodiscard]] inline std::string_view name_of(Op op) {
  return info(op).name;
}
[[nodiscard]] inline bool has_trait(Op op, unsigned trait) {
  return (info(op).traits & trait) != 0;
}

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr ValueId kNone = -1;  ///< an absent optional input

/// Attribute values. Float attributes are f32-exact values held in double.
using Attr = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;
using Attrs = std::map<std::string, Attr, std::less<>>;

[[nodiscard]] std::int64_t get_int(const Attrs& attrs, std::string_view key, std::int64_t fallback = 0);
[[nodiscard]] double get_float(const Attrs& attrs, std::string_view key, double fallback = 0);
[[nodiscard]] std::string get_text(const Attrs& attrs, std::string_view key, std::string_view fallback = "");
[[nodiscard]] std::vector<std::int64_t> get_ints(const Attrs& attrs, std::string_view key);  ///< empty if absent
[[nodiscard]] std::vector<double> get_floats(const Attrs& attrs, std::string_view key);

struct Value {
  std::string name;  ///< ONNX tensor name where there is one; never part of a hash
  TensorType type;
  NodeId producer = kNone;  ///< every live value has one (graph inputs: an `input` node)
  int output_index = 0;
  std::optional<Quantizer> range;  ///< permitted view (implicit quantization): it may be read through this; per tensor, 8 bits, f32
  OCTAVO_OUT_OF_LINE(Value);
};

/// One operator application. `origin` is the set of ONNX node names it stands for (provenance); rewrites take the union.
struct Node {
  Op op = Op::input;
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::optional<Quantizer> quantizer;  ///< view, quantize, dequantize, coded constant
  Tensor payload;                      ///< constant: its elements (codes when `quantizer` is set)
  std::set<std::string> origin;
  std::string name;
  bool dead = false;
  OCTAVO_OUT_OF_LINE(Node);
};

/// Dimension `axis` of graph output `output` has as many elements as graph output `count` says when a run ends, an s64 scalar: the first of
/// its static extent, which is room for the most. Outputs that say sizes are behind all others.
struct OutputSize {
  int output = 0, axis = 0, count = 0;
  bool operator==(const OutputSize&) const = default;
};

/// What may have changed between two calls of Graph::settle: all nodes and values that were handed out for editing, with new and removed nodes.
struct Edits {
  bool all = false;  ///< anything may have; the lists say nothing
  std::vector<NodeId> nodes;
  std::vector<ValueId> values;
};

/// Owns nodes and values; ids are stable, dead entries stay until `compact`. Nodes are stored in any order; use `order()`.
class Graph {
 public:
  OCTAVO_OUT_OF_LINE(Graph);
  std::string name;
  std::vector<ValueId> inputs;            ///< in the model's order
  std::vector<ValueId> outputs;           ///< one value may be listed twice
  std::vector<std::string> output_names;  ///< parallel to outputs (a value may be an output under several names)
  std::vector<OutputSize> sizes;          ///< of outputs whose extents data decide

  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] Node& node(NodeId id) {
    if (notes_.on) note(id);
    return nodes_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] Value& value(ValueId id) {
    if (notes_.on) note_value(id);
    return values_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] NodeId node_capacity() const { return static_cast<NodeId>(nodes_.size()); }
  [[nodiscard]] ValueId value_capacity() const { return static_cast<ValueId>(values_.size()); }
  [[nodiscard]] const Node& producer(ValueId v) const { return node(value(v).producer); }
  [[nodiscard]] const TensorType& type(ValueId v) const { return value(v).type; }
  [[nodiscard]] bool is_constant(ValueId v) const { return v != kNone && producer(v).op == Op::constant; }
  [[nodiscard]] const Tensor& payload(ValueId v) const { return producer(v).payload; }

  ValueId add_input(std::string value_name, TensorType type);
  ValueId add_constant(Tensor payload, std::string value_name = "", std::optional<Quantizer> q = std::nullopt);
  /// Adds a node with one output of the given type and returns that value.
  ValueId add(Op op, std::vector<ValueId> inputs, TensorType type, Attrs attrs = {}, std::set<std::string> origin = {},
              std::string value_name = "");
  /// view / quantize / dequantize.
  ValueId add_quantizer(Op op, ValueId input, Quantizer q, TensorType type, std::set<std::string> origin = {},
                        std::string value_name = "");
  /// The general form; `types` has one entry an output.
  NodeId add_node(Node node, const std::vector<TensorType>& types, const std::vector<std::string>& names = {});

  /// Every reader of `from` (nodes and graph outputs) reads `to` instead; the origin of from's producer joins to's producer
  /// unless `keep_origin` is false. `from`'s producer is left for `remove_dead`.
  void replace_uses(ValueId from, ValueId to, bool join_origin = true);
  /// Readers as (node, input slot); graph outputs are not included. Rebuilt lazily after changes.
  [[nodiscard]] const std::vector<std::pair<NodeId, int>>& users(ValueId v) const;
  /// The value's name; where it has none, that of the nearest value with the same elements: in front of it or behind it, beyond reshapes, transposes, casts and
  /// views. Empty if none of these has one. For people: an ONNX tensor that stands for several values names all of them.
  [[nodiscard]] const std::string& nearest_name(ValueId v) const;
  [[nodiscard]] int output_uses(ValueId v) const;  ///< how many graph outputs name v
  [[nodiscard]] int use_count(ValueId v) const { return static_cast<int>(users(v).size()) + output_uses(v); }
  /// Marks nodes that no output depends on as dead. Graph inputs stay. Returns how many died.
  int remove_dead();
  /// Live nodes, producers first; deterministic (depth first: the counts of ir/output_sizes.h, then the outputs, in operand order).
  [[nodiscard]] std::vector<NodeId> order() const;
  /// Call after editing Node::inputs directly.
  void touch();

  /// Between `note_edits(true)` and `note_edits(false)` the graph notes what is handed out for editing. `settle` then does what touch() and remove_dead() do, at a
  /// cost in proportion to the edits instead of to the graph, and says what they were. References from before the last `settle` or `drop_edits` must not be written through.
  void note_edits(bool on);
  [[nodiscard]] Edits settle();
  void drop_edits();  ///< forgets what was noted: it was only read

 private:
  void note(NodeId id);
  void note_value(ValueId id);
  void find_users() const;  ///< of all values
  void read_again() const;  ///< brings users_ up to date with the inputs of the noted nodes
  void read_again(NodeId id) const;
  void remove(NodeId id);  ///< a node that nobody reads
  struct Notes {
    bool on = false;
    bool stale = false;  ///< users_ does not know the noted nodes' inputs yet
    Edits edits;
    std::vector<char> node, value;           ///< is it in `edits`?
    std::vector<std::vector<ValueId>> read;  ///< of each node: the inputs that users_ knows
    std::vector<NodeId> suspects;            ///< may have lost their last reader
    std::vector<ValueId> outputs;            ///< of the graph, at the last `settle`
  };
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  mutable std::vector<std::vector<std::pair<NodeId, int>>> users_;
  mutable bool users_valid_ = false;
  mutable Notes notes_;
};

/// Output type of a node from its inputs and attributes (static shapes); the single definition used by import, verifier and rewrites.
/// `moving and pointwise ops, anchors`: everything except input and constant. Several outputs only for dynamic_quantize.
[[nodiscard]] Result<std::vector<TensorType>> infer(const Graph& g, const Node& node);

/// Convenience for rewrites: adds a node whose output type is inferred (asserts that inference succeeds).
ValueId add_inferred(Graph& g, Op op, std::vector<ValueId> inputs, Attrs attrs = {}, std::set<std::string> origin = {},
                     std::string value_name = "");

}  // namespace octavo::ir
