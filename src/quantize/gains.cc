#include "quantize/gains.h"

#include <string>

namespace octavo::quantize {

Result<std::vector<Gain>> gains_of(const Options& options, const std::function<Result<Outcome>(const Options&)>& quantize) {
  Options now = options;
  now.bound = {};
  now.measure = true;
  now.minmax_for_detectors = false;
  now.equalize = now.fit.least_error_scales = now.fit.learned_rounding = now.fit.correct_bias = false;
  now.least_layer_sqnr = 0;
  now.stages = 0;
  std::vector<Gain> out;
  const auto measure = [&](const std::string& what) -> Status {
    if (options.progress) {
      now.progress = [&, what](const std::string& step, std::size_t done, std::size_t count) {
        options.progress(what + ": " + step, done, count);
      };
    }
    OCTAVO_TRY(const Outcome outcome, quantize(now));
    out.push_back({what, sqnr_of(outcome.outputs)});
    return {};
  };
  OCTAVO_CHECK(measure("no correction"));
  const auto with = [&](const char* what, bool wanted, const std::function<void()>& set) -> Status {
    if (!wanted) return {};
    set();
    return measure(what);
  };
  const bool corrects = options.pairs || options.float_model;
  OCTAVO_CHECK(with("equalized channels", corrects && options.equalize, [&] { now.equalize = true; }));
  OCTAVO_CHECK(with("scales of weights by least error", corrects && options.fit.least_error_scales,
                    [&] { now.fit.least_error_scales = true; }));
  OCTAVO_CHECK(with("learned rounding", corrects && options.fit.learned_rounding, [&] { now.fit.learned_rounding = true; }));
  OCTAVO_CHECK(with("corrected biases", corrects && options.fit.correct_bias, [&] { now.fit.correct_bias = true; }));
  OCTAVO_CHECK(with("layers that lose too much in float", options.least_layer_sqnr > 0,
                    [&] { now.least_layer_sqnr = options.least_layer_sqnr; }));
  return out;
}

}  // namespace octavo::quantize
