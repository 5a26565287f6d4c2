// How good a quantized network's answers are on data: distance from the float network, and right answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quantize/data/network.h"

namespace octavo::quantize {

/// How far two networks' outputs are apart on the data.
struct OutputError {
  std::string name;
  double signal = 0, noise = 0;  ///< sums of squares of the first network's values and of the differences
  /// One value of both networks. What is not finite counts only where the other differs.
  void add(double exact, double other);
  [[nodiscard]] double sqnr() const;  ///< 10 log10(signal / noise); infinite without noise
};
/// Of one sample that both have run on, output by output, without names. Only float32 outputs count.
[[nodiscard]] std::vector<OutputError> errors_of(const Network::Runner& exact, const Network::Runner& other, std::size_t outputs);
/// `sums` and `more` are parallel.
void add_errors(std::vector<OutputError>& sums, const std::vector<OutputError>& more);
/// Both networks have the same outputs; only float32 ones count. `also`: what else is done with each sample, as `visit` of for_each
/// does it; its runners are those of `exact` and of `other`.
[[nodiscard]] Result<std::vector<OutputError>> compare(const Network& exact, const Network& other, const Data& data, int threads,
                                                       const Progress& progress,
                                                       const std::function<InOrder(const Visit&)>& also = {});
/// Samples whose right class (`labels`, parallel to the data) scores highest in the first output; the first of equal scores counts.
[[nodiscard]] Result<std::size_t> right_answers(const Network& network, const Data& data, const std::vector<std::int64_t>& labels,
                                                int threads);
/// Of all outputs together.
[[nodiscard]] double sqnr_of(const std::vector<OutputError>& outputs);
/// dB; 0 where there is nothing to compare.
[[nodiscard]] double decibel_or_zero(double signal, double noise);

}  // namespace octavo::quantize
