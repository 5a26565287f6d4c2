#include "onnx/model/tensor_uses.h"

#include <set>

#include "onnx/model/node_label.h"
#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {

TensorUses uses_of_tensor(const Parsed& parsed, const std::string& tensor) {
  const pb::GraphProto& g = parsed.parts().model.graph();
  TensorUses uses;
  for (const auto& input : g.input()) {
    if (input.name() == tensor) uses.maker_type = "input";
  }
  for (const auto& t : g.initializer()) {
    if (t.name() == tensor) uses.maker_type = "initializer";
  }
  for (int i = 0; i < g.node_size(); ++i) {
    const pb::NodeProto& n = g.node(i);
    const std::string name = node_label(n, i);
    for (const std::string& out : n.output()) {
      if (out != tensor) continue;
      uses.maker = name;
      uses.maker_type = n.op_type();
    }
    for (int slot = 0; slot < n.input_size(); ++slot) {
      if (n.input(slot) == tensor) uses.readers.push_back({name, n.op_type(), slot});
    }
  }
  for (const auto& output : g.output()) uses.output = uses.output || output.name() == tensor;
  return uses;
}

std::vector<std::string> tensor_names(const Parsed& parsed) {
  const pb::GraphProto& g = parsed.parts().model.graph();
  std::set<std::string> names;
  for (const auto& input : g.input()) names.insert(input.name());
  for (const auto& t : g.initializer()) names.insert(t.name());
  for (const auto& n : g.node()) names.insert(n.output().begin(), n.output().end());
  names.erase("");
  return {names.begin(), names.end()};
}

}  // namespace octavo::onnx
