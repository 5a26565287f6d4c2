#include "onnx/edit/raise_opset.h"

#include <fmt/format.h>

#include <vector>

namespace octavo::onnx {
namespace {

constexpr std::int64_t kWanted = 13;

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
    if (op == "Dropout") drop(n, "ratio");  // without effect in inference
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
      if (axis == nullptr || axis->i() != -1)
        return refuse(index, fmt::format("{} before opset 13 flattens what follows its axis; only axis -1 means the same", op));
    }
    if (op == "Resize" && n.input_size() > 3 &&
        !n.input(2).empty()) {  // opset 11 allows empty scales beside sizes, 13 one of the two
      if (const ir::Tensor* scales = m_.constant(n.input(2)); scales != nullptr && scales->size() == 0) n.set_input(2, "");
    }
    if (op == "Upsample" || op == "Scatter" || (op == "Resize" && from_ < 11))
      return refuse(index, fmt::format("{} of opset {} is another operator there", op, from_));
    if (op == "If" || op == "Loop" || op == "Scan") return refuse(index, "its subgraphs are of the old opset, too");
    return {};
  }

  Editor& m_;
  const std::int64_t from_;
};

}  // namespace

Status raise_opset(Editor& model) {
  if (model.opset() >= kWanted) return {};
  if (model.opset() < 9) {
    return fail(ErrorKind::unsupported, fmt::format("the model has opset {}: scales per channel need 13\n  convert it first: "
                                                    "onnx.version_converter.convert_version(model, 13)",
                                                    model.opset()));
  }
  return Raiser(model).run();
}

}  // namespace octavo::onnx
