#include "onnx/model/model_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "onnx/import/importer.h"
#include "onnx/model/node_label.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {

ModelView::ModelView(const pb::ModelProto& model, const Constants& constants, std::string folder)
    : model_(model), large_(constants), folder_(std::move(folder)) {
  std::set<std::string> used;
  for (int i = 0; i < graph().node_size(); ++i) {
    const pb::NodeProto& n = graph().node(i);
    for (const auto& o : n.output()) producer_.emplace(o, i);
    std::string name = node_label(n, i);
    if (!used.insert(name).second) name = fmt::format("{}_{}", name, i);
    names_.push_back(std::move(name));
  }
  for (const auto& t : graph().initializer()) initializers_.emplace(t.name(), &t);
  for (const auto& i : graph().input()) inputs_.insert(i.name());
  live_.assign(static_cast<std::size_t>(graph().node_size()), false);
  std::vector<std::string> wanted;
  for (const auto& o : graph().output()) wanted.push_back(o.name());
  while (!wanted.empty()) {
    const auto at = producer_.find(wanted.back());
    wanted.pop_back();
    if (at == producer_.end() || live_[static_cast<std::size_t>(at->second)]) continue;
    live_[static_cast<std::size_t>(at->second)] = true;
    collect_reads(graph().node(at->second), wanted);
  }
  for (int i = 0; i < graph().node_size(); ++i) {
    if (live(i)) find_scales(i);
  }
}

std::int64_t ModelView::attribute(const pb::NodeProto& n, const char* key, std::int64_t fallback) {
  for (const auto& a : n.attribute()) {
    if (a.name() == key) return a.i();
  }
  return fallback;
}

const pb::NodeProto* ModelView::producer(const std::string& tensor) const {
  const auto at = producer_.find(tensor);
  return at == producer_.end() ? nullptr : &graph().node(at->second);
}

bool ModelView::knows(const std::string& tensor) const {
  return producer_.contains(tensor) || initializers_.contains(tensor) || inputs_.contains(tensor);
}

const ir::Tensor* ModelView::constant(const std::string& tensor) const {
  std::string name = tensor;
  for (int i = 0; i < 16; ++i) {  // Identity of Identity of ...
    const pb::NodeProto* n = producer(name);
    if (n == nullptr || n->op_type() != "Identity" || n->input_size() != 1) break;
    name = n->input(0);
  }
  const auto known = constants_.find(name);
  if (known != constants_.end()) return known->second ? &*known->second : nullptr;
  auto& slot = constants_[name];
  const pb::TensorProto* proto = nullptr;
  const auto at = initializers_.find(name);
  if (at != initializers_.end()) proto = at->second;
  const pb::NodeProto* n = producer(name);
  if (proto == nullptr && n != nullptr && n->op_type() == "Constant") {
    for (const auto& a : n->attribute()) {
      if (a.name() == "value") proto = &a.t();
    }
  }
  if (proto == nullptr) return nullptr;
  const auto large = at != initializers_.end() ? large_.find(name) : large_.end();
  if (large != large_.end()) {
    slot = large->second;
  } else if (auto t = read_tensor(*proto, folder_)) {
    slot = std::move(*t);
  }
  return slot ? &*slot : nullptr;
}

void ModelView::find_scales(int node) {
  const pb::NodeProto& n = graph().node(node);
  const auto in = [&](int i) { return i < n.input_size() ? n.input(i) : std::string(); };
  const auto add = [&](int scale, int zero, const std::string& data, std::int64_t axis) {
    if (!in(scale).empty()) scales_.push_back({node, in(scale), in(zero), data, axis});
  };
  const std::string out = n.output_size() > 0 ? n.output(0) : "";
  const std::string& op = n.op_type();
  if (op == "QuantizeLinear" || op == "DequantizeLinear") {
    add(1, 2, in(0), attribute(n, "axis", 1));
  } else if (op == "QLinearConv") {
    add(1, 2, in(0), 1), add(4, 5, in(3), 0), add(6, 7, out, 1);
  } else if (op == "QLinearMatMul" || op == "QLinearAdd" || op == "QLinearMul") {
    add(1, 2, in(0), -2), add(4, 5, in(3), -1), add(6, 7, out, -1);
  } else if (op == "QGemm") {
    add(1, 2, in(0), 0), add(4, 5, in(3), attribute(n, "transB", 0) != 0 ? 0 : 1), add(7, 8, out, 1);
  } else if (op == "QLinearConcat") {
    add(0, 1, out, 1);
    for (int i = 2; i + 1 < n.input_size(); i += 3) add(i + 1, i + 2, in(i), 1);
  } else if (op.starts_with("QLinear")) {  // of one operand: Sigmoid, LeakyRelu, Softmax, pools
    add(1, 2, in(0), 1), add(3, 4, out, 1);
  }
}

}  // namespace octavo::onnx
