#include "onnx/edit/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/write_file.h"
#include "onnx/model/held.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

std::int32_t type_of(ir::DType t) {
  switch (t) {
    case ir::DType::s8: return pb::TensorProto::INT8;
    case ir::DType::u8: return pb::TensorProto::UINT8;
    case ir::DType::s64: return pb::TensorProto::INT64;
    default: return pb::TensorProto::FLOAT;
  }
}

}  // namespace

Result<Editor> Editor::open(const Parsed& parsed) {
  const std::string& folder = parsed.folder();
  Editor e;
  e.model_ = parsed.parts().model;
  e.large_ = parsed.parts().constants;
  e.name_ = parsed.name();
  e.folder_ = folder;
  for (pb::TensorProto& t : *e.graph().mutable_initializer()) {
    if (const auto large = e.large_.find(t.name()); large != e.large_.end()) {
      e.constants_[t.name()] = large->second;
      continue;
    }
    OCTAVO_TRY(auto value, read_tensor(t, folder));
    if (t.data_location() == pb::TensorProto::EXTERNAL) {
      t.clear_external_data();
      t.clear_data_location();
      e.put(t, value);
    }
    e.constants_[t.name()] = std::move(value);
  }
  for (const pb::NodeProto& n : e.graph().node()) {
    for (const auto& a : n.attribute()) {
      if (a.has_g()) {
        return fail(ErrorKind::unsupported,
                    fmt::format("editing {}: node \"{}\" ({}) has a subgraph, which may read any tensor\n  take the branch "
                                "out of the model first",
                                parsed.name(), n.name(), n.op_type()));
      }
    }
    if (n.op_type() != "Constant" || n.output_size() != 1) continue;
    for (const auto& a : n.attribute()) {
      if (a.name() != "value") continue;
      auto value = read_tensor(a.t(), folder);
      if (value) e.constants_[n.output(0)] = std::move(*value);
    }
  }
  return e;
}

Parsed Editor::parsed() && {
  auto parts = std::make_shared<ParsedParts>();
  parts->model.Swap(&model_);
  parts->constants = std::move(large_);
  parts->name = name_;
  parts->folder = folder_;
  constants_.clear();
  return Parsed(std::move(parts));
}

Result<std::vector<std::byte>> Editor::bytes() const {
  return bytes_of(model_, large_);
}

Status Editor::save(const std::string& path) const {
  const auto written = bytes();
  if (!written) return fail(written.error().kind, fmt::format("writing {}: {}", path, written.error().message));
  return write_file(path, std::span<const std::byte>(*written), "model");
}

void Editor::set_opset(std::int64_t version) {
  for (auto& o : *model_.mutable_opset_import()) {
    if (o.domain().empty() || o.domain() == "ai.onnx") o.set_version(version);
  }
  if (version >= 13 && model_.ir_version() < 7) model_.set_ir_version(7);  // the IR that opset 13 came with
}

std::int64_t Editor::opset() const {
  for (const auto& o : model_.opset_import()) {
    if (o.domain().empty() || o.domain() == "ai.onnx") return o.version();
  }
  return 1;
}

std::string Editor::node_name(int index) const {
  const pb::NodeProto& n = graph().node(index);
  return n.name().empty() ? fmt::format("{} #{}", n.op_type(), index) : n.name();
}

const ir::Tensor* Editor::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : &found->second;
}

void Editor::set_constant(const std::string& name, const ir::Tensor& value) {
  constants_[name] = value;
  large_.erase(name);
  pb::TensorProto* t = nullptr;
  for (pb::TensorProto& have : *graph().mutable_initializer()) {
    if (have.name() == name) t = &have;
  }
  if (t == nullptr) t = graph().add_initializer();
  t->Clear();
  t->set_name(name);
  t->set_data_type(type_of(value.dtype()));
  for (const auto d : value.shape()) t->add_dims(d);
  put(*t, value);
}

void Editor::put(pb::TensorProto& t, const ir::Tensor& value) {
  const bool large = value.bytes().size() >= kLargeConstant && !is_small(value.dtype());
  if (large) large_.insert_or_assign(t.name(), value);
  t.set_raw_data(value.bytes().data(), large ? 0 : value.bytes().size());
}

void Editor::rename_uses(const std::string& from, const std::string& to) {
  for (pb::NodeProto& n : *graph().mutable_node()) {
    for (std::string& in : *n.mutable_input()) {
      if (in == from) in = to;
    }
  }
}

void Editor::remove_nodes(const std::set<int>& nodes) {
  auto& list = *graph().mutable_node();
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) list.DeleteSubrange(*at, 1);
  std::set<std::string> used;
  for (const pb::NodeProto& n : list) used.insert(n.input().begin(), n.input().end());
  for (const auto& o : graph().output()) used.insert(o.name());
  auto& initializers = *graph().mutable_initializer();
  std::set<std::string> removed;
  for (int i = initializers.size(); i-- > 0;) {
    if (used.contains(initializers.Get(i).name())) continue;
    removed.insert(initializers.Get(i).name());
    large_.erase(initializers.Get(i).name());
    initializers.DeleteSubrange(i, 1);
  }
  auto& inputs = *graph().mutable_input();  // files before IR version 4 list initializers as inputs, too
  for (int i = inputs.size(); i-- > 0;) {
    if (removed.contains(inputs.Get(i).name())) inputs.DeleteSubrange(i, 1);
  }
}

Status Editor::sort() {
  auto& list = *graph().mutable_node();
  std::set<std::string> made;
  for (const pb::NodeProto& n : list) made.insert(n.output().begin(), n.output().end());
  std::set<std::string> ready;
  std::vector<pb::NodeProto> waiting(list.begin(), list.end()), sorted;
  while (!waiting.empty()) {
    std::vector<pb::NodeProto> rest;
    for (pb::NodeProto& n : waiting) {
      const bool can = std::all_of(n.input().begin(), n.input().end(),
                                   [&](const std::string& in) { return !made.contains(in) || ready.contains(in); });
      if (!can) {
        rest.push_back(std::move(n));
        continue;
      }
      ready.insert(n.output().begin(), n.output().end());
      sorted.push_back(std::move(n));
    }
    if (rest.size() == waiting.size())
      return fail(ErrorKind::bad_model, fmt::format("the graph has a cycle through node \"{}\"", rest[0].name()));
    waiting = std::move(rest);
  }
  list.Clear();
  for (pb::NodeProto& n : sorted) *list.Add() = std::move(n);
  return {};
}

std::string Editor::fresh(const std::string& wish) const {
  std::set<std::string> used;
  for (const pb::NodeProto& n : graph().node()) {
    used.insert(n.name());
    used.insert(n.output().begin(), n.output().end());
  }
  for (const auto& t : graph().initializer()) used.insert(t.name());
  for (const auto& t : graph().input()) used.insert(t.name());
  std::string name = wish;
  for (int k = 2; used.contains(name); ++k) name = fmt::format("{}_{}", wish, k);
  return name;
}

}  // namespace octavo::onnx
