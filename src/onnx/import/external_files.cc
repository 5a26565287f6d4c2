#include "onnx/import/external_files.h"

#include "onnx/model/parsed_parts.h"

namespace octavo::onnx {
namespace {

class Collector {
 public:
  void graph(const pb::GraphProto& g, int depth) {
    for (const auto& t : g.initializer()) tensor(t);
    for (const auto& s : g.sparse_initializer()) sparse(s);
    nodes(g.node(), depth);
  }
  template <class Nodes>
  void nodes(const Nodes& list, int depth) {
    constexpr int kDeepest = 64;  // import refuses far less
    if (depth > kDeepest) return;
    for (const auto& node : list) {
      for (const auto& a : node.attribute()) {
        if (a.has_t()) tensor(a.t());
        if (a.has_sparse_tensor()) sparse(a.sparse_tensor());
        for (const auto& t : a.tensors()) tensor(t);
        for (const auto& s : a.sparse_tensors()) sparse(s);
        if (a.has_g()) graph(a.g(), depth + 1);
        for (const auto& g : a.graphs()) graph(g, depth + 1);
      }
    }
  }
  std::set<std::string> found;

 private:
  void sparse(const pb::SparseTensorProto& s) {
    tensor(s.values());
    tensor(s.indices());
  }
  void tensor(const pb::TensorProto& t) {
    if (t.data_location() != pb::TensorProto::EXTERNAL) return;
    for (const auto& entry : t.external_data()) {
      if (entry.key() == "location") found.insert(entry.value());
    }
  }
};

}  // namespace

std::set<std::string> external_files(const Parsed& parsed) {
  const pb::ModelProto& model = parsed.parts().model;
  Collector all;
  all.graph(model.graph(), 0);
  for (const auto& f : model.functions()) all.nodes(f.node(), 0);
  return std::move(all.found);
}

}  // namespace octavo::onnx
