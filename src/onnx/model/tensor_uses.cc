#include "onnx/model/tensor_uses.h"

#include <fmt/format.h>

#include <set>

#include "onnx/import/importer.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {
namespace {

/// Every tensor name in the main graph, sorted.
std::vector<std::string> names_in(const pb::ModelProto& model) {
  std::set<std::string> names;
  for (const auto& input : model.graph().input()) names.insert(input.name());
  for (const auto& t : model.graph().initializer()) names.insert(t.name());
  for (const auto& n : model.graph().node()) names.insert(n.output().begin(), n.output().end());
  names.erase("");
  return {names.begin(), names.end()};
}

}  // namespace

Result<TensorUses> uses_of_tensor(const std::string& path, const std::string& tensor) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model_file(path, path, model));
  const pb::GraphProto& g = model.graph();
  TensorUses uses;
  for (const auto& input : g.input()) {
    if (input.name() == tensor) uses.maker_type = "input";
  }
  for (const auto& t : g.initializer()) {
    if (t.name() == tensor) uses.maker_type = "initializer";
  }
  for (int i = 0; i < g.node_size(); ++i) {
    const pb::NodeProto& n = g.node(i);
    const std::string name = n.name().empty() ? fmt::format("{}_{}", n.op_type(), i) : n.name();
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

Result<std::vector<std::string>> tensor_names(const std::string& path) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model_file(path, path, model));
  return names_in(model);
}

Result<std::vector<std::string>> tensor_names(std::span<const std::byte> bytes) {
  pb::ModelProto model;
  OCTAVO_CHECK(parse_model(bytes, "model", model));
  return names_in(model);
}

}  // namespace octavo::onnx
