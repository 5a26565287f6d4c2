// octavo quantize: float model and data -> ranges, a model with Q/DQ pairs, or an engine.
#include "quantize/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "api/model_source.h"
#include "cli/accuracy.h"
#include "cli/data.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/kept_float.h"
#include "cli/labels.h"
#include "cli/metric.h"
#include "cli/model.h"
#include "cli/outcome.h"
#include "quant/table.h"
#include "quantize/run_time.h"
#include "report/explain.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  DataOptions data;
  std::string labels, max_drop, curve, metric = "top1";
  std::optional<double> min_sqnr;
  std::string output, report, float_model, header = "100700-EntropyCalibration2", method, activations, weights = "mse",
                                           rounding = "learned", placement = "borders";
  double percentile = 99.99, min_layer = quantize::Options{}.least_layer_sqnr;
  bool no_bias = false, no_measure = false, no_equalization = false, gains = false;
  int stages = 0;
};

enum class Form { table, json, pairs, engine };

Form form_of(const std::string& path) {
  if (path.ends_with(".onnx")) return Form::pairs;
  if (path.ends_with(".octavo") || path.ends_with(".engine") || path.ends_with(".plan")) return Form::engine;
  return path.ends_with(".json") ? Form::json : Form::table;
}

/// "1%" or "0.01".
Result<double> part_of(const std::string& text) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const bool percent = end > 0 && text.substr(end) == "%";
  if (percent) value /= 100;
  if (end == 0 || (!percent && end != text.size()) || !(value >= 0 && value <= 1))
    return fail(ErrorKind::usage, fmt::format("--max-drop {}: give a share of the samples, as 1% or 0.01", text));
  return value;
}

/// --allow: the types that layers may have when the bound holds; without one it is the build's, of an engine.
Status take_types(const Options& o, const api::PipelineOptions& build, Form form, quantize::Options& q) {
  if (o.model.allow.empty()) return {};
  const bool engine = form == Form::engine;
  if (!q.bound.given()) {
    if (engine) return {};
    return fail(ErrorKind::usage,
                fmt::format("--allow {}: lists the types that layers may return to until a bound holds, and no bound is given\n  "
                            "give --min-sqnr or --max-drop",
                            fmt::join(o.model.allow, ",")));
  }
  q.allowed.clear();
  for (const std::string& type : o.model.allow) {
    if (type == "tf32" && engine) continue;  // of the build
    if (type == "float16") {
      return fail(ErrorKind::usage,
                  "--allow float16: tensors can have it, layers do not compute in it (docs/precision.md)\n  allow bfloat16");
    }
    if (type != "int8" && type != "float32" && type != "bfloat16") {
      return fail(ErrorKind::usage,
                  fmt::format("--allow {}: not a type that the search of precision gives to layers\n  known: int8, "
                              "float32, bfloat16",
                              type));
    }
    q.allowed.insert(type);
  }
  if (!q.allowed.contains("int8")) {
    return fail(
        ErrorKind::usage,
        fmt::format("--allow {}: layers start in int8, which is not allowed\n  allow int8 as well; octavo build MODEL --allow "
                    "{} takes the float model",
                    fmt::join(o.model.allow, ","), fmt::join(o.model.allow, ",")));
  }
  if (q.allowed.size() < 2) {
    return fail(ErrorKind::usage,
                "--allow int8: layers have no other type to go to when the bound does not hold\n  allow float32, "
                "bfloat16 or both as well");
  }
  q.needs_kernels = engine && build.device == "cpu";
  return {};
}

Result<quantize::Options> quantize_options(const Options& o, const api::PipelineOptions& build, Form form) {
  quantize::Options q;
  q.import = build.import;
  q.import.display_name = o.model.path;
  if (!o.method.empty()) {
    const auto method = quantize::parse_method(o.method);
    if (!method)
      return fail(ErrorKind::usage, fmt::format("--method {}: known are best, minmax, percentile, entropy and mse", o.method));
    q.method = *method;
    q.minmax_for_detectors = false;  // whoever names a method gets it
  }
  q.pairs = form == Form::pairs || form == Form::engine;
  q.ranges.symmetric = o.activations.empty() ? form == Form::table : o.activations == "symmetric";
  if (form == Form::table && !q.ranges.symmetric) {
    return fail(ErrorKind::usage,
                fmt::format("--activations asymmetric: the table \"{}\" holds one scale for each tensor and no zero point\n"
                            "  write JSON or a model instead: -o ranges.json, -o model.q.onnx",
                            o.output));
  }
  q.ranges.percentile = o.percentile;
  q.fit.least_error_scales = o.weights == "mse";
  q.fit.correct_bias = !o.no_bias;
  q.fit.learned_rounding = o.rounding == "learned";
  q.equalize = !o.no_equalization;
  q.least_layer_sqnr = o.min_layer;
  q.gains = o.gains;
  q.float_model = !o.float_model.empty();
  q.bound.min_sqnr = o.min_sqnr;
  if (!o.max_drop.empty()) {
    OCTAVO_TRY(q.bound.max_drop, part_of(o.max_drop));
    if (o.labels.empty()) {
      return fail(ErrorKind::usage,
                  fmt::format("--max-drop {}: right answers are counted, which needs the right classes\n  give --labels, "
                              "or bound the signal to noise: --min-sqnr 20",
                              o.max_drop));
    }
  }
  if (q.bound.given() && !q.pairs) {
    return fail(ErrorKind::usage,
                fmt::format("--{}: a table cannot express that a layer stays float\n  write a model: -o model.q.onnx",
                            o.min_sqnr ? "min-sqnr" : "max-drop"));
  }
  OCTAVO_CHECK(take_types(o, build, form, q));
  if (!o.curve.empty() && !q.bound.given())
    return fail(ErrorKind::usage, "--curve: the curve comes from the search of precisions\n  give --min-sqnr or --max-drop");
  q.fit.full_range = q.float_model;
  if (q.float_model && q.pairs) {
    return fail(ErrorKind::usage,
                fmt::format("--float-model: belongs to a table or .json of ranges, and \"{}\" is a model with its "
                            "own pairs\n  leave it out, or write a table: -o ranges.cache",
                            o.output));
  }
  q.placement = o.placement;
  q.stages = o.stages;
  q.measure = !o.no_measure;
  q.threads = build.plan.threads > 0 ? build.plan.threads : engine::available_cores();
  return q;
}

