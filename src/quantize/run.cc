#include "quantize/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/task.h"
#include "onnx/edit/raise_opset.h"
#include "quantize/data/parallel.h"
#include "quantize/ranges/best_range.h"
#include "quantize/search/laboratory.h"

namespace octavo::quantize {
namespace {

InOrder add_scores(Head head, const Visit& v, ScoreChange& sum) {
  return [&sum, here = score_change(head, v.runners[0].outputs(), v.runners[1].outputs())] { sum += here; };
}

}  // namespace

Progress Run::samples(std::string step) const {
  if (!options_.progress) return {};
  return [this, step = std::move(step)](std::size_t done, std::size_t count) { report(step, done, count); };
}

Result<Outcome> Run::run() {
  report("reading the model", 0, 0);
  OCTAVO_CHECK(begin_step("reading the model"));
  OCTAVO_CHECK(is_float());
  OCTAVO_CHECK(find_bfloat16());
  if (options_.pairs && model_.opset < onnx::kOpsetOfPairs) OCTAVO_CHECK(raise());
  if (options_.pairs) {  // what forbids pairs is said before the data are run, not after
    OCTAVO_TRY(const auto trial, open());
    if (auto possible = onnx::put_pairs(*trial, {}, options_.placement); !possible)
      return tl::unexpected<Error>(std::move(possible).error());
  }
  if (corrects_ && options_.equalize) OCTAVO_CHECK(equalize_channels());
  {
    OCTAVO_TRY(const auto editor, open());  // of the equalized model
    observed_ = observables(model_.graph);
    inputs_ = layer_inputs(onnx::weighted_layers(*editor), observed_, model_.aliases);
  }
  if (inputs_.layers.empty())
    return fail(ErrorKind::usage, fmt::format("{}: no Conv, ConvTranspose, Gemm or MatMul with constant float32 weights: there is "
                                              "nothing to quantize",
                                              name()));
  const bool rows = corrects_ || options_.method == Method::best || options_.least_layer_sqnr > 0;
  OCTAVO_TRY(auto statistics, collect(model_, observed_, inputs_, data_, options_.threads, rows ? options_.rows_bytes : 0,
                                      samples("collecting statistics of samples")));
  made_.out.warnings.insert(made_.out.warnings.end(), statistics.warnings.begin(), statistics.warnings.end());
  rows_ = std::move(statistics.rows);
  made_.out.samples = data_.size();
  const Outcome before = made_.out;
  OCTAVO_CHECK(make(statistics.histograms, options_.method));
  if (options_.minmax_for_detectors) OCTAVO_CHECK(try_minmax(statistics.histograms, before));
  statistics.histograms.clear();
  const bool searches = options_.pairs && options_.bound.given();
  if (searches) OCTAVO_CHECK(search());
  if (options_.pairs) OCTAVO_CHECK(note_float_layers());
  if (options_.measure && (searches || !made_.out.scores)) {  // otherwise measured beside the scores
    OCTAVO_TRY(made_.out.outputs, measure("comparing samples with the float network"));
  }
  return std::move(made_.out);
}

Status Run::replace(onnx::Parsed parsed) {
  parsed_ = std::move(parsed);
  OCTAVO_TRY(model_, onnx::import_model(parsed_, options_.import));
  return {};
}

/// Layers and tensors are those of the raised model from then on.
Status Run::raise() {
  OCTAVO_TRY(const auto editor, open());
  OCTAVO_CHECK(onnx::raise_opset(*editor));
  made_.out.raised_from = model_.opset;
  return replace(onnx::parsed_of(std::move(*editor)));
}

Status Run::equalize_channels() {
  OCTAVO_TRY(auto equalized,
             equalize(parsed_, model_, data_, options_.threads, options_.equalization, samples("balancing channels over samples")));
  made_.out.equalized = std::move(equalized.tensors);
  if (!equalized.model) return {};
  exact_ = std::move(model_);
  return replace(std::move(*equalized.model));
}

Status Run::is_float() const {
  for (const ir::NodeId id : model_.graph.order()) {
    const ir::Node& n = model_.graph.node(id);
    if (!n.quantizer) continue;
    return fail(ErrorKind::usage, fmt::format("{} has quantized tensors already (node \"{}\")\n  take them out first: octavo "
                                              "convert --to-table ranges.cache --float-model float.onnx",
                                              name(), n.origin.empty() ? n.name : *n.origin.begin()));
  }
  return {};
}

Status Run::make(const std::vector<Histogram>& histograms, Method method) {
  OCTAVO_CHECK(choose_ranges(histograms, method));
  if (made_.out.tensors.empty())
    return fail(ErrorKind::bad_input, fmt::format("{}: no tensor took a value other than 0 on the data", name()));
  if (corrects_) {
    OCTAVO_CHECK(put_and_fit());
  } else {
    OCTAVO_CHECK(round_to_nearest());
  }
  drop_ranges();
  return {};
}

Status Run::try_minmax(const std::vector<Histogram>& histograms, const Outcome& before) {
  const auto head = head_of(reference().graph);
  if (!head || (*head != Head::yolox && *head != Head::nanodet) || options_.method == Method::minmax) return {};
  ScoreChange first, second;
  OCTAVO_TRY(made_.out.outputs,
             measure("comparing samples with the float network", [&](const Visit& v) { return add_scores(*head, v, first); }));
  ScoreChoice choice{options_.method, options_.method, first.objects, first.mean(), {}};
  if (first.objects > 0) {
    Made kept = std::move(made_);
    made_ = Made();
    made_.out = before;
    prefix_ = "min-max: ";
    OCTAVO_CHECK(make(histograms, Method::minmax));
    OCTAVO_TRY(made_.out.outputs,
               measure("comparing samples with the float network", [&](const Visit& v) { return add_scores(*head, v, second); }));
    prefix_.clear();
    choice.minmax = second.mean();
    if (second.mean() < first.mean()) {
      choice.chosen = Method::minmax;
    } else {
      made_ = std::move(kept);
    }
  }
  made_.out.scores = choice;
  if (!options_.measure) made_.out.outputs.clear();
  return {};
}

Status Run::choose_ranges(const std::vector<Histogram>& histograms, Method method) {
  const std::size_t count = observed_.size();
  std::vector<std::vector<Reader>> readers(count);
  weights_.resize(inputs_.layers.size());
  for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
    if (!inputs_.rows[l].refused().empty()) continue;
    weights_[l] = inputs_.rows[l].weights(inputs_.layers[l].weight_values);
    if (rows_.empty() || inputs_.tensors[l] == LayerInputs::npos) continue;
    readers[inputs_.tensors[l]].push_back({&inputs_.rows[l], &weights_[l], &rows_[l]});
  }
  std::vector<std::optional<TensorRange>> chosen(count);
  const bool centered = corrects_ && options_.fit.correct_bias;
  std::size_t done = 0;
  report("choosing ranges of tensors", 0, count);
  OCTAVO_CHECK(parallel(count, options_.threads, [&](std::size_t i) {
    const Histogram& h = histograms[i];
    std::optional<std::pair<Method, Interval>> range;
    if (method == Method::best) {
      auto tried = candidates(h, options_.ranges);
      if (!tried.empty()) range = best_range(h, tried, readers[i], options_.ranges.symmetric, centered);
    } else if (const auto interval = choose(h, method, options_.ranges)) {
      range = {method, *interval};
    }
    if (!range) return;
    chosen[i] = TensorRange{observed_[i].name, h.min(),       h.max(),
                            range->first,      range->second, quantizer_of(range->second, options_.ranges.symmetric)};
  }));
  for (std::size_t i = 0; i < count; ++i) {
    ++done;
    if (!chosen[i]) {
      made_.out.without_range.push_back(observed_[i].name);
      continue;
    }
    made_.quantizers[observed_[i].name] = chosen[i]->quantizer;
    made_.out.tensors.push_back(std::move(*chosen[i]));
  }
  report("choosing ranges of tensors", done, count);
  return {};
}

Result<Network> Run::rounded_network() const {
  plan::PlanOptions implicit = emulating(made_.out.bfloat16());
  if (!options_.pairs) {
    implicit.ranges = made_.out.ranges();
    for (const auto& [tensor, reader] : made_.dropped) implicit.ranges.erase(tensor);
  }
  if (!corrects_) return Network::create(model_, {}, implicit);
  OCTAVO_TRY(const onnx::Model now, onnx::import_model(*made_.out.model, options_.import));
  return Network::create(now, {}, implicit);
}

Result<const Network*> Run::float_network() {
  if (!float_network_) {
    OCTAVO_TRY(float_network_, Network::create(reference(), {}));
  }
  return &*float_network_;
}

Result<std::vector<OutputError>> Run::measure(const std::string& step, const std::function<InOrder(const Visit&)>& also) {
  OCTAVO_TRY(const Network* exact, float_network());
  OCTAVO_TRY(const Network rounded, rounded_network());
  return compare(*exact, rounded, data_, options_.threads, samples(step), also);
}

}  // namespace octavo::quantize
