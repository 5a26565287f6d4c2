#include "onnx/import/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "onnx/model/node_label.h"

namespace octavo::onnx {
namespace {

using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
using Names = std::unordered_map<std::string, std::string>;

std::string canonical(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

std::int64_t default_opset(const google::protobuf::RepeatedPtrField<pb::OperatorSetIdProto>& sets) {
  for (const auto& set : sets) {
    if (canonical(set.domain()).empty()) return set.version();
  }
  return 0;
}

class Inliner {
 public:
  explicit Inliner(const pb::ModelProto& model)
      : opset_(default_opset(model.opset_import())), most_nodes_(kFewNodes + model.ByteSizeLong() / kBytesOfANode) {
    for (const auto& f : model.functions()) {
      const Function it{&f, kMessage * f.ByteSizeLong(), size_of(f.node())};
      functions_[{canonical(f.domain()), f.name(), f.overload()}] = it;
      most_bytes_ += kCopies * it.bytes;
    }
  }
  [[nodiscard]] bool empty() const { return functions_.empty(); }

  /// Refuses what would not end, or would grow too large, before a node is copied: functions that call each other may double the
  /// nodes with each of them. Takes time in proportion to the file. `expand` counts again: calls may also lie in graphs that are
  /// attributes of calls, which this does not follow.
  Status measure(const google::protobuf::RepeatedPtrField<pb::NodeProto>& nodes) {
    Extent made;
    return add_calls(nodes, 0, made, [&](const pb::NodeProto& node, int index) -> Status {
      if (made.depth > kDeepest)
        return fail(ErrorKind::bad_model, fmt::format("{}: its calls go {} functions deep; the most are {}",
                                                      where(node, node_label(node, index)), made.depth, kDeepest));
      if (made.nodes > most_nodes_)
        return fail(ErrorKind::bad_model, fmt::format("{}: {}", where(node, node_label(node, index)), too_many_nodes()));
      return {};
    });
  }

  Status expand(google::protobuf::RepeatedPtrField<pb::NodeProto>& nodes) {
    google::protobuf::RepeatedPtrField<pb::NodeProto> out;
    for (int i = 0; i < nodes.size(); ++i) OCTAVO_CHECK(append(nodes[i], i, out));
    nodes.Swap(&out);
    return {};
  }

 private:
  /// 128 MiB, and some copies of every function. A byte of a message counts four times: one of a name is only copied.
  static constexpr std::size_t kMessage = 4, kCopies = 4, kMostBytes = std::size_t{128} << 20;
  /// 20000 nodes, and one for each 32 bytes of the file: a layer that is called many times has weights of its own, which the
  /// file names. A short file that becomes many nodes was made for that.
  static constexpr std::size_t kFewNodes = 20000, kBytesOfANode = 32;
  static constexpr int kDeepest = 32;

  /// Nodes with those of sub-graphs, and about how many names get the call's name in front of them.
  struct Size {
    std::size_t nodes = 0, names = 0;
  };
  /// What a call becomes, with the calls inside it.
  struct Extent {
    std::size_t nodes = 0;  ///< up to most_nodes_ + 1
    int depth = 0;
  };
  struct Function {
    const pb::FunctionProto* proto = nullptr;
    std::size_t bytes = 0;  ///< of one copy
    Size size{};            ///< of one copy
    enum class Known { no, begun, yes } known = Known::no;
    Extent extent{};  ///< where known
  };

  Function* called(const pb::NodeProto& node) {
    const auto found = functions_.find({canonical(node.domain()), node.op_type(), node.overload()});
    return found == functions_.end() ? nullptr : &found->second;
  }

  /// Adds what the calls among these nodes become; `look` sees each call after it was added.
  template <typename Look>
  Status add_calls(const google::protobuf::RepeatedPtrField<pb::NodeProto>& nodes, int depth, Extent& made, const Look& look) {
    for (int i = 0; i < nodes.size(); ++i) {
      for (const auto& a : nodes[i].attribute()) {
        if (a.has_g()) OCTAVO_CHECK(add_calls(a.g().node(), depth, made, look));
      }
      Function* const function = called(nodes[i]);
      if (!function) continue;
      OCTAVO_CHECK(measure_call(*function, nodes[i], depth));
      made.nodes = std::min(made.nodes + function->extent.nodes, most_nodes_ + 1);
      made.depth = std::max(made.depth, function->extent.depth);
      OCTAVO_CHECK(look(nodes[i], i));
    }
    return {};
  }

  Status measure_call(Function& function, const pb::NodeProto& call, int depth) {
    if (function.known == Function::Known::yes) return {};
    if (function.known == Function::Known::begun)
      return fail(ErrorKind::bad_model, fmt::format("function {}.{} calls itself", call.domain(), call.op_type()));
    // The calls around this one are too deep already; this keeps the stack small.
    if (depth > kDeepest) {
      return fail(ErrorKind::bad_model, fmt::format("function {}.{} is called {} functions deep; the most are {}", call.domain(),
                                                    call.op_type(), depth + 1, kDeepest));
    }
    function.known = Function::Known::begun;
    Extent inner;
    OCTAVO_CHECK(add_calls(function.proto->node(), depth + 1, inner, [](const pb::NodeProto&, int) -> Status { return {}; }));
    function.extent = {std::min(function.size.nodes + inner.nodes, most_nodes_ + 1), inner.depth + 1};
    function.known = Function::Known::yes;
    return {};
  }

  /// What a node becomes is put behind `out` at once: each node is moved once, however deep the calls are.
  Status append(pb::NodeProto& node, int index, google::protobuf::RepeatedPtrField<pb::NodeProto>& out) {
    for (auto& a : *node.mutable_attribute()) {
      if (a.has_g()) OCTAVO_CHECK(expand(*a.mutable_g()->mutable_node()));
    }
    const Function* function = called(node);
    if (!function) {
      out.Add()->Swap(&node);
      return {};
    }
    google::protobuf::RepeatedPtrField<pb::NodeProto> body;
    OCTAVO_CHECK(instantiate(*function, node, index, body));
    for (int i = 0; i < body.size(); ++i) OCTAVO_CHECK(append(body[i], i, out));
    return {};
  }

  [[nodiscard]] std::string too_many_nodes() const {
    return fmt::format(
        "more than {} nodes after inlining, which is the limit for a file of this size; a model that was inlined before "
        "(onnx.inliner.inline_local_functions) has none",
        most_nodes_);
  }
  static std::string where(const pb::NodeProto& call, const std::string& label) {
    return fmt::format("node \"{}\" calls function {}.{}", label, call.domain(), call.op_type());
  }

  static Size size_of(const google::protobuf::RepeatedPtrField<pb::NodeProto>& nodes) {
    Size out{static_cast<std::size_t>(nodes.size()), 0};
    for (const pb::NodeProto& n : nodes) {
      out.names += static_cast<std::size_t>(1 + n.input_size() + n.output_size());
      for (const auto& a : n.attribute()) {
        if (!a.has_g()) continue;
        const Size inner = size_of(a.g().node());
        out.nodes += inner.nodes, out.names += inner.names;
      }
    }
    return out;
  }

  [[nodiscard]] bool fits() const { return made_ <= most_nodes_ && made_bytes_ <= most_bytes_; }

  Status instantiate(const Function& function, const pb::NodeProto& call, int index,
                     google::protobuf::RepeatedPtrField<pb::NodeProto>& body) {
    const pb::FunctionProto& f = *function.proto;
    const std::string label = node_label(call, index);
    const auto where = [&] { return this->where(call, label); };
    const std::int64_t opset = default_opset(f.opset_import());
    if (opset != 0 && opset != opset_) {
      return fail(
          ErrorKind::unsupported,
          fmt::format("{}, written for opset {} while the model uses {}; inline it before (onnx.inliner.inline_local_functions "
                      "converts)",
                      where(), opset, opset_));
    }
    if (call.input_size() > f.input_size() || call.output_size() > f.output_size()) {
      return fail(ErrorKind::bad_model, fmt::format("{} with {} inputs and {} outputs; it has {} and {}", where(),
                                                    call.input_size(), call.output_size(), f.input_size(), f.output_size()));
    }
    // Few nodes may be much too: calls with many operands, sub-graphs, attributes that many nodes refer to, and names that grow
    // with each call inside another one.
    made_ += function.size.nodes;
    made_bytes_ += function.bytes + function.size.names * label.size();
    const auto refuse = [&] {
      return fail(
          ErrorKind::bad_model,
          fmt::format("{}: {}", where(),
                      made_ > most_nodes_ ? too_many_nodes() : fmt::format("more than {} bytes after inlining", most_bytes_)));
    };
    if (!fits()) return refuse();
    Names names;
    for (int i = 0; i < f.input_size(); ++i) names[f.input(i)] = i < call.input_size() ? call.input(i) : "";
    for (int i = 0; i < f.output_size(); ++i) {
      // A function may hand an input on as an output; that takes a node of its own.
      const bool passed = names.contains(f.output(i));
      if (i >= call.output_size() || call.output(i).empty()) continue;
      if (passed) {
        pb::NodeProto& copy = *body.Add();
        copy.set_op_type("Identity");
        copy.add_input(names[f.output(i)]);
        copy.add_output(call.output(i));
      } else {
        names[f.output(i)] = call.output(i);
      }
    }
    for (const pb::NodeProto& n : f.node()) {
      pb::NodeProto& copy = *body.Add();
      copy = n;
      copy.set_name(label + "/" + node_label(n, body.size() - 1));
      rename(copy, names, label + "/");
      fill_attributes(copy, f, call);
      if (!fits()) return refuse();
    }
    return {};
  }

  /// Inner tensors get the prefix; those of the call keep the caller's names. Sub-graphs see the same names.
  void rename(pb::NodeProto& n, Names& names, const std::string& prefix) {
    const auto renamed = [&](const std::string& name) -> std::string {
      if (name.empty()) return name;
      const auto it = names.find(name);
      return it != names.end() ? it->second : prefix + name;
    };
    for (auto& name : *n.mutable_input()) name = renamed(name);
    for (auto& name : *n.mutable_output()) name = renamed(name);
    for (auto& a : *n.mutable_attribute()) {
      if (!a.has_g()) continue;
      for (auto& t : *a.mutable_g()->mutable_initializer()) t.set_name(renamed(t.name()));
      for (auto& v : *a.mutable_g()->mutable_input()) v.set_name(renamed(v.name()));
      for (auto& v : *a.mutable_g()->mutable_output()) v.set_name(renamed(v.name()));
      for (auto& inner : *a.mutable_g()->mutable_node()) rename(inner, names, prefix);
    }
  }

  /// An attribute that refers to one of the call takes its value: the call's, else the function's default, else it is left out.
  void fill_attributes(pb::NodeProto& n, const pb::FunctionProto& f, const pb::NodeProto& call) {
    google::protobuf::RepeatedPtrField<pb::AttributeProto> filled;
    for (auto& a : *n.mutable_attribute()) {
      if (a.has_g()) {
        for (auto& inner : *a.mutable_g()->mutable_node()) fill_attributes(inner, f, call);
      }
      if (a.ref_attr_name().empty()) {
        filled.Add(std::move(a));
        continue;
      }
      const pb::AttributeProto* value = nullptr;
      for (const auto& d : f.attribute_proto()) value = d.name() == a.ref_attr_name() ? &d : value;
      for (const auto& c : call.attribute()) value = c.name() == a.ref_attr_name() ? &c : value;
      if (!value) continue;
      made_bytes_ += kMessage * value->ByteSizeLong();
      if (value->has_g()) made_ += size_of(value->g().node()).nodes;
      if (!fits()) return;  // the caller refuses the model
      pb::AttributeProto& copy = *filled.Add();
      copy = *value;
      copy.set_name(a.name());
    }
    n.mutable_attribute()->Swap(&filled);
  }

  std::map<Key, Function> functions_;
  std::int64_t opset_;
  std::size_t most_nodes_;
  std::size_t made_ = 0, made_bytes_ = 0, most_bytes_ = kMostBytes;
};

}  // namespace

Status inline_functions(pb::ModelProto& model) {
  Inliner inliner(model);
  if (inliner.empty()) return {};
  OCTAVO_CHECK(inliner.measure(model.graph().node()));
  return inliner.expand(*model.mutable_graph()->mutable_node());
}

}  // namespace octavo::onnx