Status write(const Options& o, const quantize::Outcome& out, Form form, const api::PipelineOptions& build, Progress& progress) {
  const auto text = [&](const std::string& s) { return write_file(o.output, std::as_bytes(std::span(s.data(), s.size()))); };
  progress.step(fmt::format("write {}", o.output));
  switch (form) {
    case Form::table: return text(quant::table_text(out.scales(), o.header));
    case Form::json: return text(quant::ranges_json(out.ranges()));
    case Form::pairs: return write_file(o.output, out.model);
    case Form::engine: {
      api::PipelineOptions searched = build;
      if (out.search) {  // it has decided which layers are bfloat16, and measured no other
        const auto rules = quantize::rules_for(out.bfloat16(), "bfloat16");
        searched.plan.precisions.insert(searched.plan.precisions.begin(), rules.begin(), rules.end());
        searched.plan.allowed.erase("bfloat16");
        searched.plan.allowed.insert("float32");
      }
      const std::string folder = std::filesystem::path(o.model.path).parent_path().string();
      searched.source = api::memory_source(std::make_shared<const std::vector<std::byte>>(out.model), folder);
      OCTAVO_TRY(const auto built, api::build_bytes(out.model, searched, folder));
      return built.engine->save(o.output, kept_float_note(built));
    }
  }
  return {};
}

