// What `octavo quantize` and octavo.quantize are asked for, as text, and what that means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/pipeline.h"
#include "base/result.h"
#include "quantize/quantize.h"

namespace octavo::cli {

/// What is written.
enum class QuantizeForm { table, json, pairs, engine };
/// By the ending of the file.
[[nodiscard]] QuantizeForm form_of(const std::string& path);

struct QuantizeText {
  std::string model, output;       ///< files, for messages
  std::vector<std::string> allow;  ///< --allow
  bool labels = false;             ///< there are some
  std::string max_drop, curve, float_model, method, activations, weights = "mse", rounding = "learned", placement = "borders";
  std::optional<double> min_sqnr;
  double percentile = 99.99, min_layer = quantize::Options{}.least_layer_sqnr;
  bool no_bias = false, no_measure = false, no_equalization = false, gains = false;
  int stages = 0;
};

/// `build` gives shapes, threads and the device. Errors: usage, naming the option.
[[nodiscard]] Result<quantize::Options> quantize_options(const QuantizeText& text, const api::PipelineOptions& build,
                                                         QuantizeForm form);

}  // namespace octavo::cli
