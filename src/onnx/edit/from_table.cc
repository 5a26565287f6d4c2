#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onnx/edit/convert.h"
#include "onnx/edit/edit.h"
#include "quant/weight_scales.h"

namespace octavo::onnx {
namespace {

const std::set<std::string> kWeighted{"Conv", "ConvTranspose", "Gemm", "MatMul"};
const std::set<std::string> kActivations{"Relu", "Clip", "Sigmoid", "Mul", "LeakyRelu", "HardSwish", "Tanh", "PRelu"};
const std::set<std::string> kOthers{"Add", "Concat", "MaxPool", "GlobalAveragePool", "AveragePool", "Resize", "Split", "Upsample"};

using Edge = std::pair<int, int>;  // node, input slot

class Inserter {
 public:
  Inserter(Editor& model, const std::map<std::string, float>& scales) : m_(model), scales_(scales) {}

  Result<PairResult> run(const std::string& placement) {
    if (placement != "inputs" && placement != "residual" && placement != "outputs")
      return fail(ErrorKind::usage, fmt::format("placement \"{}\": known are inputs, residual and outputs", placement));
    if (m_.opset() < 13) {
      return fail(ErrorKind::unsupported, fmt::format("the model has opset {}: scales per channel need 13\n  convert it first: "
                                                      "onnx.version_converter.convert_version(model, 13)",
                                                      m_.opset()));
    }
    const int count = m_.graph().node_size();
    for (int i = 0; i < count; ++i) {
      if (m_.graph().node(i).op_type() == "QuantizeLinear")
        return fail(
            ErrorKind::usage,
            fmt::format("the model has Q/DQ pairs already (node \"{}\"): take them out first, with --to-table", m_.node_name(i)));
      for (const auto& o : m_.graph().node(i).output()) producer_[o] = i;
    }
    std::set<std::string> unused;
    for (const auto& [name, s] : scales_) unused.insert(name);
    std::set<std::string> missing;
    for (const Edge& e : edges(placement)) {
      const std::string tensor = m_.graph().node(e.first).input(e.second);
      unused.erase(tensor);
      const auto found = scales_.find(tensor);
      if (found == scales_.end() || !(found->second > 0) || !std::isfinite(found->second)) {
        missing.insert(tensor);
        continue;
      }
      wanted_weights_.insert(e.first);
      std::string& dq = pairs_[tensor];
      if (dq.empty()) {
        dq = pair(tensor, ir::Tensor::of<float>({}, {found->second}), -1);
        ++result_.pairs;
      }
      m_.graph().mutable_node(e.first)->set_input(e.second, dq);
    }
    for (int i = 0; i < count; ++i) {
      const std::string op = m_.graph().node(i).op_type();
      if (!kWeighted.contains(op) || m_.graph().node(i).input_size() < 2) continue;
      weights(i, op);
    }
    OCTAVO_CHECK(m_.sort());
    result_.missing.assign(missing.begin(), missing.end());
    result_.unused.assign(unused.begin(), unused.end());
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool variable(const std::string& tensor) const { return !tensor.empty() && m_.constant(tensor) == nullptr; }

  /// Does a convolution or product make it, but for BatchNormalization?
  [[nodiscard]] bool from_weighted(std::string tensor) const {
    for (;;) {
      const auto at = producer_.find(tensor);
      if (at == producer_.end()) return false;
      const pb::NodeProto& n = m_.graph().node(at->second);
      if (n.op_type() == "Conv" || n.op_type() == "Gemm" || n.op_type() == "MatMul") return true;
      if (n.op_type() != "BatchNormalization") return false;
      tensor = n.input(0);
    }
  }

  [[nodiscard]] std::set<Edge> edges(const std::string& placement) const {
    std::set<Edge> out;
    for (int i = 0; i < m_.graph().node_size(); ++i) {
      const pb::NodeProto& n = m_.graph().node(i);
      std::vector<int> data;
      for (int s = 0; s < n.input_size(); ++s) {
        if (variable(n.input(s))) data.push_back(s);
      }
      if (kWeighted.contains(n.op_type()) && !data.empty()) out.insert({i, data[0]});
      if (n.op_type() == "MatMul") {
        for (const int s : data) out.insert({i, s});
      }
      if (placement == "residual" && n.op_type() == "Add" && data.size() == 2) {
        for (const int s : data) {
          if (!from_weighted(n.input(s))) out.insert({i, s});
        }
      }
      if (placement == "outputs") {
        for (const int s : data) {
          const auto made = producer_.find(n.input(s));
          if (made == producer_.end()) continue;
          const std::string& op = m_.graph().node(made->second).op_type();
          if (kWeighted.contains(op) || kActivations.contains(op) || kOthers.contains(op)) out.insert({i, s});
        }
      }
    }
    return out;
  }

  /// Adds QuantizeLinear and DequantizeLinear behind a tensor; gives the name of the result.
  std::string pair(const std::string& tensor, const ir::Tensor& scale, int axis) {
    const std::string s = m_.fresh(tensor + "_scale"), z = m_.fresh(tensor + "_zp"), q = m_.fresh(tensor + "_q"),
                      dq = m_.fresh(tensor + "_dq");
    m_.set_constant(s, scale);
    m_.set_constant(z, ir::Tensor(ir::DType::s8, scale.shape()));
    for (const bool quantize : {true, false}) {
      pb::NodeProto* n = m_.graph().add_node();
      n->set_op_type(quantize ? "QuantizeLinear" : "DequantizeLinear");
      n->set_name(m_.fresh(tensor + (quantize ? "_Q" : "_DQ")));
      n->add_input(quantize ? tensor : q);
      n->add_input(s);
      n->add_input(z);
      n->add_output(quantize ? q : dq);
      if (axis < 0) continue;
      pb::AttributeProto* a = n->add_attribute();
      a->set_name("axis");
      a->set_type(pb::AttributeProto::INT);
      a->set_i(axis);
    }
    return dq;
  }

  void weights(int index, const std::string& op) {
    const std::string name = m_.graph().node(index).input(1);
    const ir::Tensor* w = m_.constant(name);
    if (w == nullptr || w->shape().size() < 2 || w->dtype() != ir::DType::f32 || !wanted_weights_.contains(index)) return;
    std::string& dq = pairs_[name];
    if (dq.empty()) {
      std::int64_t group = 1;
      bool transposed = false;
      for (const auto& a : m_.graph().node(index).attribute()) {
        if (a.name() == "transB") transposed = a.i() != 0;
        if (a.name() == "group") group = a.i();
      }
      const ir::Op kind = op == "Conv" ? ir::Op::conv : op == "ConvTranspose" ? ir::Op::conv_transpose : ir::Op::gemm;
      const int axis = op == "Gemm" && transposed ? 0 : quant::weight_axis(kind, group);
      const auto scales = quant::weight_scales(*w, axis);
      dq = pair(
          name,
          axis < 0 ? ir::Tensor::of<float>({}, scales) : ir::Tensor::of<float>({static_cast<std::int64_t>(scales.size())}, scales),
          axis);
    }
    m_.graph().mutable_node(index)->set_input(1, dq);
  }

  Editor& m_;
  const std::map<std::string, float>& scales_;
  std::map<std::string, int> producer_;
  std::map<std::string, std::string> pairs_;
  std::set<int> wanted_weights_;  ///< nodes whose data is quantized
  PairResult result_;
};

}  // namespace

Result<PairResult> from_table(Editor& model, const std::map<std::string, float>& scales, const std::string& placement) {
  return Inserter(model, scales).run(placement);
}

Result<PairResult> pairs_into_file(const std::string& path, const std::map<std::string, float>& scales,
                                   const std::string& placement, const std::string& qdq_path) {
  OCTAVO_TRY(auto model, Editor::open(path));
  OCTAVO_TRY(auto result, from_table(model, scales, placement));
  if (result.pairs > 0) OCTAVO_CHECK(model.save(qdq_path));
  return result;
}

}  // namespace octavo::onnx
