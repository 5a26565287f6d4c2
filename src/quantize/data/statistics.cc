#include "quantize/data/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>

namespace octavo::quantize {
namespace {

/// What is wrong with a sample's inputs: an error text for values that are no numbers, a warning for inputs that say nothing.
struct SampleCheck {
  std::string error, warning;
};
SampleCheck check(const Sample& s) {
  SampleCheck out;
  bool constant = !s.inputs.empty();
  double value = 0;
  for (const ir::Tensor& t : s.inputs) {
    if (t.size() < 2) {
      constant = false;
      continue;
    }
    value = t.at(0);
    if (t.dtype() == ir::DType::f32) {
      const auto x = t.data<float>();
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!std::isfinite(x[i])) {
          out.error =
              fmt::format("sample {}: element {} of {} is {}\n  calibration data must be finite numbers; leave this sample out",
                          s.name, i, x.size(), x[i]);
          return out;
        }
        constant = constant && x[i] == x[0];
      }
    } else {
      const auto b = t.bytes();
      const std::size_t size = ir::size_of(t.dtype());
      for (std::size_t i = size; i < b.size() && constant; ++i) constant = b[i] == b[i % size];
    }
  }
  if (constant)
    out.warning = fmt::format("sample {} is {} everywhere: it says little about the tensors of the network", s.name, value);
  return out;
}

}  // namespace

LayerInputs layer_inputs(std::vector<onnx::Layer> layers, const std::vector<Observable>& observed,
                         const std::map<std::string, std::string>& aliases) {
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < observed.size(); ++i) index.emplace(observed[i].name, i);
  LayerInputs out;
  for (onnx::Layer& l : layers) {
    const auto alias = aliases.find(l.input);
    auto at = index.find(l.input);
    if (at == index.end() && alias != aliases.end()) at = index.find(alias->second);
    out.tensors.push_back(at == index.end() ? LayerInputs::npos : at->second);
    out.rows.emplace_back(l, at == index.end() ? ir::Shape{} : observed[at->second].shape);
    out.layers.push_back(std::move(l));
  }
  return out;
}

Result<Statistics> collect(const onnx::Model& model, const std::vector<Observable>& observed, const LayerInputs& layers,
                           const Data& data, int threads, std::int64_t rows_bytes, const Progress& progress) {
  if (data.size() == 0) return fail(ErrorKind::bad_input, "calibration needs data: there is no sample");
  OCTAVO_TRY(const Network network, Network::create(model, observed));
  Statistics out;
  out.histograms.resize(observed.size());
  if (rows_bytes > 0) out.rows = rows_for(layers.rows, data.size(), rows_bytes);
  std::vector<std::mutex> locks(observed.size());
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    const SampleCheck checked = check(*v.data);
    if (!checked.error.empty()) return fail(ErrorKind::bad_input, checked.error);
    for (std::size_t i = 0; i < observed.size(); ++i) {
      const auto values = v.runners[0].observed(i).data<float>();
      if (values.size() < Histogram::kSide) {  // to count them takes less time than to add two histograms
        const std::lock_guard guard(locks[i]);
        out.histograms[i].add(values);
        continue;
      }
      Histogram here;  // counted without a lock, then added: integers, so the order does not matter
      here.add(values);
      const std::lock_guard guard(locks[i]);
      out.histograms[i].merge(here);
    }
    for (std::size_t l = 0; l < out.rows.size(); ++l) {
      if (layers.rows[l].refused().empty() && layers.tensors[l] != LayerInputs::npos)
        take_rows(layers.rows[l], l, v.sample, v.runners[0].observed(layers.tensors[l]).data<float>(), out.rows[l]);
    }
    if (checked.warning.empty()) return InOrder();
    return [&out, warning = checked.warning] { out.warnings.push_back(warning); };
  };
  OCTAVO_CHECK(for_each(data, {&network}, threads, visit, progress));
  if (data.size() == 1)
    out.warnings.push_back(
        "there is only one sample, so the ranges fit this sample alone; use some dozens of samples like those that the network "
        "will see");
  for (std::size_t i = 0; i < observed.size(); ++i) {
    const Histogram& h = out.histograms[i];
    if (h.not_a_number() > 0 || h.infinite() > 0) {
      out.warnings.push_back(fmt::format("tensor \"{}\" holds {} NaN and {} infinite values, which are ignored for its range",
                                         observed[i].name, h.not_a_number(), h.infinite()));
    }
  }
  return out;
}

Status collect_rows(const Network& network, const LayerInputs& layers, const std::vector<std::size_t>& numbers, const Data& data,
                    int threads, std::vector<Rows>& rows, const Progress& progress) {
  const auto visit = [&](const Visit& v) -> Result<InOrder> {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      take_rows(layers.rows[numbers[i]], numbers[i], v.sample, v.runners[0].observed(i).data<float>(), rows[i]);
    return InOrder();
  };
  return for_each(data, {&network}, threads, visit, progress);
}

}  // namespace octavo::quantize
