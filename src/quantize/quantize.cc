#include "quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "onnx/edit/raise_opset.h"
#include "quantize/best_range.h"
#include "quantize/detection.h"
#include "quantize/gains.h"
#include "quantize/laboratory.h"

namespace octavo::quantize {
namespace {

double decibel(double signal, double noise) {
  return noise > 0 && signal > 0 ? 10 * std::log10(signal / noise) : 0;
}

/// Layers of which fewer rows were seen are rounded to nearest and keep their biases: what two pictures say about the twenty values
/// of a squeeze-and-excitation branch does not hold for a third.
constexpr std::int64_t kLeastRows = 32;
/// A layer that loses much goes to float only where the outputs keep so many dB more by it: float costs time.
constexpr double kLeastGain = 1;
/// How many of them are tried, the worst first, and on how many of the samples.
constexpr std::size_t kMostTried = 24, kTrialSamples = 8;

/// A layer that loses much: dB of its results when it alone is rounded; dB that the outputs lose by it.
struct Lossy {
  double kept = 0, cost = 0;
};

/// What one choice of ranges leads to.
struct Made {
  std::map<std::string, ir::Quantizer> quantizers;
  std::vector<Fit> fits;                       ///< by layer; without codes: not fitted
  std::set<std::string> keep_float;            ///< nodes that get no pairs
  std::map<std::string, Lossy> lossy;          ///< of those, the ones that keep too little in int8
  std::map<std::string, std::string> dropped;  ///< tensors that get no range: the lossy node that reads them
  Outcome out;
};

class Run {
 public:
  Run(std::span<const std::byte> bytes, const std::string& folder, const Data& data, const Options& options)
      : bytes_(bytes), folder_(folder), data_(data), options_(options), corrects_(options.pairs || options.float_model) {}

