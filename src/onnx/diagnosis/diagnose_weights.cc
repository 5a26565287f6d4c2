// Weights of convolutions and products: the axis of their scales, and whether their values fit what the codes hold.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "onnx/model/model_view.h"

namespace octavo::onnx {
namespace {

using Severity = Finding::Severity;

/// Coded weights of a node: the constant (codes, or values in front of QuantizeLinear), scale, zero point, axis.
struct Weights {
  std::string name, scale_name;
  const ir::Tensor* data = nullptr;
  const ir::Tensor* scale = nullptr;
  const ir::Tensor* zero = nullptr;
  std::int64_t axis = 0;
  bool coded = true;  ///< data holds codes
  int lo = -128, hi = 127;
  std::vector<double> scales, zeros;  ///< the values of scale and zero; none without a zero point
};

std::vector<double> values_of(const ir::Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.size(); ++i) out.push_back(t.at(i));
  return out;
}

std::optional<Weights> weights_of(const ModelView& m, const pb::NodeProto& n) {
  if (n.input_size() < 2) return std::nullopt;
  const pb::NodeProto* dq = m.producer(n.input(1));
  if (dq == nullptr || dq->op_type() != "DequantizeLinear" || dq->input_size() < 2) return std::nullopt;
  Weights w;
  w.name = dq->input(0), w.scale_name = dq->input(1);
  w.data = m.constant(w.name), w.scale = m.constant(w.scale_name);
  w.zero = dq->input_size() > 2 ? m.constant(dq->input(2)) : nullptr;
  w.axis = ModelView::attribute(*dq, "axis", 1);
  if (w.data == nullptr) {
    const pb::NodeProto* q = m.producer(w.name);
    if (q == nullptr || q->op_type() != "QuantizeLinear" || q->input_size() < 2) return std::nullopt;
    w.name = q->input(0), w.data = m.constant(w.name), w.coded = false;
    if (w.data == nullptr || !ir::is_float(w.data->dtype())) return std::nullopt;
  }
  const ir::DType codes = w.coded ? w.data->dtype() : w.zero != nullptr ? w.zero->dtype() : ir::DType::u8;
  if (w.scale == nullptr || !ir::is_float(w.scale->dtype()) || !ir::is_int8(codes)) return std::nullopt;
  if (codes == ir::DType::u8) w.lo = 0, w.hi = 255;
  w.scales = values_of(*w.scale);  // asked for every weight where the axis is the last one
  if (w.zero != nullptr) w.zeros = values_of(*w.zero);
  if (w.axis < 0) w.axis += static_cast<std::int64_t>(w.data->shape().size());
  return w;
}

/// The dimension of the weights that counts output channels; -1 for operators without weights.
std::int64_t output_axis(const pb::NodeProto& n, std::size_t rank) {
  if (n.op_type() == "Conv") return 0;
  if (n.op_type() == "ConvTranspose") return 1;
  if (n.op_type() == "Gemm") return ModelView::attribute(n, "transB", 0) != 0 ? 0 : 1;
  if (n.op_type() == "MatMul") return static_cast<std::int64_t>(rank) - 1;
  return -1;
}

double entry(const std::vector<double>& values, std::int64_t c) {
  const auto i = values.size() == 1 ? 0 : static_cast<std::size_t>(c);
  return i < values.size() ? values[i] : 0;
}
double scale_at(const Weights& w, std::int64_t c) {
  return entry(w.scales, c);
}
double zero_at(const Weights& w, std::int64_t c) {
  return entry(w.zeros, c);
}

/// visit(c, run) for every run of `stride` values that lie in one channel c; channels go round from 0 to entries - 1.
template <class Visit>
void each_channel(std::span<const float> values, std::int64_t stride, std::int64_t entries, const Visit& visit) {
  const auto length = static_cast<std::size_t>(stride);
  std::int64_t c = 0;
  for (std::size_t i = 0; i + length <= values.size() && length > 0; i += length, c = c + 1 == entries ? 0 : c + 1) {
    visit(c, values.subspan(i, length));
  }
}

/// The least and the greatest of a run, which decide for all of it what grows with the weights: one comparison a weight, no division. NaN is passed
/// over; of nothing else {infinity, -infinity}.
struct Ends {
  float lo = std::numeric_limits<float>::infinity(), hi = -lo;
};
Ends ends_of(std::span<const float> run) {
  Ends e;
  for (const float v : run) {
    e.lo = v < e.lo ? v : e.lo;
    e.hi = v > e.hi ? v : e.hi;
  }
  return e;
}

/// How far channel c of `axis` reaches, as a part of what the scale's codes can hold: 1 for weights quantized by max / 127.
std::vector<double> reach(const Weights& w, std::int64_t axis) {
  const std::int64_t entries = w.scale->size(), stride = ir::dense_strides(w.data->shape())[static_cast<std::size_t>(axis)];
  std::vector<double> largest(static_cast<std::size_t>(entries), 0);
  const double half = (w.hi - w.lo) / 2.0 - 0.5;  // 127
  const ir::Tensor values = w.data->to_f32();
  each_channel(values.data<float>(), stride, entries, [&](std::int64_t c, std::span<const float> run) {
    double& most = largest[static_cast<std::size_t>(c)];
    const double zero = zero_at(w, c), whole = w.coded ? half : scale_at(w, c) * half;
    const Ends ends = ends_of(run);
    if (ends.lo > ends.hi) return;
    for (const float v : {ends.lo, ends.hi}) most = std::max(most, std::abs((w.coded ? v - zero : v) / whole));
  });
  return largest;
}

/// The share of channels whose largest weight is what their scale was made for.
double fit(const Weights& w, std::int64_t axis) {
  const std::vector<double> r = reach(w, axis);
  const auto fits = std::count_if(r.begin(), r.end(), [](double v) { return v > 0.985 && v < 1.02; });
  return static_cast<double>(fits) / static_cast<double>(r.size());
}

void axis_of(const Weights& w, const pb::NodeProto& n, const std::string& node, const Report& report) {
  const auto rank = static_cast<std::int64_t>(w.data->shape().size());
  const std::int64_t entries = w.scale->size(), out = output_axis(n, w.data->shape().size());
  if (entries < 2 || w.axis < 0 || w.axis >= rank || w.data->shape()[static_cast<std::size_t>(w.axis)] != entries) return;
  const std::int64_t group = ModelView::attribute(n, "group", 1);
  const bool grouped = n.op_type() == "ConvTranspose" && group > 1;  // [C, O/g, ...]: no dimension counts the output channels
  std::string text;
  if (w.axis != out && !grouped && out >= 0 && out < rank) {
    text = fmt::format(
        "{} scales along axis {} of {}, but the output channels of {} are dimension {}: each sum mixes scales, and the "
        "operator runs in float. Quantize along axis {}",
        entries, w.axis, ir::to_string(w.data->shape()), n.op_type(), out, out);
  }
  for (std::int64_t k = 0; text.empty() && k < rank; ++k) {
    if (k == w.axis || w.data->shape()[static_cast<std::size_t>(k)] != entries) continue;
    const double here = fit(w, w.axis), there = fit(w, k);
    if (here > 0.5 || there < 0.95) continue;
    text = fmt::format(
        "the scales are along axis {} of {}, where they are right for the largest weight of {:.0f} % of the channels; along "
        "axis {} for {:.0f} %. Likely they were computed along axis {}: set it on the Q/DQ nodes, or quantize again",
        w.axis, ir::to_string(w.data->shape()), 100 * here, k, 100 * there, k);
  }
  if (!text.empty()) report({Severity::warning, "axis", w.scale_name, {node}, std::move(text)});
}

void saturation_of(const Weights& w, const std::string& node, const Report& report) {
  const auto rank = static_cast<std::int64_t>(w.data->shape().size());
  const std::int64_t entries = w.scale->size();
  if (entries > 1 && (w.axis < 0 || w.axis >= rank || w.data->shape()[static_cast<std::size_t>(w.axis)] != entries)) return;
  const std::int64_t stride = entries > 1 ? ir::dense_strides(w.data->shape())[static_cast<std::size_t>(w.axis)] : w.data->size();
  std::int64_t beyond = 0;
  double worst = 0, value = 0, range = 0;
  const ir::Tensor values = w.data->to_f32();
  each_channel(values.data<float>(), stride, entries, [&](std::int64_t c, std::span<const float> run) {
    const double zero = zero_at(w, c), s = scale_at(w, c);
    const auto beyond_by = [&](float v) {
      const double code = v / s + zero;
      return std::max(w.lo - code, code - w.hi);
    };
    constexpr double kRounding = 0.75;  // of a code: half a code is rounding
    if (const Ends ends = ends_of(run); !w.coded && !(beyond_by(ends.lo) > kRounding) && !(beyond_by(ends.hi) > kRounding)) return;
    for (const float v : run) {
      if (w.coded) {
        if (v == w.lo || v == w.hi || (w.lo < 0 && v == -127)) ++beyond;
        continue;
      }
      const double over = beyond_by(v);
      if (!(over > kRounding)) continue;
      ++beyond;
      if (over > worst) worst = over, value = v, range = s * (value < 0 ? w.lo - zero : w.hi - zero);
    }
  });
  // The largest weight of each channel is at an end by right.
  const auto clipped = static_cast<double>(w.coded ? std::max<std::int64_t>(0, beyond - entries) : beyond);
  const double share = clipped / static_cast<double>(std::max<std::int64_t>(1, w.data->size()));
  constexpr double kManyAtTheEnds = 0.1;
  if (w.coded && share > kManyAtTheEnds && w.data->size() >= 256) {
    report({Severity::warning,
            "saturating-weights",
            w.name,
            {node},
            fmt::format("{:.0f} % of the {} codes are the smallest or the largest code (one for each channel is expected and not "
                        "counted): the scale was too small and clipped the weights; "
                        "quantize again",
                        100 * share, w.data->size())});
  }
  if (!w.coded && beyond > 0) {
    report(
        {Severity::warning,
         "saturating-weights",
         w.name,
         {node},
         fmt::format(
             "{} of {} weights are beyond what the scale \"{}\" can hold and are clipped; the worst is {:.4g}, clipped to {:.4g}. "
             "Use scales of max / 127",
             beyond, w.data->size(), w.scale_name, value, range)});
  }
}

/// Scales that are far too wide for the weights: they were taken of others, as of weights that were trained on since.
void unused_codes_of(const Weights& w, const std::string& node, const Report& report) {
  const auto rank = static_cast<std::int64_t>(w.data->shape().size());
  const std::int64_t entries = w.scale->size();
  if (entries > 1 && (w.axis < 0 || w.axis >= rank || w.data->shape()[static_cast<std::size_t>(w.axis)] != entries)) return;
  const std::int64_t stride = entries > 1 ? ir::dense_strides(w.data->shape())[static_cast<std::size_t>(w.axis)] : w.data->size();
  std::vector<double> used(static_cast<std::size_t>(entries));  // the largest part of the codes on one side of zero, by channel
  const ir::Tensor values = w.data->to_f32();
  each_channel(values.data<float>(), stride, entries, [&](std::int64_t c, std::span<const float> run) {
    const double zero = zero_at(w, c), s = scale_at(w, c), whole = std::max(w.hi - zero, zero - w.lo);
    double& most = used[static_cast<std::size_t>(c)];
    const Ends ends = ends_of(run);
    if (ends.lo > ends.hi) return;
    for (const float v : {ends.lo, ends.hi}) most = std::max(most, (w.coded ? std::abs(v - zero) : std::abs(v / s)) / whole);
  });
  constexpr double kFew = 0.25, kManyChannels = 0.1;
  std::int64_t channels = 0, narrow = 0;  // channels of nothing but 0 may have any scale
  double least = 1;
  for (const double part : used) {
    if (part <= 0) continue;
    ++channels;
    if (part >= kFew) continue;
    ++narrow;
    least = std::min(least, part);
  }
  if (static_cast<double>(narrow) <= kManyChannels * static_cast<double>(channels)) return;
  const std::string where = entries > 1 ? fmt::format("{} of {} channels", narrow, channels) : "the tensor";
  report({Severity::warning,
          "unused-weight-codes",
          w.name,
          {node},
          fmt::format(
              "in {} the largest weight is below a quarter of what the scale \"{}\" can hold, at worst {:.3g} %: the scale and the "
              "weights disagree. Probably the weights were changed after the scales were computed, for example by further "
              "training; compute the scales again: max / 127",
              where, w.scale_name, 100 * least)});
}

}  // namespace

void diagnose_weights(const ModelView& m, const Report& report) {
  std::set<std::string> seen;
  for (int i = 0; i < m.graph().node_size(); ++i) {
    const pb::NodeProto& n = m.graph().node(i);
    if (!m.live(i) || output_axis(n, 2) < 0) continue;
    const auto w = weights_of(m, n);
    if (!w || w->data->size() == 0) continue;
    bool usable = true;
    for (std::int64_t c = 0; c < w->scale->size(); ++c) usable = usable && w->scale->at(c) > 0 && std::isfinite(w->scale->at(c));
    if (!usable || !seen.insert(w->name + "\n" + w->scale_name).second) continue;
    axis_of(*w, n, m.name_of(i), report);
    saturation_of(*w, m.name_of(i), report);
    unused_codes_of(*w, m.name_of(i), report);
  }
}

}  // namespace octavo::onnx
