#include "cli/commands/quantize_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/engine.h"

namespace octavo::cli {
namespace {

/// "1%" or "0.01".
Result<double> part_of(const std::string& text) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const bool percent = end > 0 && text.substr(end) == "%";
  if (percent) value /= 100;
  if (end == 0 || (!percent && end != text.size()) || !(value >= 0 && value <= 1))
    return fail(ErrorKind::usage, fmt::format("--max-drop {}: give a share of the samples, as 1% or 0.01", text));
  return value;
}

/// --allow: the types that layers may have when the bound holds; without one it is the build's, of an engine.
Status take_types(const QuantizeText& o, const api::PipelineOptions& build, QuantizeForm form, quantize::Options& q) {
  if (o.allow.empty()) return {};
  const bool engine = form == QuantizeForm::engine;
  if (!q.bound.given()) {
    if (engine) return {};
    return fail(ErrorKind::usage,
                fmt::format("--allow {}: lists the types that layers may return to until a bound holds, and no bound is given\n  "
                            "give --min-sqnr or --max-drop",
                            fmt::join(o.allow, ",")));
  }
  q.allowed.clear();
  for (const std::string& type : o.allow) {
    if ((type == "tf32" || type == "float16") && engine) continue;  // of the build
    if (type == "float16") {
      return fail(
          ErrorKind::usage,
          "--allow float16: the search of precision measures with the processor's kernels, and none computes in float16\n  allow "
          "bfloat16, or allow float16 where the quantized model is built: octavo build --device cuda --allow "
          "int8,float32,float16");
    }
    if (type != "int8" && type != "float32" && type != "bfloat16") {
      return fail(ErrorKind::usage,
                  fmt::format("--allow {}: not a type that the search of precision gives to layers\n  known: int8, "
                              "float32, bfloat16",
                              type));
    }
    q.allowed.insert(type);
  }
  if (!q.allowed.contains("int8")) {
    return fail(
        ErrorKind::usage,
        fmt::format("--allow {}: layers start in int8, which is not allowed\n  allow int8 as well; octavo build MODEL --allow "
                    "{} takes the float model",
                    fmt::join(o.allow, ","), fmt::join(o.allow, ",")));
  }
  if (q.allowed.size() < 2) {
    return fail(ErrorKind::usage,
                "--allow int8: layers have no other type to go to when the bound does not hold\n  allow float32, "
                "bfloat16 or both as well");
  }
  q.needs_kernels = engine && build.device == "cpu";
  return {};
}

}  // namespace

QuantizeForm form_of(const std::string& path) {
  if (path.ends_with(".onnx")) return QuantizeForm::pairs;
  if (path.ends_with(".octavo") || path.ends_with(".engine") || path.ends_with(".plan")) return QuantizeForm::engine;
  return path.ends_with(".json") ? QuantizeForm::json : QuantizeForm::table;
}

Result<quantize::Options> quantize_options(const QuantizeText& o, const api::PipelineOptions& build, QuantizeForm form) {
  quantize::Options q;
  q.import = build.import;
  q.import.display_name = o.model;
  if (!o.method.empty()) {
    const auto method = quantize::parse_method(o.method);
    if (!method)
      return fail(ErrorKind::usage, fmt::format("--method {}: known are best, minmax, percentile, entropy and mse", o.method));
    q.method = *method;
    q.minmax_for_detectors = false;  // whoever names a method gets it
  }
  q.pairs = form == QuantizeForm::pairs || form == QuantizeForm::engine;
  q.ranges.symmetric = o.activations.empty() ? form == QuantizeForm::table : o.activations == "symmetric";
  if (form == QuantizeForm::table && !q.ranges.symmetric) {
    return fail(ErrorKind::usage,
                fmt::format("--activations asymmetric: the table \"{}\" holds one scale for each tensor and no zero point\n"
                            "  write JSON or a model instead: -o ranges.json, -o model.q.onnx",
                            o.output));
  }
  q.ranges.percentile = o.percentile;
  q.fit.least_error_scales = o.weights == "mse";
  q.fit.correct_bias = !o.no_bias;
  q.fit.learned_rounding = o.rounding == "learned";
  q.equalize = !o.no_equalization;
  q.least_layer_sqnr = o.min_layer;
  q.gains = o.gains;
  q.float_model = !o.float_model.empty();
  q.bound.min_sqnr = o.min_sqnr;
  if (!o.max_drop.empty()) {
    OCTAVO_TRY(q.bound.max_drop, part_of(o.max_drop));
    if (!o.labels) {
      return fail(ErrorKind::usage,
                  fmt::format("--max-drop {}: right answers are counted, which needs the right classes\n  give --labels, "
                              "or bound the signal to noise: --min-sqnr 20",
                              o.max_drop));
    }
  }
  if (q.bound.given() && !q.pairs) {
    return fail(ErrorKind::usage,
                fmt::format("--{}: a table cannot express that a layer stays float\n  write a model: -o model.q.onnx",
                            o.min_sqnr ? "min-sqnr" : "max-drop"));
  }
  OCTAVO_CHECK(take_types(o, build, form, q));
  if (!o.curve.empty() && !q.bound.given())
    return fail(ErrorKind::usage, "--curve: the curve comes from the search of precisions\n  give --min-sqnr or --max-drop");
  q.fit.full_range = q.float_model;
  if (q.float_model && q.pairs) {
    return fail(ErrorKind::usage,
                fmt::format("--float-model: belongs to a table or .json of ranges, and \"{}\" is a model with its "
                            "own pairs\n  leave it out, or write a table: -o ranges.cache",
                            o.output));
  }
  q.placement = o.placement;
  q.stages = o.stages;
  q.measure = !o.no_measure;
  q.threads = build.plan.threads > 0 ? build.plan.threads : engine::available_cores();
  return q;
}

}  // namespace octavo::cli
