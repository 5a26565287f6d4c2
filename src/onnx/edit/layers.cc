#include "onnx/edit/layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "onnx/edit/edit.h"
#include "quant/weight_scales.h"

namespace octavo::onnx {
namespace {

const pb::AttributeProto* attribute(const pb::NodeProto& n, const char* name) {
  for (const auto& a : n.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

std::int64_t int_of(const pb::NodeProto& n, const char* name, std::int64_t fallback) {
  const auto* a = attribute(n, name);
  return a == nullptr ? fallback : a->i();
}

std::vector<std::int64_t> ints_of(const pb::NodeProto& n, const char* name, std::size_t count, std::int64_t fallback) {
  const auto* a = attribute(n, name);
  if (a == nullptr || static_cast<std::size_t>(a->ints_size()) != count) return std::vector<std::int64_t>(count, fallback);
  return {a->ints().begin(), a->ints().end()};
}

float float_of(const pb::NodeProto& n, const char* name) {
  const auto* a = attribute(n, name);
  return a == nullptr ? 1.0F : a->f();
}

/// The node with this output.
int producer_of(const Editor& model, const std::string& tensor) {
  for (int i = 0; i < model.graph().node_size(); ++i) {
    for (const auto& o : model.graph().node(i).output()) {
      if (o == tensor) return i;
    }
  }
  return -1;
}

}  // namespace

Result<std::shared_ptr<Editor>> open_model(const Parsed& model) {
  OCTAVO_TRY(Editor editor, Editor::open(model));
  return std::make_shared<Editor>(std::move(editor));
}

Parsed parsed_of(Editor&& model) {
  return std::move(model).parsed();
}

Result<std::vector<std::byte>> model_bytes(const Parsed& model) {
  return bytes_of(model.parts().model, model.parts().constants);
}

void set_metadata(Editor& model, const std::string& key, const std::string& text) {
  for (auto& entry : *model.model().mutable_metadata_props()) {
    if (entry.key() == key) return entry.set_value(text);
  }
  auto* entry = model.model().add_metadata_props();
  entry->set_key(key);
  entry->set_value(text);
}

std::vector<Layer> weighted_layers(const Editor& model) {
  std::vector<Layer> out;
  std::map<std::string, int> readers;
  for (const pb::NodeProto& n : model.graph().node()) {
    for (const auto& in : n.input()) ++readers[in];
  }
  for (int i = 0; i < model.graph().node_size(); ++i) {
    const pb::NodeProto& n = model.graph().node(i);
    const std::string& op = n.op_type();
    if ((op != "Conv" && op != "ConvTranspose" && op != "Gemm" && op != "MatMul") || n.input_size() < 2) continue;
    const ir::Tensor* w = model.constant(n.input(1));
    if (w == nullptr || w->dtype() != ir::DType::f32 || w->shape().size() < 2 || model.constant(n.input(0)) != nullptr) continue;
    Layer l;
    l.node = model.node_name(i);
    l.op = op;
    l.input = n.input(0);
    l.output = n.output(0);
    l.weights = n.input(1);
    l.weight_values = *w;
    l.shared = readers[l.weights] > 1;
    if (op != "MatMul" && n.input_size() > 2 && !n.input(2).empty()) {
      l.bias = n.input(2);
      if (const ir::Tensor* b = model.constant(l.bias); b != nullptr && b->dtype() == ir::DType::f32) l.bias_values = *b;
      l.plain = !l.bias_values.empty();
    }
    if (op == "Conv" || op == "ConvTranspose") {
      const std::size_t spatial = w->shape().size() - 2;
      l.group = int_of(n, "group", 1);
      l.strides = ints_of(n, "strides", spatial, 1);
      l.dilations = ints_of(n, "dilations", spatial, 1);
      l.pads = ints_of(n, "pads", 2 * spatial, 0);
      const auto* pad = attribute(n, "auto_pad");
      l.auto_pad = pad == nullptr ? "NOTSET" : pad->s();
    }
    if (op == "Gemm") {
      l.transposed = int_of(n, "transB", 0) != 0;
      l.plain = l.plain && int_of(n, "transA", 0) == 0 && float_of(n, "alpha") == 1.0F && float_of(n, "beta") == 1.0F;
    }
    const ir::Op kind = op == "Conv" ? ir::Op::conv : op == "ConvTranspose" ? ir::Op::conv_transpose : ir::Op::gemm;
    const int last = static_cast<int>(w->shape().size()) - 1;
    l.axis = op == "Gemm" && l.transposed ? 0 : op == "MatMul" ? last : quant::weight_axis(kind, l.group);
    out.push_back(std::move(l));
  }
  return out;
}

Status sort_nodes(Editor& model) {
  return model.sort();
}

void set_weights(Editor& model, const Layer& layer, const ir::Tensor& values) {
  const int at = producer_of(model, layer.weights);  // a Constant node keeps its value; its reader gets another
  const std::string name = at < 0 ? layer.weights : model.fresh(layer.weights + "_changed");
  model.set_constant(name, values);
  if (at >= 0) model.rename_uses(layer.weights, name);
}

void add_to_bias(Editor& model, const Layer& layer, const std::vector<float>& change) {
  const int at = producer_of(model, layer.output);
  if (at < 0) return;
  ir::Tensor bias(ir::DType::f32, {static_cast<std::int64_t>(change.size())});
  std::copy(change.begin(), change.end(), bias.mutable_data<float>().begin());
  const std::string name = model.fresh((layer.bias.empty() ? layer.node + ".bias" : layer.bias) + "_corrected");
  if (layer.op == "MatMul") {
    const std::string before = model.fresh(layer.output + "_uncorrected");
    model.set_constant(name, bias);
    model.graph().mutable_node(at)->set_output(0, before);
    pb::NodeProto* add = model.graph().add_node();
    add->set_op_type("Add");
    add->set_name(model.fresh(layer.node + "_bias"));
    add->add_input(before);
    add->add_input(name);
    add->add_output(layer.output);
    return;  // at the end of the nodes: put_pairs sorts them
  }
  if (!layer.bias_values.empty()) {  // of a Gemm it may be broadcast
    const auto have = layer.bias_values.data<float>();
    for (std::size_t c = 0; c < change.size(); ++c) bias.mutable_data<float>()[c] += have[have.size() == change.size() ? c : 0];
  }
  model.set_constant(name, bias);
  pb::NodeProto* n = model.graph().mutable_node(at);
  while (n->input_size() < 3) n->add_input("");
  n->set_input(2, name);
}

}  // namespace octavo::onnx
