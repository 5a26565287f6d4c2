// octavo quantize: float model and data -> ranges, a model with Q/DQ pairs, or an engine.
#include "quantize/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "api/session.h"
#include "cli/commands/accuracy.h"
#include "cli/commands/kept_float.h"
#include "cli/commands/metric.h"
#include "cli/commands/quantize_text.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/data.h"
#include "cli/inputs/labels.h"
#include "cli/inputs/model.h"
#include "cli/inputs/sign_option.h"
#include "cli/outputs/outcome.h"
#include "onnx/edit/layers.h"
#include "quant/table.h"
#include "quantize/search/run_time.h"
#include "report/explain.h"

namespace octavo::cli {
namespace {

using Form = QuantizeForm;

struct QuantizeOptions {
  ModelOptions model;
  DataOptions data;
  std::string labels, metric = "top1", report, header = "100700-EntropyCalibration2", sign;
  QuantizeText text;
};

Status write(const QuantizeOptions& o, const quantize::Outcome& out, Form form, const api::PipelineOptions& build,
             const std::string& private_key, Progress& progress) {
  const auto text = [&](const std::string& s) { return write_file(o.text.output, std::as_bytes(std::span(s.data(), s.size()))); };
  progress.step(fmt::format("write {}", o.text.output));
  switch (form) {
    case Form::table: return text(quant::table_text(out.scales(), o.header));
    case Form::json: return text(quant::ranges_json(out.ranges()));
    case Form::pairs: {
      OCTAVO_TRY(const auto bytes, onnx::model_bytes(*out.model));
      return write_file(o.text.output, bytes);
    }
    case Form::engine: {
      api::PipelineOptions searched = build;
      if (out.search) {  // it has decided which layers are bfloat16, and measured no other
        const auto rules = quantize::rules_for(out.bfloat16(), "bfloat16");
        searched.plan.precisions.insert(searched.plan.precisions.begin(), rules.begin(), rules.end());
        searched.plan.allowed.erase("bfloat16");
        searched.plan.allowed.insert("float32");
      }
      OCTAVO_TRY(const auto session, api::Session::made(*out.model));
      onnx::LateValues none;
      OCTAVO_TRY(const auto built, session->build(searched, none));
      return built.engine->save(o.text.output, kept_float_note(built), private_key);
    }
  }
  return {};
}

/// What --max-drop bounds: right answers of a classifier, or the average precision of a detector.
Status set_score(const QuantizeOptions& o, const ir::Graph& graph, const FileData& data, quantize::Options& q) {
  if (o.metric != "top1" && o.metric != "map50")
    return fail(ErrorKind::usage, fmt::format("--metric {}: --max-drop bounds top1 or map50", o.metric));
  if (o.labels.empty()) return {};
  if (o.metric == "map50") {
    MetricRequest request{o.metric, o.labels, &o.data, &data, {}, {}};
    for (const auto* list : {&graph.inputs, &graph.outputs}) {
      for (const ir::ValueId v : *list) {
        region::Binding b;
        b.name = graph.value(v).name;
        b.type = graph.type(v);
        (list == &graph.inputs ? request.inputs : request.outputs).push_back(std::move(b));
      }
    }
    OCTAVO_TRY(std::shared_ptr<Metric> metric, make_metric(request));
    q.score_name = metric->title();
    q.score = [metric, &data, threads = q.threads](const quantize::Network& network) -> Result<double> {
      std::mutex lock;
      const auto visit = [&](const quantize::Visit& v) -> Result<quantize::InOrder> {
        std::vector<ir::Tensor> outputs;
        for (std::size_t i = 0; i < network.outputs(); ++i) outputs.push_back(v.runners[0].output(i));
        const std::lock_guard guard(lock);
        OCTAVO_CHECK(metric->add(0, v.sample, outputs));
        return quantize::InOrder();
      };
      OCTAVO_CHECK(quantize::for_each(data, {&network}, threads, visit));
      OCTAVO_TRY(const auto values, metric->values(1));
      return values[0];
    };
    return {};
  }
  OCTAVO_TRY(const auto labels, read_labels(o.labels, data));
  const std::int64_t classes = ir::count(graph.type(graph.outputs.front()).shape);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < classes) continue;
    return fail(ErrorKind::bad_input, fmt::format("--labels {}: {} has class {}, the network knows 0 to {}", o.labels, data.path(i),
                                                  labels[i], classes - 1));
  }
  q.score = [labels, &data, threads = q.threads](const quantize::Network& network) -> Result<double> {
    OCTAVO_TRY(const std::size_t right, quantize::right_answers(network, data, labels, threads));
    return static_cast<double>(right) / static_cast<double>(data.size());
  };
  return {};
}