/// What --max-drop bounds: right answers of a classifier, or the average precision of a detector.
Status set_score(const Options& o, const ir::Graph& graph, const FileData& data, quantize::Options& q) {
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

Result<int> run(const Options& o) {
  const Form form = form_of(o.output);
  OCTAVO_TRY(const auto build, pipeline_options(o.model, {}, 1));
  OCTAVO_TRY(auto options, quantize_options(o, build, form));
  const auto start = std::chrono::steady_clock::now();
  const auto since = [](auto from) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(); };
  OCTAVO_TRY(const auto bytes, read_file(o.model.path));
  const std::string folder = std::filesystem::path(o.model.path).parent_path().string();
  OCTAVO_TRY(const auto model, onnx::import_bytes(bytes, options.import, folder));
  OCTAVO_TRY(const auto data, FileData::open({o.data.data, o.data.recipe, o.labels}, inputs_of(model.graph)));
  OCTAVO_CHECK(set_score(o, model.graph, *data, options));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  options.progress = quantize_watcher(*progress, o.model.verbose);
  OCTAVO_TRY(const auto out, quantize::quantize(bytes, folder, *data, options));
  if (!o.float_model.empty()) OCTAVO_CHECK(write_file(o.float_model, out.model));
  OCTAVO_CHECK(write(o, out, form, build, *progress));
  if (!o.report.empty()) {
    const std::string json = out.report();
    OCTAVO_CHECK(write_file(o.report, std::as_bytes(std::span(json.data(), json.size()))));
  }
  if (!o.curve.empty()) {
    const std::string svg = quantize::curve_svg(*out.search);
    OCTAVO_CHECK(write_file(o.curve, std::as_bytes(std::span(svg.data(), svg.size()))));
  }
  progress.reset();
  print_warnings(*data, out);
  fmt::print("{}: {:.1f} s; {}", o.output, since(start), outcome_text(out, options.ranges.symmetric));
  if (form == Form::pairs) fmt::print("{}", build_text(out, o.output));
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

Command add_quantize(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, false);
  add_data_options(app, o->data);
  app.add_option("-o,--output", o->output,
                 "What to write: a model with Q/DQ pairs (.onnx), an engine (.octavo), ranges as JSON (.json), or a TensorRT "
                 "calibration table (any other name)")
      ->required()
      ->type_name("FILE");
  app.add_option(
         "--method", o->method,
         "How to choose ranges of activations: best, minmax, percentile, entropy or mse (default: best). For detectors (YOLOX, "
         "NanoDet) the default "
         "tries best and minmax, which takes up to twice the time, and keeps the one with which the scores at objects change less")
      ->type_name("NAME");
  app.add_option("--percentile", o->percentile,
                 "With --method percentile: the part of a tensor's values that the range covers, in percent (default 99.99)")
      ->check(CLI::Range(50.0, 100.0))
      ->type_name("P");
  app.add_option(
         "--activations", o->activations,
         "asymmetric (with a zero point; the default) or symmetric (the default for TensorRT's tables, which hold nothing else)")
      ->check(CLI::IsMember({"asymmetric", "symmetric"}))
      ->type_name("NAME");
  app.add_option("--weights", o->weights, "How to choose scales of weights: mse (least squared error; default), or minmax")
      ->check(CLI::IsMember({"mse", "minmax"}))
      ->type_name("NAME");
  app.add_option("--rounding", o->rounding, "How to round weights: learned from the data (default), or nearest")
      ->check(CLI::IsMember({"learned", "nearest"}))
      ->type_name("NAME");
  app.add_flag("--no-equalization", o->no_equalization, "Do not equalize the ranges of channels between layers");
  app.add_option("--float-model", o->float_model,
                 "With a table or .json: also write the float model that the ranges belong to, with equalized channels, rounded "
                 "weights and corrected biases; a "
                 "table alone cannot hold these")
      ->type_name("FILE");
  app.add_flag("--no-bias-correction", o->no_bias, "Do not correct biases");
  app.add_option("--stages", o->stages,
                 "Fit the network in this number of stages, each to the rounded results of the stages before; 0 (default) fits "
                 "every layer by itself")
      ->check(CLI::Range(0, 1000))
      ->type_name("N");
  app.add_option("--min-sqnr", o->min_sqnr,
                 "Keep layers out of int8 until the outputs have at least this signal to noise on the data, in dB "
                 "(docs/quantize.md). They become float32, or "
                 "with --allow int8,bfloat16,float32 first bfloat16")
      ->type_name("DB");
  app.add_option("--max-drop", o->max_drop,
                 "Keep layers out of int8 until the model loses at most this share of right answers (1% or 0.01); needs --labels")
      ->type_name("SHARE");
  app.add_option("--labels", o->labels, "Expected results, as for octavo eval")->type_name("FILE");
  app.add_option("--metric", o->metric, "Metric of --max-drop: top1 (default), or map50 for detectors")->type_name("NAME");
  app.add_option("--min-layer-sqnr", o->min_layer,
                 fmt::format("A layer stays float if its results have a signal to noise below this (in dB) when only it is "
                             "rounded, and if rounding it costs the outputs at "
                             "least 1 dB (default {}; 0: no layer stays float)",
                             o->min_layer))
      ->check(CLI::Range(0.0, 200.0))
      ->type_name("DB");
  app.add_option("--curve", o->curve, "Write a picture (.svg) of accuracy over time for the networks that the search measured")
      ->type_name("FILE");
  app.add_option("--placement", o->placement,
                 "Tensors that get pairs: borders (default), inputs, residual or outputs (docs/tables.md)")
      ->type_name("NAME");
  app.add_option("--header", o->header, "First line of a table: VERSION-ALGORITHM (default 100700-EntropyCalibration2)")
      ->type_name("TEXT");
  app.add_flag("--gains", o->gains, "Also measure the gain of each correction; this quantizes once more for each of them");
  app.add_flag("--no-measure", o->no_measure, "Do not compare the outputs with those of the float network");
  app.add_option("--report", o->report, "Write ranges, layers and signal to noise as JSON")->type_name("FILE");
  const auto form = [o = o.get()] { return form_of(o->output); };
  std::set<std::string> building{"--device", "--cpu"};
  for (const CLI::Option* option : o->model.of_build) building.insert(option->get_name());
  for (const char* shapes : {"--optShapes", "--minShapes", "--maxShapes", "--allow"})
    building.erase(shapes);  // of the network itself
  not_these(
      app, [form] { return form() != Form::engine; }, building,
      "it applies to engines, and -o names no engine\n  write an engine: -o model.octavo, or give the option to octavo build");
  const auto fits = [o = o.get(), form] { return form() == Form::pairs || form() == Form::engine || !o->float_model.empty(); };
  not_these(
      app, [fits] { return !fits(); },
      {"--weights", "--rounding", "--no-bias-correction", "--no-equalization", "--stages", "--gains"},
      "ranges alone have no place for weights and biases\n  write a model: -o model.q.onnx, or give --float-model FILE as well");
  not_these(
      app, [form] { return form() != Form::table; }, {"--header"},
      "it is the first line of a table, and -o names no table\n  leave it out");
  not_these(
      app, [o = o.get()] { return o->method != "percentile"; }, {"--percentile"},
      "it belongs to another method\n  give --method percentile as well");
  not_these(
      app, [o = o.get()] { return o->max_drop.empty() && !o->min_sqnr; }, {"--metric", "--labels"},
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
