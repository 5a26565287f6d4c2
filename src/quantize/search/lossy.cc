// Layers that lose much in int8.
#include <fmt/format.h>

#include <algorithm>

#include "quantize/run.h"

namespace octavo::quantize {
namespace {

/// Such a layer goes to float only where the outputs keep so many dB more by it: float costs time.
constexpr double kLeastGain = 1;
/// How many of them are tried, the worst first, and on how many of the samples.
constexpr std::size_t kMostTried = 24, kTrialSamples = 8;

}  // namespace

Status Run::find_lossy() {
  std::vector<std::pair<double, std::size_t>> tried;  // dB that it keeps, layer
  for (std::size_t l = 0; l < made_.fits.size(); ++l) {
    const double kept = decibel_or_zero(made_.fits[l].signal, made_.fits[l].fitted);
    if (made_.fits[l].codes.empty() || !(made_.fits[l].signal > 0) || !(made_.fits[l].fitted > 0) ||
        kept >= options_.least_layer_sqnr)
      continue;
    tried.emplace_back(kept, l);
  }
  if (tried.empty()) return {};
  std::sort(tried.begin(), tried.end());
  if (tried.size() > kMostTried) tried.resize(kMostTried);
  const Part some(data_, kTrialSamples);
  OCTAVO_TRY(double now, trial_sqnr(some));
  for (std::size_t i = 0; i < tried.size(); ++i) {
    report("trying layers that lose much in float", i, tried.size());
    const auto [kept, l] = tried[i];
    const std::string& node = inputs_.layers[l].node;
    made_.keep_float.insert(node);
    const bool dropped = !options_.pairs && made_.dropped.emplace(input_name(l), node).second;
    OCTAVO_TRY(const double then, trial_sqnr(some));
    if (then - now >= kLeastGain) {
      made_.lossy.emplace(node, Lossy{kept, then - now});
      now = then;
      continue;
    }
    made_.keep_float.erase(node);
    if (dropped) made_.dropped.erase(input_name(l));
  }
  return {};
}

Result<double> Run::trial_sqnr(const Data& data) {
  if (corrects_) {
    OCTAVO_TRY(const auto put, write());
    (void)put;
  }
  OCTAVO_TRY(const Network* exact, float_network());
  OCTAVO_TRY(const Network rounded, rounded_network());
  OCTAVO_TRY(const auto errors, compare(*exact, rounded, data, options_.threads, {}));
  return sqnr_of(errors);
}

std::string Run::why_float(std::size_t l) const {
  if (const auto at = made_.lossy.find(inputs_.layers[l].node); at != made_.lossy.end()) {
    return fmt::format(
        "when only this layer is rounded, its results have {:.1f} dB, below {:g} dB (--min-layer-sqnr), and the outputs lose "
        "{:.1f} dB",
        at->second.kept, options_.least_layer_sqnr, at->second.cost);
  }
  if (const auto at = made_.dropped.find(input_name(l)); at != made_.dropped.end())
    return fmt::format("tensor \"{}\" gets no range, because \"{}\" would lose too much", at->first, at->second);
  return fmt::format("tensor \"{}\" has no range", inputs_.layers[l].input);
}

void Run::drop_ranges() {
  std::erase_if(made_.out.tensors, [&](const TensorRange& t) { return made_.dropped.contains(t.name); });
  for (const auto& [tensor, reader] : made_.dropped) made_.quantizers.erase(tensor);
}

}  // namespace octavo::quantize