Result<int> run(const QuantizeOptions& o) {
  const Form form = form_of(o.text.output);
  OCTAVO_TRY(const std::string private_key, signing_key(o.sign));
  OCTAVO_TRY(const auto build, pipeline_options(o.model, {}, 1));
  QuantizeText text = o.text;
  text.model = o.model.path, text.allow = o.model.allow, text.labels = !o.labels.empty();
  OCTAVO_TRY(auto options, quantize_options(text, build, form));
  const auto start = std::chrono::steady_clock::now();
  const auto since = [](auto from) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(); };
  OCTAVO_TRY(const auto session, session_of(o.model));
  OCTAVO_TRY(const auto model, session->imported(options.import));
  OCTAVO_TRY(const auto data, FileData::open({o.data.data, o.data.recipe, o.labels}, inputs_of(model->graph)));
  OCTAVO_CHECK(set_score(o, model->graph, *data, options));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  options.progress = quantize_watcher(*progress, o.model.verbose);
  OCTAVO_TRY(const auto out, quantize::quantize(session->parsed(), *model, *data, options));
  if (!o.text.float_model.empty()) {
    OCTAVO_TRY(const auto bytes, onnx::model_bytes(*out.model));
    OCTAVO_CHECK(write_file(o.text.float_model, bytes));
  }
  OCTAVO_CHECK(write(o, out, form, build, private_key, *progress));
  if (!o.report.empty()) {
    const std::string json = out.report();
    OCTAVO_CHECK(write_file(o.report, std::as_bytes(std::span(json.data(), json.size()))));
  }
  if (!o.text.curve.empty()) {
    const std::string svg = quantize::curve_svg(*out.search);
    OCTAVO_CHECK(write_file(o.text.curve, std::as_bytes(std::span(svg.data(), svg.size()))));
  }
  progress.reset();
  print_warnings(*data, out);
  fmt::print("{}: {:.1f} s; {}", o.text.output, since(start), outcome_text(out, options.ranges.symmetric));
  if (form == Form::pairs) fmt::print("{}", build_text(out, o.text.output));
  if (!options.pairs && !options.float_model) {
    fmt::print(
        "{} no place for corrected weights{}: --float-model FILE writes the float model with the corrections, which the ranges "
        "then "
        "belong to; -o model.q.onnx keeps all\n",
        form == Form::table ? "a table has" : "ranges have",
        form == Form::table ? ", nor for zero points (-o ranges.json has)" : "");
  }
  return 0;
}

}  // namespace

