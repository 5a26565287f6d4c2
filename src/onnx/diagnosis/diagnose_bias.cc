// Biases: int32 codes that cannot hold them, that were clipped, or that two operators read in different units; accumulators.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "onnx/model/model_view.h"

namespace octavo::onnx {
namespace {

using Severity = Finding::Severity;
constexpr double kInt32 = 2147483647.0;

/// A weighted operator whose data and weights have constant scales.
struct Layer {
  std::string node, bias;         ///< the bias as the operator reads it
  const ir::Tensor* x = nullptr;  ///< scale of the data, one entry
  const ir::Tensor* x_zero = nullptr;
  const ir::Tensor* w = nullptr;  ///< scale of the weights
  const ir::Tensor* w_zero = nullptr;
  const ir::Tensor* codes = nullptr;  ///< of the weights; may be absent
  std::int64_t w_axis = 0;
  bool qlinear = false, x_unsigned = true;
  float factor = 1;

  [[nodiscard]] std::int64_t channels() const { return w->size(); }
  /// fl(sx * sw[c]): what one step of an int32 bias is worth.
  [[nodiscard]] double unit(std::int64_t c) const {
    return factor * (static_cast<float>(x->at(0)) * static_cast<float>(w->at(w->size() == 1 ? 0 : c)));
  }
};

std::optional<Layer> layer_of(const ModelView& m, const pb::NodeProto& n, const std::string& node) {
  Layer l;
  l.node = node;
  const auto in = [&](int i) { return i < n.input_size() ? n.input(i) : std::string(); };
  std::string x_zero;
  if (n.op_type() == "QLinearConv" || n.op_type() == "QGemm") {
    l.qlinear = true, l.x = m.constant(in(1)), l.w = m.constant(in(4)), l.codes = m.constant(in(3)), l.w_zero = m.constant(in(5));
    l.x_zero = m.constant(in(2));
    l.bias = n.op_type() == "QGemm" ? in(6) : in(8);
    l.w_axis = n.op_type() == "QGemm" && ModelView::attribute(n, "transB", 0) == 0 ? 1 : 0;
  } else if (n.op_type() == "Conv" || n.op_type() == "ConvTranspose" || n.op_type() == "Gemm") {
    const pb::NodeProto* dx = m.producer(in(0));
    const pb::NodeProto* dw = m.producer(in(1));
    if (dx == nullptr || dw == nullptr || dx->op_type() != "DequantizeLinear" || dw->op_type() != "DequantizeLinear")
      return std::nullopt;
    if (dx->input_size() < 2 || dw->input_size() < 2) return std::nullopt;
    l.x = m.constant(dx->input(1)), l.w = m.constant(dw->input(1)), l.codes = m.constant(dw->input(0));
    if (dx->input_size() > 2) l.x_zero = m.constant(dx->input(2));
    if (dw->input_size() > 2) l.w_zero = m.constant(dw->input(2));
    l.bias = in(2);
    l.w_axis = ModelView::attribute(*dw, "axis", 1);
  } else {
    return std::nullopt;
  }
  const auto usable = [](const ir::Tensor* t) {
    if (t == nullptr || !ir::is_float(t->dtype()) || t->size() == 0) return false;
    for (std::int64_t c = 0; c < t->size(); ++c) {
      if (!(t->at(c) > 0) || !std::isfinite(t->at(c))) return false;
    }
    return true;
  };
  if (!usable(l.x) || !usable(l.w) || l.x->size() != 1) return std::nullopt;
  l.x_unsigned = l.x_zero == nullptr || l.x_zero->dtype() == ir::DType::u8;
  return l;
}

/// The int32 codes behind a bias, and their own scale (Q/DQ form).
struct Coded {
  std::string name;
  const ir::Tensor* codes = nullptr;
  const ir::Tensor* scale = nullptr;
};
std::optional<Coded> coded_bias(const ModelView& m, const Layer& l) {
  if (l.bias.empty()) return std::nullopt;
  Coded c{l.bias, m.constant(l.bias), nullptr};
  if (!l.qlinear) {
    const pb::NodeProto* dq = m.producer(l.bias);
    if (dq == nullptr || dq->op_type() != "DequantizeLinear" || dq->input_size() < 2) return std::nullopt;
    c = {dq->input(0), m.constant(dq->input(0)), m.constant(dq->input(1))};
  }
  if (c.codes == nullptr || c.codes->dtype() != ir::DType::s32) return std::nullopt;
  return c;
}

/// A constant float bias that does not fit into int32 in units of sx * sw.
void overflow(const ModelView& m, const Layer& l, const Report& report) {
  const ir::Tensor* b = m.constant(l.bias);
  if (b == nullptr || !ir::is_float(b->dtype()) || (l.channels() > 1 && b->size() != l.channels())) return;
  std::int64_t count = 0, worst = 0;
  double largest = 0;
  for (std::int64_t c = 0; c < b->size(); ++c) {
    const double steps = std::abs(b->at(c) / l.unit(c));
    if (!(steps > kInt32)) continue;
    ++count;
    if (steps > largest) largest = steps, worst = c;
  }
  if (count == 0) return;
  report({Severity::warning,
          "bias-overflow",
          l.bias,
          {l.node},
          fmt::format(
              "{} of {} entries do not fit into an int32 bias; the worst, {:.6g} of channel {}, is {:.4g} steps of input scale x "
              "weight scale = {:.4g}, int32 ends at 2.147e+09. Octavo adds this bias in float; runtimes that quantize it clip it. "
              "Probably the weights of that channel are almost zero: give them a larger scale",
              count, b->size(), b->at(worst), worst, largest, l.unit(worst))});
}

/// Codes at the ends of int32: the quantizer clipped them.
void clipped(const Coded& b, const Layer& l, const Report& report) {
  std::int64_t count = 0, first = 0;
  const auto codes = b.codes->data<std::int32_t>();
  for (std::int64_t c = b.codes->size(); c-- > 0;) {
    const std::int64_t v = codes[static_cast<std::size_t>(c)];
    if (std::abs(v) >= std::numeric_limits<std::int32_t>::max()) ++count, first = c;
  }
  if (count == 0) return;
  report({Severity::warning,
          "bias-clipped",
          b.name,
          {l.node},
          fmt::format("{} of {} codes are at the limits of int32 (channel {} is {}): the tool that quantized this bias clipped it, "
                      "and its value "
                      "is lost. Give the weights of that channel a larger scale, and quantize again",
                      count, b.codes->size(), first, codes[static_cast<std::size_t>(first)])});
}

/// What the accumulator can reach: sum |w - zw| * max |x - zx|, and the bias.
void accumulator(const Layer& l, const std::optional<Coded>& bias, const Report& report) {
  if (l.codes == nullptr || !ir::is_int8(l.codes->dtype()) || l.codes->shape().empty()) return;
  const auto rank = static_cast<std::int64_t>(l.codes->shape().size());
  const std::int64_t axis = l.channels() > 1 ? (l.w_axis < 0 ? l.w_axis + rank : l.w_axis) : 0;
  if (axis < 0 || axis >= rank) return;
  const std::int64_t channels = l.codes->shape()[static_cast<std::size_t>(axis)];
  if (channels == 0) return;
  const std::int64_t stride = ir::dense_strides(l.codes->shape())[static_cast<std::size_t>(axis)];
  const double zx = l.x_zero != nullptr ? l.x_zero->at(0) : 0;
  const double lo = l.x_unsigned ? 0 : -128, hi = l.x_unsigned ? 255 : 127, reach = std::max(hi - zx, zx - lo);
  std::vector<double> sum(static_cast<std::size_t>(channels), 0);
  for (std::int64_t i = 0; i < l.codes->size(); ++i) {
    const std::int64_t c = i / stride % channels;
    const double zw = l.w_zero == nullptr ? 0 : l.w_zero->at(l.w_zero->size() == channels ? c : 0);
    sum[static_cast<std::size_t>(c)] += std::abs(l.codes->at(i) - zw) * reach;
  }
  std::int64_t worst = -1;
  double largest = kInt32;
  for (std::int64_t c = 0; c < channels; ++c) {
    double total = sum[static_cast<std::size_t>(c)];
    if (bias && bias->codes->size() == channels) total += std::abs(bias->codes->at(c));
    if (total > largest) largest = total, worst = c;
  }
  if (worst < 0) return;
  report({Severity::warning,
          "accumulator-overflow",
          bias ? bias->name : l.bias,
          {l.node},
          fmt::format("the sum of channel {} can reach {:.4g}, int32 ends at 2.147e+09 (products up to {:.4g}, the rest is the "
                      "bias). Octavo adds "
                      "the bias in float, or computes the operator in float; runtimes that accumulate both in int32 wrap around",
                      worst, largest, sum[static_cast<std::size_t>(worst)])});
}

}  // namespace

void diagnose_biases(const ModelView& m, const Report& report) {
  std::map<std::string, std::vector<std::pair<Layer, Coded>>> readers;
  std::set<std::string> seen;
  for (int i = 0; i < m.graph().node_size(); ++i) {
    if (!m.live(i)) continue;
    const auto l = layer_of(m, m.graph().node(i), m.name_of(i));
    if (!l) continue;
    const auto coded = coded_bias(m, *l);
    if (!l->bias.empty() && !coded) overflow(m, *l, report);
    if (coded && seen.insert(coded->name).second) clipped(*coded, *l, report);
    accumulator(*l, coded, report);
    if (coded) readers[coded->name].emplace_back(*l, *coded);
  }
  for (const auto& [name, list] : readers) {
    const auto& [first, bias] = list.front();
    for (const auto& [other, same] : list) {
      if (other.unit(0) == first.unit(0)) continue;
      std::vector<std::string> nodes;
      for (const auto& [l, b] : list) nodes.push_back(l.node);
      const std::string own = bias.scale != nullptr ? fmt::format("; its own scale is {:.6g}", bias.scale->at(0)) : "";
      report(
          {Severity::warning, "shared-bias", name, std::move(nodes),
           fmt::format(
               "these int32 codes are the bias of {} operators whose steps differ: input scale x weight scale is {:.6g} in {} and "
               "{:.6g} in {}{}. {}. Give each operator a bias of its own",
               list.size(), first.unit(0), first.node, other.unit(0), other.node, own,
               first.qlinear ? "The same codes are different values there, so at most one of them is right"
                             : "Octavo uses the bias's own scale; runtimes that read the codes in steps of the operator are wrong "
                               "in all but one")});
      break;
    }
  }
}

}  // namespace octavo::onnx
