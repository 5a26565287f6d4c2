// Calibration tables, against what the model's operators say about their results and against a second table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/model/model_view.h"

namespace octavo::onnx {
namespace {

using Severity = Finding::Severity;

/// The largest magnitude that the operator behind a tensor can produce; 0: not known.
double bound_of(const ModelView& m, const std::string& tensor) {
  const pb::NodeProto* n = m.producer(tensor);
  if (n == nullptr) return 0;
  const std::string& op = n->op_type();
  if (op == "Sigmoid" || op == "HardSigmoid" || op == "Softmax" || op == "Tanh" || op == "Softsign") return 1;
  if (op != "Clip") return 0;
  double lo = -INFINITY, hi = INFINITY;
  for (const auto& a : n->attribute()) (a.name() == "min" ? lo : hi) = static_cast<double>(a.f());
  const auto given = [&](int i, double& v) {
    const ir::Tensor* t = i < n->input_size() ? m.constant(n->input(i)) : nullptr;
    if (t != nullptr && t->size() == 1) v = t->at(0);
  };
  given(1, lo), given(2, hi);
  const double bound = std::max(std::abs(lo), std::abs(hi));
  return std::isfinite(bound) ? bound : 0;
}

std::vector<std::string> readers(const ModelView& m, const std::string& tensor) {
  std::vector<std::string> out;
  for (int i = 0; i < m.graph().node_size(); ++i) {
    for (const auto& in : m.graph().node(i).input()) {
      if (in == tensor && (out.empty() || out.back() != m.name_of(i))) out.push_back(m.name_of(i));
    }
  }
  return out;
}

/// Of the value farther from 0.
double magnitude(const ir::Quantizer& q) {
  const ir::Ends ends = ir::ends_of(q);
  return std::max(-ends.lo, ends.hi);
}
/// How many codes stand between 0 and that value.
double codes(const ir::Quantizer& q) {
  return std::round(magnitude(q) / static_cast<double>(q.scale[0]));
}

/// A layer that reads a concatenation reads all of it by one scale, that of the widest part.
void unlike_parts(const ModelView& m, const ir::Ranges& ranges, const Report& report) {
  constexpr double kUnlike = 16;
  const auto range_of = [&](const std::string& tensor) -> const ir::Quantizer* {
    const auto at = ranges.find(tensor);
    return at != ranges.end() && at->second.scale[0] > 0 && std::isfinite(at->second.scale[0]) ? &at->second : nullptr;
  };
  for (int i = 0; i < m.graph().node_size(); ++i) {
    const pb::NodeProto& n = m.graph().node(i);
    if (!m.live(i) || n.op_type() != "Concat") continue;
    std::vector<std::string> layers;
    for (int k = 0; k < m.graph().node_size(); ++k) {
      const pb::NodeProto& r = m.graph().node(k);
      const bool weighted =
          r.op_type() == "Conv" || r.op_type() == "ConvTranspose" || r.op_type() == "Gemm" || r.op_type() == "MatMul";
      if (m.live(k) && weighted && r.input_size() > 1 && r.input(0) == n.output(0) && m.constant(r.input(1)) != nullptr)
        layers.push_back(m.name_of(k));
    }
    if (layers.empty()) continue;
    const ir::Quantizer* whole = range_of(n.output(0));
    for (const std::string& part : n.input()) {  // without a range of its own it takes the widest
      const ir::Quantizer* of_part = range_of(part);
      if (!range_of(n.output(0)) && of_part != nullptr) whole = whole == nullptr ? of_part : &ir::wider(*whole, *of_part);
    }
    for (const std::string& part : n.input()) {
      const ir::Quantizer* own = range_of(part);
      if (own == nullptr || whole == nullptr || magnitude(*own) * kUnlike >= magnitude(*whole)) continue;
      report(
          {Severity::warning, "unlike-parts", part, layers,
           fmt::format("its range in the table is {:.4g}, that of the concatenation \"{}\" {:.4g}: of this part {} keeps {:.0f} of "
                       "{:.0f} codes. octavo doctor --data shows what that costs; --precision {}=float32 keeps the layer float",
                       magnitude(*own), n.output(0), magnitude(*whole), layers.front(),
                       codes(*whole) * magnitude(*own) / magnitude(*whole), codes(*whole), layers.front())});
    }
  }
}

}  // namespace

void diagnose_ranges(const ModelView& m, const DiagnoseOptions& options, const Report& report) {
  std::vector<std::string> unknown;
  std::int64_t bounded = 0, whole = 0;
  for (const auto& entry : options.ranges) {
    const std::string& tensor = entry.first;
    const float scale = entry.second.scale[0];
    if (!m.knows(tensor)) {
      unknown.push_back(tensor);
      continue;
    }
    const auto say = [&](const char* rule, std::string text) {
      report({Severity::warning, rule, tensor, readers(m, tensor), std::move(text)});
    };
    const double range = magnitude(entry.second);
    if (scale == 0 || !std::isfinite(scale)) {
      say("unusable-range",
          fmt::format("its range in the table is {}: it stays in float. Calibration saw {}", range,
                      scale == 0 ? "only zeros; use data that the tensor reacts to" : "an infinity or an overflow"));
      continue;
    }
    if (scale < std::numeric_limits<float>::min())
      say("denormal-scale", fmt::format("its scale in the table is {}, below the smallest normal float32; it is almost 0", scale));
    const double bound = bound_of(m, tensor);
    if (bound == 0) continue;
    const std::string op = m.producer(tensor)->op_type();
    ++bounded, whole += std::abs(range / bound - 1) < 1e-3 ? 1 : 0;
    if (range < 0.9 * bound) {
      say("saturating-range",
          fmt::format("its range in the table is {:.4g}, but {} gives values up to {:.4g}: those beyond are clipped. Use {:.4g}",
                      range, op, bound, bound));
    } else if (range > 2 * bound) {
      say("wide-range",
          fmt::format(
              "its range in the table is {:.4g}, but {} gives at most {:.4g}: only {:.0f} of {:.0f} codes are used. Use {:.4g}",
              range, op, bound, codes(entry.second) * bound / range, codes(entry.second), bound));
    }
  }
  unlike_parts(m, options.ranges, report);
  if (!unknown.empty()) {
    const std::size_t some = std::min<std::size_t>(unknown.size(), 5);
    report({Severity::warning,
            "unknown-tensor",
            unknown[0],
            {},
            fmt::format("{} of {} ranges name no tensor of this model: {}{}. The table is of another export; calibrate this file",
                        unknown.size(), options.ranges.size(),
                        fmt::join(unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(some), ", "),
                        unknown.size() > some ? ", ..." : "")});
  }
  if (options.algorithm.find("Entropy") == std::string::npos) return;
  constexpr double kAlmostAll = 0.9;
  std::int64_t common = 0, equal = 0;
  std::string example;
  for (const auto& [tensor, seen] : options.minmax) {
    const auto at = options.ranges.find(tensor);
    if (at == options.ranges.end() || !(magnitude(seen) > 0) || !(magnitude(at->second) > 0)) continue;
    ++common;
    if (std::abs(magnitude(at->second) / magnitude(seen) - 1) < 1e-4) ++equal, example = tensor;
  }
  const std::string advice =
      "Entropy calibration that clips nothing equals min-max (ONNX Runtime's does with its default bins): calibrate "
      "with 2048 "
      "bins, or name the table MinMaxCalibration";
  if (common >= 4 && static_cast<double>(equal) >= kAlmostAll * static_cast<double>(common)) {
    report({Severity::warning,
            "entropy-is-minmax",
            example,
            {},
            fmt::format("the table says {}, and {} of its {} ranges equal those of the min-max table. {}", options.algorithm, equal,
                        common, advice)});
  } else if (common == 0 && bounded >= 4 && static_cast<double>(whole) >= kAlmostAll * static_cast<double>(bounded)) {
    report({Severity::warning,
            "entropy-is-minmax",
            options.ranges.begin()->first,
            {},
            fmt::format("the table says {}, and {} of {} ranges of tensors with a known bound (Sigmoid, Softmax, Clip, ...) are "
                        "that bound. {}",
                        options.algorithm, whole, bounded, advice)});
  }
}

}  // namespace octavo::onnx