Command add_quantize(Arguments& app) {
  auto o = std::make_shared<QuantizeOptions>();
  add_model_options(app, o->model, false);
  add_data_options(app, o->data);
  app.add_option("-o,--output", o->text.output,
                 "What to write: a model with Q/DQ pairs (.onnx), an engine (.octavo), ranges as JSON (.json), or a TensorRT "
                 "calibration table (any other name)")
      ->required()
      ->writes("FILE");
  app.add_option(
         "--method", o->text.method,
         "How to choose ranges of activations: best, minmax, percentile, entropy or mse (default: best). For detectors (YOLOX, "
         "NanoDet) the default "
         "tries best and minmax, which takes up to twice the time, and keeps the one with which the scores at objects change less")
      ->type_name("NAME");
  app.add_option("--percentile", o->text.percentile,
                 "With --method percentile: the part of a tensor's values that the range covers, in percent (default 99.99)")
      ->check(Range{50.0, 100.0})
      ->type_name("P");
  app.add_option(
         "--activations", o->text.activations,
         "asymmetric (with a zero point; the default) or symmetric (the default for TensorRT's tables, which hold nothing else)")
      ->check(OneOf({"asymmetric", "symmetric"}))
      ->type_name("NAME");
  app.add_option("--weights", o->text.weights, "How to choose scales of weights: mse (least squared error; default), or minmax")
      ->check(OneOf({"mse", "minmax"}))
      ->type_name("NAME");
  app.add_option("--rounding", o->text.rounding, "How to round weights: learned from the data (default), or nearest")
      ->check(OneOf({"learned", "nearest"}))
      ->type_name("NAME");
  app.add_flag("--no-equalization", o->text.no_equalization, "Do not equalize the ranges of channels between layers");
  app.add_option("--float-model", o->text.float_model,
                 "With a table or .json: also write the float model that the ranges belong to, with equalized channels, rounded "
                 "weights and corrected biases; a "
                 "table alone cannot hold these")
      ->writes("FILE");
  app.add_flag("--no-bias-correction", o->text.no_bias, "Do not correct biases");
  app.add_option("--stages", o->text.stages,
                 "Fit the network in this number of stages, each to the rounded results of the stages before; 0 (default) fits "
                 "every layer by itself")
      ->check(Range{0, 1000})
      ->type_name("N");
  app.add_option("--min-sqnr", o->text.min_sqnr,
                 "Keep layers out of int8 until the outputs have at least this signal to noise on the data, in dB "
                 "(docs/quantize.md). They become float32, or "
                 "with --allow int8,bfloat16,float32 first bfloat16")
      ->type_name("DB");
  app.add_option("--max-drop", o->text.max_drop,
                 "Keep layers out of int8 until the model loses at most this share of right answers (1% or 0.01); needs --labels")
      ->type_name("SHARE");
  app.add_option("--labels", o->labels, "Expected results, as for octavo eval")->reads("FILE");
  app.add_option("--metric", o->metric, "Metric of --max-drop: top1 (default), or map50 for detectors")->type_name("NAME");
  app.add_option("--min-layer-sqnr", o->text.min_layer,
                 fmt::format("A layer stays float if its results have a signal to noise below this (in dB) when only it is "
                             "rounded, and if rounding it costs the outputs at "
                             "least 1 dB (default {}; 0: no layer stays float)",
                             o->text.min_layer))
      ->check(Range{0.0, 200.0})
      ->type_name("DB");
  app.add_option("--curve", o->text.curve, "Write a picture (.svg) of accuracy over time for the networks that the search measured")
      ->writes("FILE");
  app.add_option("--placement", o->text.placement,
                 "Tensors that get pairs: borders (default), inputs, residual or outputs (docs/tables.md)")
      ->type_name("NAME");
  app.add_option("--header", o->header, "First line of a table: VERSION-ALGORITHM (default 100700-EntropyCalibration2)")
      ->type_name("TEXT");
  app.add_flag("--gains", o->text.gains, "Also measure the gain of each correction; this quantizes once more for each of them");
  app.add_flag("--no-measure", o->text.no_measure, "Do not compare the outputs with those of the float network");
  app.add_option("--report", o->report, "Write ranges, layers and signal to noise as JSON")->writes("FILE");
  add_sign_option(app, o->sign);
  const auto form = [o = o.get()] { return form_of(o->text.output); };
  std::set<std::string> building{"--device", "--cpu", "--sign"};
  for (const Option* option : o->model.of_build) building.insert(option->name());
  for (const char* shapes : {"--optShapes", "--minShapes", "--maxShapes", "--allow"})
    building.erase(shapes);  // of the network itself
  not_these(
      app, [form] { return form() != Form::engine; }, building,
      "it applies to engines, and -o names no engine\n  write an engine: -o model.octavo, or give the option to octavo build");
  const auto fits = [o = o.get(), form] { return form() == Form::pairs || form() == Form::engine || !o->text.float_model.empty(); };
  not_these(
      app, [fits] { return !fits(); },
      {"--weights", "--rounding", "--no-bias-correction", "--no-equalization", "--stages", "--gains"},
      "ranges alone have no place for weights and biases\n  write a model: -o model.q.onnx, or give --float-model FILE as well");
  not_these(
      app, [form] { return form() != Form::table; }, {"--header"},
      "it is the first line of a table, and -o names no table\n  leave it out");
  not_these(
      app, [o = o.get()] { return o->text.method != "percentile"; }, {"--percentile"},
      "it belongs to another method\n  give --method percentile as well");
  not_these(
      app, [o = o.get()] { return o->text.max_drop.empty() && !o->text.min_sqnr; }, {"--metric", "--labels"},
      "answers are counted by the search of precisions, which is not asked for\n  give --max-drop as well; octavo eval prints "
      "right answers");
  not_these(
      app, [] { return true; }, {"--values"}, kNoValues);
  not_these(
      app, [] { return true; }, {"--batch"},
      "samples are counted one by one\n  the batch of an engine: octavo build MODEL --batch N");
  app.footer(
      "Runs the float network on the data and chooses ranges. For models and engines it then fits weights and biases to the "
      "rounded inputs of each\n"
      "layer (docs/quantize.md).\n"
      "Examples:\n"
      "  octavo quantize model.onnx --data photos/ --preset torch -o model.q.onnx\n"
      "  octavo quantize model.onnx --data photos/ --preset torch -o ranges.cache");
  return [o] { return run(*o); };
}

}  // namespace octavo::cli
