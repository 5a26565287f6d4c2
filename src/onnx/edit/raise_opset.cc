#include "onnx/edit/raise_opset.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "onnx/edit/edit.h"

namespace octavo::onnx {
namespace {

constexpr std::int64_t kWanted = kOpsetOfPairs;

const pb::AttributeProto* attribute(const pb::NodeProto& n, const char* name) {
  for (const auto& a : n.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

void drop(pb::NodeProto& n, const char* name) {
  for (int i = n.attribute_size(); i-- > 0;) {
    if (n.attribute(i).name() == name) n.mutable_attribute()->DeleteSubrange(i, 1);
  }
}

class Raiser {
 public:
  explicit Raiser(Editor& model) : m_(model), from_(model.opset()) {}

  Status run() {
    for (int i = 0; i < m_.graph().node_size(); ++i) OCTAVO_CHECK(node(i));
    if (!flattened_.empty()) spread();
    m_.set_opset(kWanted);
    return {};
  }

 private:
  Status refuse(int index, const std::string& why) const {
    return fail(
        ErrorKind::unsupported,
        fmt::format("the model has opset {}, scales per channel need 13, and node \"{}\" cannot be carried over: {}\n  convert it "
                    "first: onnx.version_converter.convert_version(model, 13)",
                    from_, m_.node_name(index), why));
  }

  /// The attribute becomes the input `slot`.
  void ints(pb::NodeProto& n, const char* name, int slot) {
    const auto* a = attribute(n, name);
    if (a == nullptr) return;
    const std::vector<std::int64_t> values(a->ints().begin(), a->ints().end());
    put(n, slot, name, ir::Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values));
    drop(n, name);
  }
  void number(pb::NodeProto& n, const char* name, int slot) {
    const auto* a = attribute(n, name);
    if (a == nullptr) return;
    put(n, slot, name, ir::Tensor::of<float>({}, {a->f()}));
    drop(n, name);
  }
  void put(pb::NodeProto& n, int slot, const char* name, const ir::Tensor& value) {
    const std::string tensor = m_.fresh(n.output(0) + "_" + name);
    m_.set_constant(tensor, value);
    while (n.input_size() <= slot) n.add_input("");
    n.set_input(slot, tensor);
  }

  void text(pb::NodeProto& n, const char* name, const char* value) {
    drop(n, name);
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(pb::AttributeProto::STRING);
    a->set_s(value);
  }

  /// Upsample (scales as an attribute in opset 7) and Resize of opset 10 are Resize with coordinates from the origin.
  Status resize(int index, pb::NodeProto& n) {
    std::string scales;
    if (const auto* a = attribute(n, "scales"); a != nullptr && n.op_type() == "Upsample" && from_ < 9) {
      scales = m_.fresh(n.output(0) + "_scales");
      m_.set_constant(scales, ir::Tensor::of<float>({a->floats_size()}, {a->floats().begin(), a->floats().end()}));
      drop(n, "scales");
    } else if (n.input_size() > 1) {
      scales = n.input(1);
    }
    const char* nearest = "floor";
    if (n.op_type() == "Resize") {  // nearest rounds up where it makes smaller
      const ir::Tensor* values = m_.constant(scales);
      if (values == nullptr) return refuse(index, "the scales of Resize of opset 10 decide how it rounds, and they are computed");
      bool larger = false, smaller = false;
      for (std::int64_t i = 0; i < values->size(); ++i)
        larger = larger || values->at(i) > 1, smaller = smaller || values->at(i) < 1;
      if (larger && smaller)
        return refuse(index, "Resize of opset 10 rounds one way where it makes larger and another where it makes smaller");
      nearest = smaller ? "ceil" : "floor";
    }
    const auto* mode = attribute(n, "mode");
    const std::string kind = mode == nullptr ? "nearest" : mode->s();
    text(n, "mode", kind == "bilinear" ? "linear" : kind.c_str());
    text(n, "coordinate_transformation_mode", "asymmetric");
    text(n, "nearest_mode", nearest);
    n.set_op_type("Resize");
    while (n.input_size() < 3) n.add_input("");
    n.set_input(1, "");
    n.set_input(2, scales);
    return {};
  }

  /// Before opset 13 Softmax was over all dimensions from its axis on: x is flattened, and gets its shape back.
  void spread() {
    pb::GraphProto& g = m_.graph();
    google::protobuf::RepeatedPtrField<pb::NodeProto> old;
    old.Swap(g.mutable_node());
    for (int i = 0; i < old.size(); ++i) {
      const auto axis = flattened_.find(i);
      if (axis == flattened_.end()) {
        g.add_node()->Swap(old.Mutable(i));
        continue;
      }
      pb::NodeProto& n = *old.Mutable(i);
      const std::string x = n.input(0), y = n.output(0);
      const auto name = [&](const char* what) { return m_.fresh(y + "_" + what); };
      const std::string shape = name("shape"), flat = name("flat"), result = name("rows");
      const auto add = [&](const char* op, std::initializer_list<std::string> inputs, const std::string& output) {
        pb::NodeProto& made = *g.add_node();
        made.set_op_type(op);
        made.set_name(m_.fresh(output + "_node"));
        for (const std::string& in : inputs) made.add_input(in);
        made.add_output(output);
        return &made;
      };
      add("Shape", {x}, shape);
      auto* a = add("Flatten", {x}, flat)->add_attribute();
      a->set_name("axis");
      a->set_type(pb::AttributeProto::INT);
      a->set_i(axis->second);
      drop(n, "axis");  // the last by default
      n.set_input(0, flat);
      n.set_output(0, result);
      g.add_node()->Swap(&n);
      add("Reshape", {result, shape}, y);
    }
  }

  [[nodiscard]] bool of_matrix(const std::string& tensor) const {
    for (const pb::NodeProto& n : m_.graph().node()) {
      if (n.output_size() > 0 && n.output(0) == tensor) return n.op_type() == "Gemm" || n.op_type() == "Flatten";
    }
    return false;
  }

  Status node(int index) {
    pb::NodeProto& n = *m_.graph().mutable_node(index);
    const std::string op = n.op_type();
    if (!n.domain().empty() && n.domain() != "ai.onnx") return {};
    if (op == "Squeeze" || op == "Unsqueeze" || op == "ReduceSum") ints(n, "axes", 1);
    if (op == "Split") ints(n, "split", 1);
    if (op == "Clip") {
      number(n, "min", 1);
      number(n, "max", 2);
    }
    if (op == "Dropout") {
      drop(n, "ratio");  // without effect in inference
      if (from_ < 10 && n.output_size() > 1 && !n.output(1).empty()) return refuse(index, "the mask of Dropout was of floats");
    }
    if (op == "BatchNormalization") {
      const auto* spatial = attribute(n, "spatial");
      if (spatial != nullptr && spatial->i() == 0)
        return refuse(index, "BatchNormalization with a scale for each element is no longer there");
      drop(n, "spatial");
    }
    if (op == "TopK" && from_ < 10) {
      if (const auto* k = attribute(n, "k")) {
        put(n, 1, "k", ir::Tensor::of<std::int64_t>({1}, {k->i()}));
        drop(n, "k");
      }
    }
    if (op == "Scatter") n.set_op_type("ScatterElements");
    if (op == "Pad" && from_ < 11) {
      ints(n, "pads", 1);
      number(n, "value", 2);
    }
    if (op == "Slice" && from_ < 10) {
      ints(n, "starts", 1);
      ints(n, "ends", 2);
      ints(n, "axes", 3);
    }
    if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") {
      const auto* axis = attribute(n, "axis");
      if ((axis == nullptr || axis->i() == 1) && of_matrix(n.input(0))) {  // two dimensions: 1 is the last
        drop(n, "axis");
        return {};
      }
      if (axis == nullptr || axis->i() != -1) flattened_[index] = axis == nullptr ? 1 : axis->i();
    }
    if (op == "Resize" && n.input_size() > 3 &&
        !n.input(2).empty()) {  // opset 11 allows empty scales beside sizes, 13 one of the two
      if (const ir::Tensor* scales = m_.constant(n.input(2)); scales != nullptr && scales->size() == 0) n.set_input(2, "");
    }
    if (op == "Upsample" || (op == "Resize" && from_ < 11)) return resize(index, n);
    if (op == "Resize") {
      const auto* mode = attribute(n, "coordinate_transformation_mode");
      if (mode != nullptr && mode->s() == "tf_half_pixel_for_nn") return refuse(index, "Resize no longer has tf_half_pixel_for_nn");
    }
    if (op == "If" || op == "Loop" || op == "Scan") return refuse(index, "its subgraphs are of the old opset, too");
    return {};
  }

  Editor& m_;
  const std::int64_t from_;
  std::map<int, std::int64_t> flattened_;  ///< nodes whose axis is not the last, as far as the file says
};

}  // namespace

Status raise_opset(Editor& model) {
  if (model.opset() >= kWanted) return {};
  if (model.opset() < 7) {
    return fail(ErrorKind::unsupported, fmt::format("the model has opset {}: scales per channel need 13\n  convert it first: "
                                                    "onnx.version_converter.convert_version(model, 13)",
                                                    model.opset()));
  }
  return Raiser(model).run();
}

}  // namespace octavo::onnx
