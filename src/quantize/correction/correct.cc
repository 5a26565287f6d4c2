// Weights and biases of a quantization's layers, fitted to what they read.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "quantize/data/parallel.h"
#include "quantize/run.h"

namespace octavo::quantize {

const std::string& Run::input_name(std::size_t l) const {
  return inputs_.tensors[l] == LayerInputs::npos ? inputs_.layers[l].input : observed_[inputs_.tensors[l]].name;
}

LayerResult Run::result_of(std::size_t l) const {
  LayerResult r;
  r.node = inputs_.layers[l].node;
  r.op = inputs_.layers[l].op;
  r.input = inputs_.layers[l].input;
  r.not_fitted = inputs_.rows[l].refused();
  return r;
}

Status Run::fit(const std::vector<std::size_t>& numbers, std::vector<Rows>& given, const std::string& step) {
  std::size_t done = 0;
  std::mutex lock;
  return parallel(numbers.size(), options_.threads, [&](std::size_t i) {
    const std::size_t l = numbers[i];
    round_through(made_.quantizers.at(input_name(l)), given[i].values, given[i].values);
    made_.fits[l] = fit_layer(inputs_.rows[l], weights_[l], rows_[l], given[i], options_.fit);
    given[i].values = {};
    const std::lock_guard guard(lock);
    report(step, ++done, numbers.size());
  });
}

std::vector<std::size_t> Run::fittable(const std::set<std::string>& quantized) const {
  std::vector<std::size_t> out;
  for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
    if (quantized.contains(inputs_.layers[l].node) && inputs_.rows[l].refused().empty() && !inputs_.layers[l].shared &&
        inputs_.layers[l].plain && made_.quantizers.contains(input_name(l)) && rows_[l].count >= kLeastRows)
      out.push_back(l);
  }
  return out;
}

Status Run::fit_stage(const std::vector<std::size_t>& part, const std::string& step) {
  OCTAVO_TRY(const onnx::Model now, onnx::import_model(*made_.out.model, options_.import));
  std::map<std::string, Observable> by_name;
  for (const Observable& o : observables(now.graph)) by_name.emplace(o.name, o);
  std::vector<Observable> wanted;
  std::vector<std::size_t> found;
  std::vector<Rows> given;
  for (const std::size_t l : part) {
    const auto at = by_name.find(input_name(l));
    if (at == by_name.end()) continue;
    wanted.push_back(at->second);
    found.push_back(l);
    given.push_back(rows_[l]);
  }
  OCTAVO_TRY(const Network network, Network::create(now, wanted));
  OCTAVO_CHECK(collect_rows(network, inputs_, found, data_, options_.threads, given,
                            samples(step + "running samples through the layers before")));
  return fit(found, given, step + "fitting layers");
}

Status Run::put_and_fit() {
  made_.fits.resize(inputs_.layers.size());
  OCTAVO_TRY(auto put, write());  // says which layers get pairs
  if (options_.measure) {
    OCTAVO_TRY(made_.out.nearest, measure("comparing samples before layers are fitted"));
  }
  if (put.quantized.empty())
    return fail(ErrorKind::usage,
                fmt::format("{}: no weighted layer reads a tensor that has a range: nothing is quantized", name()));
  const std::vector<std::size_t> order = fittable(put.quantized);
  if (options_.stages == 0) {
    std::vector<Rows> given;
    for (const std::size_t l : order) given.push_back(rows_[l]);
    OCTAVO_CHECK(fit(order, given, "layers"));
    OCTAVO_TRY(put, write());
  }
  const auto stages = static_cast<std::size_t>(std::max(options_.stages, 0));
  for (std::size_t s = 0; s < stages; ++s) {
    const std::vector<std::size_t> part(order.begin() + static_cast<std::ptrdiff_t>(order.size() * s / stages),
                                        order.begin() + static_cast<std::ptrdiff_t>(order.size() * (s + 1) / stages));
    if (part.empty()) continue;
    OCTAVO_CHECK(fit_stage(part, stages > 1 ? fmt::format("stage {} of {}, ", s + 1, stages) : std::string()));
    OCTAVO_TRY(put, write());
  }
  OCTAVO_CHECK(find_lossy());
  OCTAVO_TRY(put, write());
  for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
    LayerResult r = result_of(l);
    r.int8 = put.quantized.contains(r.node);
    if (!r.int8) r.why_float = why_float(l);
    if (!made_.fits[l].codes.empty()) {
      r.nearest = decibel_or_zero(made_.fits[l].signal, made_.fits[l].nearest);
      r.fitted = decibel_or_zero(made_.fits[l].signal, made_.fits[l].fitted);
      if (!made_.fits[l].learned && options_.fit.learned_rounding)
        r.not_fitted = "rounding to nearest is as good, or the data do not decide";
    } else if (r.not_fitted.empty() && r.int8) {
      r.not_fitted = !rows_.empty() && rows_[l].count < kLeastRows
                         ? fmt::format("only {} rows of its data were seen", rows_[l].count)
                     : inputs_.layers[l].shared ? "its weights are shared"
                                                : "its input is not observed";
    }
    made_.out.layers.push_back(std::move(r));
  }
  return {};
}

Status Run::round_to_nearest() {
  made_.fits.resize(inputs_.layers.size());
  FitOptions nearest;
  nearest.least_error_scales = nearest.correct_bias = nearest.learned_rounding = false;
  OCTAVO_CHECK(parallel(options_.least_layer_sqnr > 0 ? inputs_.layers.size() : 0, options_.threads, [&](std::size_t l) {
    if (!inputs_.rows[l].refused().empty() || !made_.quantizers.contains(input_name(l)) || rows_[l].count < 2) return;
    Rows given = rows_[l];
    round_through(made_.quantizers.at(input_name(l)), given.values, given.values);
    made_.fits[l] = fit_layer(inputs_.rows[l], weights_[l], rows_[l], given, nearest);
  }));
  OCTAVO_CHECK(find_lossy());
  for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
    LayerResult r = result_of(l);
    r.int8 = made_.quantizers.contains(input_name(l)) && !made_.dropped.contains(input_name(l));
    if (!r.int8) r.why_float = why_float(l);
    r.nearest = r.fitted = decibel_or_zero(made_.fits[l].signal, made_.fits[l].nearest);
    made_.out.layers.push_back(std::move(r));
  }
  return {};
}

}  // namespace octavo::quantize
