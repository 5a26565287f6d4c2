// octavo.quantize: samples are taken one by one, then the network is quantized in this process.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <mutex>
#include <set>

#include "api/convert.h"
#include "api/session.h"
#include "cli/commands/quantize_text.h"
#include "cli/inputs/data.h"
#include "onnx/edit/layers.h"
#include "python/arrays.h"
#include "python/options.h"
#include "python/text.h"
#include "python/watch.h"
#include "quantize/data/kept_samples.h"

namespace octavo::python {
namespace {

using api::take;

[[noreturn]] void wrong(const std::string& message) {
  throw Exception(Exception::Kind::usage, message);
}

void check_one_of(const char* name, const std::string& value, const std::set<std::string>& known) {
  if (known.contains(value)) return;
  std::string names;
  for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
  wrong("quantize: " + std::string(name) + "=\"" + value + "\": known are " + names);
}

/// The options as octavo/_quantize.py has completed them.
cli::QuantizeText text_of_options(const nb::dict& options) {
  cli::QuantizeText text;
  const auto given = [&](const char* name) { return !options[name].is_none(); };
  const auto string = [&](const char* name) { return nb::cast<std::string>(options[name]); };
  text.output = "model.q.onnx";
  text.weights = string("weights"), text.rounding = string("rounding"), text.placement = string("placement");
  check_one_of("weights", text.weights, {"minmax", "mse"});
  check_one_of("rounding", text.rounding, {"learned", "nearest"});
  text.percentile = nb::cast<double>(options["percentile"]);
  if (!(text.percentile >= 50 && text.percentile <= 100))
    wrong("quantize: percentile=" + std::to_string(text.percentile) + ": give 50 to 100");
  if (given("method")) text.method = string("method");
  if (given("activations")) {
    text.activations = string("activations");
    check_one_of("activations", text.activations, {"asymmetric", "symmetric"});
  }
  text.no_bias = !nb::cast<bool>(options["bias_correction"]);
  text.no_equalization = !nb::cast<bool>(options["equalization"]);
  text.no_measure = !nb::cast<bool>(options["measure"]);
  if (given("min_sqnr")) text.min_sqnr = nb::cast<double>(options["min_sqnr"]);
  if (given("max_drop")) text.max_drop = string("max_drop");
  text.allow = nb::cast<std::vector<std::string>>(options["allow"]);
  text.labels = given("labels");
  return text;
}

/// One array as the command would read it from a file.
ir::Tensor tensor_of(const nb::object& numpy, const std::string& name, const nb::handle& value) {
  Held held;
  held.take(numpy, name, value);
  return api::to_tensor(held.view);
}

/// A model and the samples for it.
class Quantizer {
 public:
  Quantizer(const nb::object& model, const nb::dict& options) : text_(text_of_options(options)) {
    pipeline_.import.shapes = nb::cast<std::map<std::string, Shape>>(options["shapes"]);
    pipeline_.plan.threads = nb::cast<int>(options["threads"]);
    if (!options["labels"].is_none()) labels_ = nb::cast<std::vector<std::int64_t>>(options["labels"]);
    std::string path;
    std::shared_ptr<const std::vector<std::byte>> bytes;
    if (nb::isinstance<nb::bytes>(model)) {
      const auto held = nb::cast<nb::bytes>(model);
      const auto span = std::as_bytes(std::span(held.c_str(), held.size()));
      bytes = std::make_shared<const std::vector<std::byte>>(span.begin(), span.end());
    } else {
      path = text_.model = path_of(model);
    }
    const nb::gil_scoped_release release;
    options_ = take(cli::quantize_options(text_, pipeline_, cli::QuantizeForm::pairs));
    if (path.empty()) options_.import.display_name.clear();
    session_ = take(path.empty() ? api::Session::of(*bytes, "", "the model") : api::Session::open(path));
    imported_ = take(session_->imported(options_.import));
    declared_ = cli::inputs_of(imported_->graph);
  }

  /// One sample, or several one behind the other: {input: array}, or the array of the only input.
  void add(const nb::object& sample, const std::string& name) {
    const nb::object numpy = nb::module_::import_("numpy");
    const bool by_input = nb::isinstance<nb::dict>(sample);
    cli::Arrays arrays;
    if (by_input) {
      for (const auto& [key, value] : nb::cast<nb::dict>(sample)) {
        const std::string input = nb::cast<std::string>(nb::str(key));
        arrays[input] = tensor_of(numpy, input, value);
      }
    } else {
      arrays[""] = tensor_of(numpy, name, sample);
    }
    const nb::gil_scoped_release release;
    for (quantize::Sample& s : take(cli::samples_of(std::move(arrays), by_input, name, declared_)))
      take(samples_.add(std::move(s)));
  }

  /// The model's bytes and the report.
  nb::tuple run(const nb::object& progress) {
    Watch watch(progress);
    std::mutex mutex;
    std::string step;  // the present one: said by any thread, passed on by the one that asks for signals
    options_.progress = [&](const std::string& what, std::size_t done, std::size_t count) {
      const std::lock_guard lock(mutex);
      step = count == 0 ? what : what + ": " + std::to_string(done) + " of " + std::to_string(count);
    };
    const auto now = [&] {
      const std::lock_guard lock(mutex);
      return step;
    };
    std::vector<std::byte> bytes;
    std::string report;
    watch.over(
        [&] {
          set_score();
          const quantize::Outcome out = take(quantize::quantize(session_->parsed(), *imported_, samples_, options_));
          bytes = take(onnx::model_bytes(*out.model));
          report = out.report();
        },
        now);
    return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size()), text_of(report));
  }

 private:
  /// What max_drop bounds: right answers.
  void set_score() {
    if (!text_.labels) return;
    if (labels_.size() != samples_.size())
      bad_input("quantize: labels: " + std::to_string(labels_.size()) + " for " + std::to_string(samples_.size()) +
                " samples: one for each, please");
    const std::int64_t classes = ir::count(imported_->graph.type(imported_->graph.outputs.front()).shape);
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i] >= 0 && labels_[i] < classes) continue;
      bad_input("quantize: labels: sample " + std::to_string(i) + " has class " + std::to_string(labels_[i]) +
                ", the network knows 0 to " + std::to_string(classes - 1));
    }
    options_.score = [this](const quantize::Network& network) -> Result<double> {
      OCTAVO_TRY(const std::size_t right, quantize::right_answers(network, samples_, labels_, options_.threads));
      return static_cast<double>(right) / static_cast<double>(samples_.size());
    };
  }

  cli::QuantizeText text_;
  api::PipelineOptions pipeline_;
  quantize::Options options_;
  std::vector<std::int64_t> labels_;
  std::shared_ptr<const api::Session> session_;
  std::shared_ptr<const onnx::Model> imported_;
  cli::Declared declared_;
  quantize::KeptSamples samples_;
};

}  // namespace

void add_quantize(nb::module_& m) {
  nb::class_<Quantizer>(m, "_Quantizer")
      .def(nb::init<const nb::object&, const nb::dict&>(), nb::arg("model"), nb::arg("options"))
      .def("add", &Quantizer::add, nb::arg("sample"), nb::arg("name"))
      .def("run", &Quantizer::run, nb::arg("progress").none());
}

}  // namespace octavo::python
