#include "quantize/metrics/output_error.h"

#include <atomic>
#include <cmath>

namespace octavo::quantize {

void OutputError::add(double exact, double other) {
  if (!std::isfinite(exact) && (exact == other || (std::isnan(exact) && std::isnan(other)))) return;
  signal += exact * exact;
  noise += (other - exact) * (other - exact);
}

double OutputError::sqnr() const {
  return noise > 0 ? 10 * std::log10(signal / noise) : INFINITY;
}

std::vector<OutputError> errors_of(const Network::Runner& exact, const Network::Runner& other, std::size_t outputs) {
  std::vector<OutputError> out(outputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    const ir::Tensor &a = exact.output(i), &b = other.output(i);
    if (a.dtype() != ir::DType::f32 || b.type() != a.type()) continue;
    const auto x = a.data<float>(), y = b.data<float>();
    for (std::size_t k = 0; k < x.size(); ++k) {
      out[i].add(static_cast<double>(x[k]), static_cast<double>(y[k]));
    }
  }
  return out;
}

void add_errors(std::vector<OutputError>& sums, const std::vector<OutputError>& more) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i].signal += more[i].signal;
    sums[i].noise += more[i].noise;
  }
}

Result<std::vector<OutputError>> compare(const Network& exact, const Network& other, const Data& data, int threads,
                                         const Progress& progress, const std::function<InOrder(const Visit&)>& also) {
  std::vector<OutputError> sums(exact.outputs());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].name = exact.plan().outputs[i].name;
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    return [&sums, here = errors_of(v.runners[0], v.runners[1], sums.size()), more = also ? also(v) : InOrder()] {
      add_errors(sums, here);
      if (more) more();
    };
  };
  OCTAVO_CHECK(for_each(data, {&exact, &other}, threads, visit, progress));
  return sums;
}

Result<std::size_t> right_answers(const Network& network, const Data& data, const std::vector<std::int64_t>& labels, int threads) {
  std::atomic<std::size_t> right{0};
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    const ir::Tensor& scores = v.runners[0].output(0);
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < scores.size(); ++c) best = scores.at(c) > scores.at(best) ? c : best;
    if (best == labels[v.sample]) ++right;
    return InOrder();
  };
  OCTAVO_CHECK(for_each(data, {&network}, threads, visit));
  return right.load();
}

double sqnr_of(const std::vector<OutputError>& outputs) {
  OutputError all;
  for (const OutputError& o : outputs) {
    all.signal += o.signal;
    all.noise += o.noise;
  }
  return all.sqnr();
}

double decibel_or_zero(double signal, double noise) {
  return noise > 0 && signal > 0 ? 10 * std::log10(signal / noise) : 0;
}

}  // namespace octavo::quantize
