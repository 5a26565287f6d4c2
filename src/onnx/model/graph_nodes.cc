#include "onnx/model/graph_nodes.h"

#include <fmt/format.h>

#include <set>

#include "onnx/model/node_label.h"
#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {

GraphNodes nodes_of(const Parsed& parsed) {
  const pb::GraphProto& g = parsed.parts().model.graph();
  GraphNodes out;
  std::set<std::string> initializers, used;
  for (const auto& t : g.initializer()) initializers.insert(t.name());
  for (const auto& input : g.input()) {
    if (!initializers.contains(input.name())) out.inputs.push_back(input.name());
  }
  for (const auto& output : g.output()) out.outputs.push_back(output.name());
  for (int i = 0; i < g.node_size(); ++i) {
    const pb::NodeProto& n = g.node(i);
    GraphNode node;
    node.name = node_label(n, i);
    if (used.contains(node.name)) node.name = fmt::format("{}_{}", node.name, i);
    used.insert(node.name);
    node.op = n.domain().empty() ? n.op_type() : fmt::format("{}.{}", n.domain(), n.op_type());
    node.inputs.assign(n.input().begin(), n.input().end());
    node.outputs.assign(n.output().begin(), n.output().end());
    out.nodes.push_back(std::move(node));
  }
  return out;
}

}  // namespace octavo::onnx
