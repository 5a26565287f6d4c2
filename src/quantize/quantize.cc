#include "quantize/quantize.h"

#include <fmt/format.h>

#include "quantize/gains.h"
#include "quantize/run.h"

namespace octavo::quantize {

Result<Outcome> quantize(const onnx::Parsed& parsed, const onnx::Model& model, const Data& data, const Options& given) {
  constexpr std::size_t kForSamples = 8;
  Options options = given;
  const bool few = data.size() < kForSamples && options.fit.correct_bias && (options.pairs || options.float_model);
  if (few) options.fit.correct_bias = false;
  const bool few_for_best = data.size() < kForSamples && options.method == Method::best;
  if (few_for_best) options.method = Method::error;
  OCTAVO_TRY(Outcome out, Run(parsed, model, data, options).run());
  if (options.gains) {
    if (out.scores) options.method = out.scores->chosen;
    OCTAVO_TRY(out.gains, gains_of(options, [&](const Options& o) { return Run(parsed, model, data, o).run(); }));
  }
  if (few) {
    out.warnings.push_back(fmt::format(
        "{} sample{}: biases are not corrected, because the shift that fewer than {} samples show does not hold for other data",
        data.size(), data.size() == 1 ? "" : "s", kForSamples));
  }
  if (few_for_best) {
    out.warnings.push_back(
        fmt::format("{} sample{}: ranges are those with the least squared error (mse), because results of layers on fewer than {} "
                    "samples do not hold for other data",
                    data.size(), data.size() == 1 ? "" : "s", kForSamples));
  }
  return out;
}

}  // namespace octavo::quantize