  Result<Outcome> run() {
    report("reading the model", 0, 0);
    OCTAVO_TRY(model_, onnx::import_bytes(bytes_, options_.import, folder_));
    OCTAVO_CHECK(is_float());
    OCTAVO_CHECK(find_bfloat16());
    if (options_.pairs && model_.opset < onnx::kOpsetOfPairs) {  // layers and tensors below are those of the raised model
      OCTAVO_TRY(const auto editor, open());
      OCTAVO_CHECK(onnx::raise_opset(*editor));
      OCTAVO_TRY(raised_, onnx::model_bytes(*editor));
      bytes_ = raised_;
      made_.out.raised_from = model_.opset;
      OCTAVO_TRY(model_, onnx::import_bytes(bytes_, options_.import, folder_));
    }
    if (options_.pairs) {  // what forbids pairs is said before the data are run, not after
      OCTAVO_TRY(const auto trial, open());
      if (auto possible = onnx::put_pairs(*trial, {}, options_.placement); !possible)
        return tl::unexpected<Error>(std::move(possible).error());
    }
    if (corrects_ && options_.equalize) {
      OCTAVO_TRY(auto equalized, equalize(bytes_, folder_, model_, data_, options_.threads, options_.equalization,
                                          samples("balancing channels over samples")));
      if (!equalized.model.empty()) {
        equalized_ = std::move(equalized.model);
        bytes_ = equalized_;
        exact_ = std::move(model_);
        OCTAVO_TRY(model_, onnx::import_bytes(bytes_, options_.import, folder_));
      }
      made_.out.equalized = std::move(equalized.tensors);
    }
    OCTAVO_TRY(const auto editor, open());  // of the equalized model
    observed_ = observables(model_.graph);
    inputs_ = layer_inputs(onnx::weighted_layers(*editor), observed_, model_.aliases);
    if (inputs_.layers.empty())
      return fail(ErrorKind::usage,
                  fmt::format("{}: no Conv, ConvTranspose, Gemm or MatMul with constant float32 weights: there is "
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

 private:
  [[nodiscard]] std::string name() const {
    return options_.import.display_name.empty() ? "the model" : "\"" + options_.import.display_name + "\"";
  }
  void report(const std::string& step, std::size_t done, std::size_t count) const {
    if (options_.progress) options_.progress(prefix_ + step, done, count);
  }
  [[nodiscard]] Progress samples(std::string step) const {
    if (!options_.progress) return {};
    return [this, step = std::move(step)](std::size_t done, std::size_t count) { report(step, done, count); };
  }
  [[nodiscard]] Result<std::shared_ptr<onnx::Editor>> open() const {
    return onnx::open_model(bytes_, folder_, options_.import.display_name);
  }

  Status is_float() const {
    for (const ir::NodeId id : model_.graph.order()) {
      const ir::Node& n = model_.graph.node(id);
      if (!n.quantizer) continue;
      return fail(ErrorKind::usage, fmt::format("{} has quantized tensors already (node \"{}\")\n  take them out first: octavo "
                                                "convert --to-table ranges.cache --float-model float.onnx",
                                                name(), n.origin.empty() ? n.name : *n.origin.begin()));
    }
    return {};
  }

  /// The name of the tensor that layer `l` reads, as the graph knows it; as the file spells it when the graph does not.
  [[nodiscard]] const std::string& input_name(std::size_t l) const {
    return inputs_.tensors[l] == LayerInputs::npos ? inputs_.layers[l].input : observed_[inputs_.tensors[l]].name;
  }
  [[nodiscard]] LayerResult result_of(std::size_t l) const {
    LayerResult r;
    r.node = inputs_.layers[l].node;
    r.op = inputs_.layers[l].op;
    r.input = inputs_.layers[l].input;
    r.not_fitted = inputs_.rows[l].refused();
    return r;
  }

  /// Ranges by `method`, with everything that corrects what they cost.
  Status make(const std::vector<Histogram>& histograms, Method method) {
    choose_ranges(histograms, method);
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

  /// Of a detector: quantizes with ranges by min-max too, and keeps that where the scores at objects change less by it. Large values
  /// that are rare carry the objects in some detectors and not in others, and no tensor by itself says which. `before`: the outcome
  /// before the first choice of ranges.
  Status try_minmax(const std::vector<Histogram>& histograms, const Outcome& before) {
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
  [[nodiscard]] static InOrder add_scores(Head head, const Visit& v, ScoreChange& sum) {
    return [&sum, here = score_change(head, v.runners[0].outputs(), v.runners[1].outputs())] { sum += here; };
  }

  void choose_ranges(const std::vector<Histogram>& histograms, Method method) {
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
    parallel(count, options_.threads, [&](std::size_t i) {
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
    });
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
  }

  /// The float model with the fits so far: weights on their codes, biases corrected.
  Result<onnx::QuantizedResult> write_float() {
    OCTAVO_TRY(const auto editor, open());
    onnx::QuantizedResult all;
    for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
      const onnx::Layer& layer = inputs_.layers[l];
      if (!made_.quantizers.contains(input_name(l)) || made_.dropped.contains(input_name(l))) continue;
      all.quantized.insert(layer.node);
      if (l >= made_.fits.size() || made_.fits[l].codes.empty()) continue;
      onnx::set_weights(*editor, layer, inputs_.rows[l].values(made_.fits[l].codes, made_.fits[l].scale));
      if (options_.fit.correct_bias) onnx::add_to_bias(*editor, layer, made_.fits[l].bias_change);
    }
    OCTAVO_CHECK(onnx::sort_nodes(*editor));
    OCTAVO_TRY(made_.out.model, onnx::model_bytes(*editor));
    return all;
  }

  /// The model as fitted so far.
  Result<onnx::QuantizedResult> write() {
    if (!options_.pairs) return write_float();
    OCTAVO_TRY(const auto editor, open());
    onnx::QuantizedModel q;
    q.keep_float = made_.keep_float;
    q.activations = made_.quantizers;
    for (const auto& [alias, of] : model_.aliases) {
      if (const auto at = made_.quantizers.find(of); at != made_.quantizers.end()) q.activations.emplace(alias, at->second);
    }
    for (std::size_t l = 0; l < made_.fits.size(); ++l) {
      const onnx::Layer& layer = inputs_.layers[l];
      if (made_.fits[l].codes.empty() || layer.shared || made_.keep_float.contains(layer.node)) continue;
      onnx::CodedWeights& w = q.weights[layer.weights];
      w.codes = inputs_.rows[l].codes(made_.fits[l].codes);
      w.scale = made_.fits[l].scale;
      w.axis = layer.axis;
    }
    for (std::size_t l = 0; l < made_.fits.size(); ++l) {
      if (!made_.fits[l].codes.empty() && options_.fit.correct_bias && !made_.keep_float.contains(inputs_.layers[l].node))
        onnx::add_to_bias(*editor, inputs_.layers[l], made_.fits[l].bias_change);
    }
    OCTAVO_TRY(auto put, onnx::put_pairs(*editor, q, options_.placement));
    OCTAVO_TRY(made_.out.model, onnx::model_bytes(*editor));
    return put;
  }

  /// Fits the layers `numbers` to `given`, what they read in the quantized network (parallel to them; rounded here).
  void fit(const std::vector<std::size_t>& numbers, std::vector<Rows>& given, const std::string& step) {
    std::size_t done = 0;
    std::mutex lock;
    parallel(numbers.size(), options_.threads, [&](std::size_t i) {
      const std::size_t l = numbers[i];
      round_through(made_.quantizers.at(input_name(l)), given[i].values, given[i].values);
      made_.fits[l] = fit_layer(inputs_.rows[l], weights_[l], rows_[l], given[i], options_.fit);
      given[i].values = {};
      const std::lock_guard guard(lock);
      report(step, ++done, numbers.size());
    });
  }

  Status put_and_fit() {
    made_.fits.resize(inputs_.layers.size());
    OCTAVO_TRY(auto put, write());  // says which layers get pairs
    if (options_.measure) {
      OCTAVO_TRY(made_.out.nearest, measure("comparing samples before layers are fitted"));
    }
    if (put.quantized.empty())
      return fail(ErrorKind::usage,
                  fmt::format("{}: no weighted layer reads a tensor that has a range: nothing is quantized", name()));
    std::vector<std::size_t> order;
    for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
      if (put.quantized.contains(inputs_.layers[l].node) && inputs_.rows[l].refused().empty() && !inputs_.layers[l].shared &&
          inputs_.layers[l].plain && made_.quantizers.contains(input_name(l)) && rows_[l].count >= kLeastRows)
        order.push_back(l);
    }
    {
      std::vector<Rows> given;
      if (options_.stages == 0) {
        for (const std::size_t l : order) given.push_back(rows_[l]);
        fit(order, given, "layers");
        OCTAVO_TRY(put, write());
      }
    }
    const auto stages = static_cast<std::size_t>(std::max(options_.stages, 0));
    for (std::size_t s = 0; s < stages; ++s) {
      const std::vector<std::size_t> part(order.begin() + static_cast<std::ptrdiff_t>(order.size() * s / stages),
                                          order.begin() + static_cast<std::ptrdiff_t>(order.size() * (s + 1) / stages));
      if (part.empty()) continue;
      onnx::ImportOptions import = options_.import;
      OCTAVO_TRY(const onnx::Model now, onnx::import_bytes(made_.out.model, import, folder_));
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
      const std::string step = stages > 1 ? fmt::format("stage {} of {}, ", s + 1, stages) : std::string();
      OCTAVO_CHECK(collect_rows(network, inputs_, found, data_, options_.threads, given,
                                samples(step + "running samples through the layers before")));
      fit(found, given, step + "fitting layers");
      OCTAVO_TRY(put, write());
    }
    OCTAVO_CHECK(find_lossy());
    OCTAVO_TRY(put, write());
    for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
      LayerResult r = result_of(l);
      r.int8 = put.quantized.contains(r.node);
      if (!r.int8) r.why_float = why_float(l);
      if (!made_.fits[l].codes.empty()) {
        r.nearest = decibel(made_.fits[l].signal, made_.fits[l].nearest);
        r.fitted = decibel(made_.fits[l].signal, made_.fits[l].fitted);
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

  /// Without corrections: what the planner makes of a table, which rounds weights to the nearest code.
  Status round_to_nearest() {
    made_.fits.resize(inputs_.layers.size());
    FitOptions nearest;
    nearest.least_error_scales = nearest.correct_bias = nearest.learned_rounding = false;
    parallel(options_.least_layer_sqnr > 0 ? inputs_.layers.size() : 0, options_.threads, [&](std::size_t l) {
      if (!inputs_.rows[l].refused().empty() || !made_.quantizers.contains(input_name(l)) || rows_[l].count < 2) return;
      Rows given = rows_[l];
      round_through(made_.quantizers.at(input_name(l)), given.values, given.values);
      made_.fits[l] = fit_layer(inputs_.rows[l], weights_[l], rows_[l], given, nearest);
    });
    OCTAVO_CHECK(find_lossy());
    for (std::size_t l = 0; l < inputs_.layers.size(); ++l) {
      LayerResult r = result_of(l);
      r.int8 = made_.quantizers.contains(input_name(l)) && !made_.dropped.contains(input_name(l));
      if (!r.int8) r.why_float = why_float(l);
      r.nearest = r.fitted = decibel(made_.fits[l].signal, made_.fits[l].nearest);
      made_.out.layers.push_back(std::move(r));
    }
    return {};
  }

  /// Layers that keep too little when they alone are rounded stay float, the worst first, where the outputs keep more by it.
  Status find_lossy() {
    std::vector<std::pair<double, std::size_t>> tried;  // dB that it keeps, layer
    for (std::size_t l = 0; l < made_.fits.size(); ++l) {
      const double kept = decibel(made_.fits[l].signal, made_.fits[l].fitted);
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

  /// Of the outputs, with what is float so far.
  Result<double> trial_sqnr(const Data& data) {
    if (corrects_) {
      OCTAVO_TRY(const auto put, write());
      (void)put;
    }
    OCTAVO_TRY(const Network* exact, float_network());
    OCTAVO_TRY(const Network rounded, rounded_network());
    OCTAVO_TRY(const auto errors, compare(*exact, rounded, data, options_.threads, {}));
    return sqnr_of(errors);
  }

  [[nodiscard]] std::string why_float(std::size_t l) const {
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

  /// Takes the ranges of what lossy layers read out of the table.
  void drop_ranges() {
    std::erase_if(made_.out.tensors, [&](const TensorRange& t) { return made_.dropped.contains(t.name); });
    for (const auto& [tensor, reader] : made_.dropped) made_.quantizers.erase(tensor);
  }

  /// Before the data are run: what forbids the types that are allowed.
  Status find_bfloat16() {
    if (!options_.bound.given() || !options_.allowed.contains("bfloat16")) return {};
    OCTAVO_TRY(bfloat16_, bfloat16_layers(model_));
    const std::size_t without = bfloat16_->without_kernel.size(), count = bfloat16_->possible.size();
    if (without == 0) return {};
    if (options_.needs_kernels && without == count)
      return fail(ErrorKind::unsupported,
                  fmt::format("allowed type \"bfloat16\": no layer can compute in it on this processor: {}\n  write a model, for a "
                              "processor that can: -o model.q.onnx; or leave bfloat16 out",
                              bfloat16_->why));
    made_.out.warnings.push_back(
        fmt::format("{} of the {} layers that may be bfloat16 have no kernel for it here ({}): {}", without, count, bfloat16_->why,
                    options_.needs_kernels ? "they do not go to it" : "in estimated times they count as float32"));
    return {};
  }

  /// Layers leave int8 until the bound holds.
  Status search() {
    const auto make = [&](const std::set<std::string>& in_float) -> Result<onnx::Model> {
      set_float(in_float);
      OCTAVO_TRY(const auto put, write());
      (void)put;
      return onnx::import_bytes(made_.out.model, options_.import, folder_);
    };
    Searched what{.exact = reference(),
                  .layers = {},
                  .make = make,
                  .bfloat16 = bfloat16_ ? &*bfloat16_ : nullptr,
                  .needs_kernels = options_.needs_kernels,
                  .may_float32 = options_.allowed.contains("float32"),
                  .data = data_,
                  .threads = options_.threads,
                  .bound = options_.bound,
                  .score = options_.score,
                  .progress = options_.progress};
    for (const LayerResult& l : made_.out.layers) {
      if (l.int8) what.layers.push_back(l.node);
    }
    OCTAVO_TRY(made_.out.search, search_layers(what));
    std::set<std::string> chosen;
    for (const Sensitivity& s : made_.out.search->layers) {
      if (s.type != "int8") chosen.insert(s.node);
    }
    set_float(chosen);
    OCTAVO_TRY(const auto put, write());
    for (LayerResult& l : made_.out.layers) {
      if (!l.int8 || put.quantized.contains(l.node)) continue;
      l.int8 = false;
      const auto at = std::find_if(made_.out.search->layers.begin(), made_.out.search->layers.end(),
                                   [&](const Sensitivity& s) { return s.node == l.node; });
      l.bfloat16 = at->type == "bfloat16";
      l.why_float = fmt::format("{} to keep the bound: with only this layer in int8, the outputs have {:.1f} dB",
                                l.bfloat16 ? "bfloat16" : "kept", at->sqnr);
      if (at->sqnr_bfloat16) l.why_float += fmt::format(", alone in bfloat16 {:.1f} dB", *at->sqnr_bfloat16);
    }
    return {};
  }

  Status note_float_layers() {
    nlohmann::json why;
    for (const LayerResult& l : made_.out.layers) {
      if (!l.int8) why[l.node] = l.why_float;
    }
    if (why.empty()) return {};
    OCTAVO_TRY(const auto editor, onnx::open_model(made_.out.model, folder_, options_.import.display_name));
    onnx::set_metadata(*editor, kKeptFloat, why.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    OCTAVO_TRY(made_.out.model, onnx::model_bytes(*editor));
    return {};
  }

  void set_float(std::set<std::string> nodes) {
    made_.keep_float = std::move(nodes);
    for (const auto& [node, kept] : made_.lossy) made_.keep_float.insert(node);
  }

  /// The model as it was given: what errors are measured against.
  [[nodiscard]] const onnx::Model& reference() const { return exact_ ? *exact_ : model_; }

  /// What came out so far: made_.out.model, or the model as given; with the ranges where it has no pairs.
  [[nodiscard]] Result<Network> rounded_network() const {
    plan::PlanOptions implicit = emulating(made_.out.bfloat16());
    if (!options_.pairs) {
      implicit.ranges = made_.out.ranges();
      for (const auto& [tensor, reader] : made_.dropped) implicit.ranges.erase(tensor);
    }
    if (!corrects_) return Network::create(model_, {}, implicit);
    OCTAVO_TRY(const onnx::Model now, onnx::import_bytes(made_.out.model, options_.import, folder_));
    return Network::create(now, {}, implicit);
  }

  /// The model as it was given, for running; made once.
  Result<const Network*> float_network() {
    if (!float_network_) {
      OCTAVO_TRY(float_network_, Network::create(reference(), {}));
    }
    return &*float_network_;
  }

  /// The float network's outputs beside those of what came out so far; `also` as compare takes it.
  Result<std::vector<OutputError>> measure(const std::string& step, const std::function<InOrder(const Visit&)>& also = {}) {
    OCTAVO_TRY(const Network* exact, float_network());
    OCTAVO_TRY(const Network rounded, rounded_network());
    return compare(*exact, rounded, data_, options_.threads, samples(step), also);
  }

  std::span<const std::byte> bytes_;
  const std::string& folder_;
  const Data& data_;
  const Options& options_;
  const bool corrects_;  ///< a model is written, with or without pairs
  onnx::Model model_;
  std::optional<onnx::Model> exact_;           ///< model_ before its channels were equalized
  std::vector<std::byte> raised_, equalized_;  ///< what bytes_ refers to then
  std::vector<Observable> observed_;
  LayerInputs inputs_;
  std::vector<Rows> rows_;                   ///< of the float network, by layer
  std::vector<std::vector<float>> weights_;  ///< by layer, as RowLayer::weights
  std::optional<Bfloat16Layers> bfloat16_;
  std::optional<Network> float_network_;
  std::string prefix_;  ///< of the steps that are reported
  Made made_;           ///< so far
};

}  // namespace

Result<Outcome> quantize(std::span<const std::byte> bytes, const std::string& folder, const Data& data, const Options& given) {
  constexpr std::size_t kForSamples = 8;
  Options options = given;
  const bool few = data.size() < kForSamples && options.fit.correct_bias && (options.pairs || options.float_model);
  if (few) options.fit.correct_bias = false;
  const bool few_for_best = data.size() < kForSamples && options.method == Method::best;
  if (few_for_best) options.method = Method::error;
  OCTAVO_TRY(Outcome out, Run(bytes, folder, data, options).run());
  if (options.gains) {
    if (out.scores) options.method = out.scores->chosen;
    OCTAVO_TRY(out.gains, gains_of(options, [&](const Options& o) { return Run(bytes, folder, data, o).run(); }));
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
