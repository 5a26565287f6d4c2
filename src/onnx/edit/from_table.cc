#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onnx/edit/convert.h"
#include "onnx/edit/edit.h"
#include "onnx/edit/layers.h"
#include "onnx/edit/raise_opset.h"
#include "quant/weight_scales.h"

namespace octavo::onnx {
namespace {

const std::set<std::string> kWeighted{"Conv", "ConvTranspose", "Gemm", "MatMul"};
const std::set<std::string> kActivations{"Relu", "Clip", "Sigmoid", "Mul", "LeakyRelu", "HardSwish", "Tanh", "PRelu"};
const std::set<std::string> kOthers{"Add", "Concat", "MaxPool", "GlobalAveragePool", "AveragePool", "Resize", "Split", "Upsample"};

using Edge = std::pair<int, int>;  // node, input slot

class Inserter {
 public:
  Inserter(Editor& model, const QuantizedModel& quantized) : m_(model), quantized_(quantized) {}

  Result<PairResult> run(const std::string& placement) {
    if (placement != "inputs" && placement != "residual" && placement != "outputs" && placement != "borders")
      return fail(ErrorKind::usage, fmt::format("placement \"{}\": known are inputs, residual, borders and outputs", placement));
    OCTAVO_CHECK(raise_opset(m_));
    const int count = m_.graph().node_size();
    for (int i = 0; i < count; ++i) {
      if (m_.graph().node(i).op_type() == "QuantizeLinear")
        return fail(
            ErrorKind::usage,
            fmt::format("the model has Q/DQ pairs already (node \"{}\"): take them out first, with --to-table", m_.node_name(i)));
      for (const auto& o : m_.graph().node(i).output()) producer_[o] = i;
    }
    std::set<std::string> unused;
    for (const auto& [name, q] : quantized_.activations) unused.insert(name);
    std::set<std::string> missing;
    for (const Edge& e : edges(placement)) {
      const std::string tensor = m_.graph().node(e.first).input(e.second);
      unused.erase(tensor);
      if (quantized_.keep_float.contains(m_.node_name(e.first))) continue;
      const auto found = quantized_.activations.find(tensor);
      if (found == quantized_.activations.end() || !(found->second.scale[0] > 0) || !std::isfinite(found->second.scale[0])) {
        missing.insert(tensor);
        continue;
      }
      wanted_weights_.insert(e.first);
      if (e.second == 0) data_scale_[e.first] = found->second.scale[0];
      std::string& dq = pairs_[tensor];
      if (dq.empty()) {
        dq = pair(tensor, found->second);
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

  /// One pair before some readers of a tensor, and pairs on their float32 weights. False: none of them reads it by that name.
  bool add(const AddedPair& wanted) {
    bool found = false;
    for (int i = 0; i < m_.graph().node_size(); ++i) {
      const std::string op = m_.graph().node(i).op_type();
      if (!kWeighted.contains(op) || !wanted.readers.contains(m_.node_name(i)) || m_.graph().node(i).input(0) != wanted.tensor)
        continue;
      std::string& dq = pairs_[wanted.tensor];
      if (dq.empty()) dq = pair(wanted.tensor, wanted.quantizer);
      m_.graph().mutable_node(i)->set_input(0, dq);
      wanted_weights_.insert(i);
      data_scale_[i] = wanted.quantizer.scale[0];
      weights(i, op);
      found = true;
    }
    return found;
  }

  /// Nodes whose data and weights are quantized.
  [[nodiscard]] const std::set<std::string>& quantized() const { return names_; }

 private:
  std::string pair(const std::string& tensor, const ir::Quantizer& q) {
    return pair(tensor, ir::Tensor::of<float>({}, {q.scale[0]}), zero_point(q), -1);
  }
  static ir::Tensor zero_point(const ir::Quantizer& q) {
    const std::int32_t z = q.zero_point[0];
    return q.type == ir::DType::u8 ? ir::Tensor::of<std::uint8_t>({}, {static_cast<std::uint8_t>(z)})
                                   : ir::Tensor::of<std::int8_t>({}, {static_cast<std::int8_t>(z)});
  }
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
      const bool pools = n.op_type() == "AveragePool" || n.op_type() == "GlobalAveragePool" || n.op_type() == "ReduceMean";
      if (placement == "borders" && pools && !data.empty()) out.insert({i, 0});
      if ((placement == "residual" || placement == "borders") && n.op_type() == "Add" && data.size() == 2) {
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

  /// Adds QuantizeLinear (unless `codes` are given) and DequantizeLinear behind a tensor; gives the name of the result.
  std::string pair(const std::string& tensor, const ir::Tensor& scale, const ir::Tensor& zero, int axis,
                   const ir::Tensor* codes = nullptr) {
    const std::string s = m_.fresh(tensor + "_scale"), z = m_.fresh(tensor + "_zp"), q = m_.fresh(tensor + "_q"),
                      dq = m_.fresh(tensor + "_dq");
    m_.set_constant(s, scale);
    m_.set_constant(z, zero);
    if (codes != nullptr) m_.set_constant(q, *codes);
    for (const bool quantize : {true, false}) {
      if (quantize && codes != nullptr) continue;
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

  /// The least scale of each channel with which the float biases of all readers of these weights fit into int32 in steps of data scale x weight scale.
  /// Channels of zero or tiny weights need it: runtimes that quantize the bias would clip it.
  [[nodiscard]] std::vector<double> least_scales(const std::string& weights, std::size_t channels) const {
    constexpr double kMost = 2147483647.0 * 0.999;  // steps; the products of float scales round
    std::vector<double> least(channels, 0);
    for (const auto& [index, data_scale] : data_scale_) {
      const pb::NodeProto& n = m_.graph().node(index);
      if (n.input_size() < 3 || (n.input(1) != weights && n.input(1) != dequantized(weights))) continue;
      const ir::Tensor* bias = m_.constant(n.input(2));
      if (bias == nullptr || bias->dtype() != ir::DType::f32) continue;
      for (std::int64_t i = 0; i < bias->size(); ++i) {
        double& at = least[channels == 1 ? 0 : static_cast<std::size_t>(i) % channels];
        at = std::max(at, std::abs(bias->at(i)) / (kMost * data_scale));
      }
    }
    return least;
  }
  [[nodiscard]] std::string dequantized(const std::string& tensor) const {
    const auto at = pairs_.find(tensor);
    return at == pairs_.end() ? std::string() : at->second;
  }
  static void raise(std::vector<float>& scales, const std::vector<double>& least) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      if (static_cast<double>(scales[i]) < least[i]) scales[i] = static_cast<float>(least[i]);
    }
  }
  /// The same weights with scales that leave room for the biases.
  [[nodiscard]] CodedWeights with_room_for_bias(const std::string& name, CodedWeights c) const {
    const std::vector<float> before = c.scale;
    raise(c.scale, least_scales(name, c.scale.size()));
    if (c.scale == before) return c;
    const auto codes = c.codes.data<std::int8_t>();
    std::vector<std::int8_t> coarser(codes.begin(), codes.end());
    const auto step = c.axis < 0 ? std::int64_t{1} : ir::dense_strides(c.codes.shape())[static_cast<std::size_t>(c.axis)];
    for (std::size_t i = 0; i < coarser.size(); ++i) {
      const std::size_t k = c.axis < 0 ? 0 : static_cast<std::size_t>(static_cast<std::int64_t>(i) / step) % c.scale.size();
      coarser[i] = static_cast<std::int8_t>(std::nearbyint(static_cast<float>(coarser[i]) * (before[k] / c.scale[k])));
    }
    c.codes = ir::Tensor::of<std::int8_t>(c.codes.shape(), coarser);
    return c;
  }

  void weights(int index, const std::string& op) {
    const std::string name = m_.graph().node(index).input(1);
    const ir::Tensor* w = m_.constant(name);
    if (w == nullptr || w->shape().size() < 2 || w->dtype() != ir::DType::f32 || !wanted_weights_.contains(index)) return;
    names_.insert(m_.node_name(index));
    std::string& dq = pairs_[name];
    const auto one_or_more = [](const std::vector<float>& scales, int axis) {
      return axis < 0 ? ir::Tensor::of<float>({}, {scales[0]})
                      : ir::Tensor::of<float>({static_cast<std::int64_t>(scales.size())}, scales);
    };
    if (const auto coded = quantized_.weights.find(name); dq.empty() && coded != quantized_.weights.end()) {
      const CodedWeights c = with_room_for_bias(name, coded->second);
      const ir::Tensor scale = one_or_more(c.scale, c.axis);
      dq = pair(name, scale, ir::Tensor(ir::DType::s8, scale.shape()), c.axis, &c.codes);
    }
    if (dq.empty()) {
      std::int64_t group = 1;
      bool transposed = false;
      for (const auto& a : m_.graph().node(index).attribute()) {
        if (a.name() == "transB") transposed = a.i() != 0;
        if (a.name() == "group") group = a.i();
      }
      const ir::Op kind = op == "Conv" ? ir::Op::conv : op == "ConvTranspose" ? ir::Op::conv_transpose : ir::Op::gemm;
      const int axis = op == "Gemm" && transposed ? 0 : quant::weight_axis(kind, group);
      std::vector<float> scales = quant::weight_scales(*w, axis);
      raise(scales, least_scales(name, scales.size()));
      const ir::Tensor scale = one_or_more(scales, axis);
      dq = pair(name, scale, ir::Tensor(ir::DType::s8, scale.shape()), axis);
    }
    m_.graph().mutable_node(index)->set_input(1, dq);
  }

  Editor& m_;
  const QuantizedModel& quantized_;
  std::map<std::string, int> producer_;
  std::map<std::string, std::string> pairs_;
  std::map<int, float> data_scale_;  ///< of nodes whose data is quantized
  std::set<int> wanted_weights_;     ///< nodes whose data is quantized
  std::set<std::string> names_;      ///< of those whose weights are, too
  PairResult result_;
};

}  // namespace

Result<PairResult> from_table(Editor& model, const ir::Ranges& ranges, const std::string& placement) {
  QuantizedModel quantized;
  quantized.activations = ranges;
  return Inserter(model, quantized).run(placement);
}

Result<QuantizedResult> put_pairs(Editor& model, const QuantizedModel& quantized, const std::string& placement) {
  Inserter inserter(model, quantized);
  OCTAVO_TRY(auto put, inserter.run(placement));
  model.remove_nodes({});  // weights that only a quantizer read
  return QuantizedResult{put.pairs, inserter.quantized(), std::move(put.missing)};
}

Result<std::vector<std::string>> add_pairs(Editor& model, const std::vector<AddedPair>& pairs) {
  const QuantizedModel nothing;
  Inserter inserter(model, nothing);
  std::vector<std::string> not_found;
  if (!pairs.empty()) OCTAVO_CHECK(raise_opset(model));
  for (const AddedPair& p : pairs) {
    if (!inserter.add(p)) not_found.push_back(p.tensor);
  }
  return not_found;
}

Result<PairResult> pairs_into(const Parsed& parsed, const ir::Ranges& ranges, const std::string& placement,
                              const std::string& qdq_path) {
  OCTAVO_TRY(auto model, Editor::open(parsed));
  OCTAVO_TRY(auto result, from_table(model, ranges, placement));
  if (result.pairs > 0) OCTAVO_CHECK(model.save(qdq_path));
  return result;
}

}  // namespace octavo::onnx
