// octavo eval: models, engines and tables on the same data, side by side.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands/accuracy.h"
#include "cli/commands/compare.h"
#include "cli/commands/metric.h"
#include "cli/commands/pairing.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/data.h"
#include "cli/inputs/labels.h"
#include "cli/inputs/model.h"
#include "cli/print.h"

namespace octavo::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::vector<std::string> others;
  DataOptions data;
  std::string labels, json, save;
  std::vector<std::string> metrics;
};

/// One model or engine, and what came of the samples so far.
struct Entry {
  std::string name;
  Loaded loaded;
  std::unique_ptr<engine::Context> context;
  Pairing inputs, outputs;       ///< with those of the first entry
  double signal = 0, noise = 0;  ///< against the first entry
  std::int64_t top1 = 0, top5 = 0, agree = 0;
  double seconds = 0;
};

/// A column that --metric asked for.
struct Column {
  std::unique_ptr<Metric> metric;
  std::vector<double> values;  ///< one for each model
};

/// `first`: null, or the model before it, whose inputs the shapes among the options name.
Result<Entry> open(const EvalOptions& o, const std::string& path, const std::string& calibration, const Loaded* first,
                   Progress& progress) {
  Entry e;
  ModelOptions m = first != nullptr ? o.model : options_for(o.model, path);
  m.calibration = calibration;
  e.name = calibration.empty() ? path : fmt::format("{} with {}", path, calibration);
  if (first != nullptr) {
    OCTAVO_TRY(e.loaded, load_beside(m, path, *first, {}, progress));
  } else {
    OCTAVO_TRY(e.loaded, load(m, progress));
  }
  OCTAVO_TRY(e.context, engine::Context::create(e.loaded.engine, e.loaded.threads));
  return e;
}

/// How many classes score higher than `label`, ties counted for those that come first.
std::int64_t rank_of(const ir::Tensor& scores, std::int64_t label) {
  const double mine = scores.at(label);
  std::int64_t rank = 0;
  for (std::int64_t c = 0; c < scores.size(); ++c) rank += scores.at(c) > mine || (scores.at(c) == mine && c < label) ? 1 : 0;
  return rank;
}

std::int64_t best_of(const ir::Tensor& scores) {
  std::int64_t best = 0;
  for (std::int64_t c = 1; c < scores.size(); ++c) best = scores.at(c) > scores.at(best) ? c : best;
  return best;
}

/// A classifier: one output of which each run gives one list of scores.
bool classifies(const region::Plan& plan) {
  if (plan.outputs.size() != 1) return false;
  const ir::Shape& s = plan.outputs[0].type.shape;
  return s.size() >= 2 && s[0] == 1 && s[1] > 1 && ir::count(s) == s[1];
}

/// Says where names differ.
Status match(const Entry& first, Entry& other) {
  const region::Plan &a = first.loaded.engine->plan(), &b = other.loaded.engine->plan();
  OCTAVO_TRY(other.inputs, pair_up("input", a.inputs, first.name, b.inputs, other.name));
  OCTAVO_TRY(other.outputs, pair_up("output", a.outputs, first.name, b.outputs, other.name));
  for (const std::string& text :
       {said("input", other.inputs, a.inputs, b.inputs), said("output", other.outputs, a.outputs, b.outputs)}) {
    if (!text.empty()) say("{}: {}\n", other.name, text);
  }
  return {};
}

/// In the order of `pairing`: the other's tensors for each of the first.
std::vector<ir::Tensor> to_first(const Pairing& pairing, const std::vector<ir::Tensor>& others) {
  std::vector<ir::Tensor> out;
  for (const std::size_t i : pairing.to) out.push_back(others[i]);
  return out;
}

std::vector<ir::Tensor> to_other(const Pairing& pairing, const std::vector<ir::Tensor>& firsts) {
  std::vector<ir::Tensor> out(firsts.size());
  for (std::size_t i = 0; i < firsts.size(); ++i) out[pairing.to[i]] = firsts[i];
  return out;
}

std::string percent(std::int64_t part, std::size_t whole) {
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void print(const std::vector<Entry>& entries, const std::vector<Column>& columns, std::size_t samples, bool labelled,
           bool classes) {
  std::string titles;
  for (const Column& c : columns) titles += fmt::format("{:>10} ", c.metric->title());
  fmt::print("{} samples\n{}{:>8} {:>8} {:>9} {:>10} {:>10}  model\n", samples, titles, labelled ? "top-1" : "",
             labelled ? "top-5" : "", classes ? "same top" : "", "SQNR", "ms a run");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const std::string sqnr = i == 0        ? "reference"
                             : e.noise > 0 ? fmt::format("{:.2f} dB", 10 * std::log10(e.signal / e.noise))
                                           : "equal";
    std::string figures;
    for (const Column& c : columns) {
      const std::string text = c.metric->share() ? fmt::format("{:.1f} %", 100 * c.values[i]) : fmt::format("{:.5g}", c.values[i]);
      figures += fmt::format("{:>{}} ", text, std::max<std::size_t>(10, c.metric->title().size()));
    }
    fmt::print("{}{:>8} {:>8} {:>9} {:>10} {:>10.2f}  {}\n", figures, labelled ? percent(e.top1, samples) : "",
               labelled ? percent(e.top5, samples) : "", classes ? percent(e.agree, samples) : "", sqnr,
               1e3 * e.seconds / static_cast<double>(samples), e.name);
  }
}

std::string as_json(const std::vector<Entry>& entries, const std::vector<Column>& columns, std::size_t samples, bool labelled,
                    bool classes) {
  nlohmann::ordered_json out;
  out["samples"] = samples;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    nlohmann::ordered_json j{{"model", e.name}, {"seconds_a_run", e.seconds / static_cast<double>(samples)}};
    const auto part = [&](std::int64_t n) { return static_cast<double>(n) / static_cast<double>(samples); };
    if (labelled) {
      j["top1"] = part(e.top1);
      j["top5"] = part(e.top5);
    }
    if (classes) j["same_top"] = part(e.agree);
    for (const Column& c : columns) j[c.metric->title()] = c.values[i];
    j["sqnr_db"] = e.noise > 0 ? nlohmann::ordered_json(10 * std::log10(e.signal / e.noise)) : nlohmann::ordered_json(nullptr);
    out["models"].push_back(std::move(j));
  }
  return out.dump(1) + "\n";
}

Result<int> eval(const EvalOptions& o) {
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  std::vector<Entry> entries;
  entries.reserve(2 + o.others.size());  // the first is read while others are opened
  OCTAVO_TRY(entries.emplace_back(), open(o, o.model.path, "", nullptr, *progress));
  if (!o.model.calibration.empty()) {
    OCTAVO_TRY(entries.emplace_back(), open(o, o.model.path, o.model.calibration, nullptr, *progress));
  }
  for (const std::string& path : o.others) {
    OCTAVO_TRY(entries.emplace_back(), open(o, path, "", &entries[0].loaded, *progress));
  }
  for (Entry& e : entries) OCTAVO_CHECK(match(entries[0], e));
  const region::Plan& plan = entries[0].loaded.engine->plan();
  OCTAVO_TRY(const auto data, FileData::open({o.data.data, o.data.recipe, o.labels}, inputs_of(plan)));
  for (const std::string& w : data->warnings()) fmt::print(stderr, "warning: {}\n", w);
  std::vector<Column> columns;
  bool boxes = false;
  for (const std::string& name : o.metrics) {
    if ((name == "top1" || name == "top5") && o.labels.empty())
      return fail(ErrorKind::usage, fmt::format("--metric {}: right answers are counted\n  give --labels", name));
    if (name == "top1" || name == "top5" || name == "sqnr") continue;
    boxes = boxes || name == "map50";
    OCTAVO_TRY(auto metric, make_metric({name, o.labels, &o.data, data.get(), plan.inputs, plan.outputs}));
    columns.push_back({std::move(metric), {}});
  }
  const bool classes = classifies(plan), labelled = !o.labels.empty() && !boxes && (classes || columns.empty());
  std::vector<std::int64_t> labels;
  if (labelled) {
    if (!classes) return fail(ErrorKind::usage, "--labels: only for classifiers: one output [1, classes]");
    OCTAVO_TRY(labels, read_labels(o.labels, *data));
    const std::int64_t count = plan.outputs[0].type.shape[1];
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] >= count)
        return fail(ErrorKind::bad_input, fmt::format("--labels {}: {} has class {}, the network knows 0 to {}", o.labels,
                                                      data->path(i), labels[i], count - 1));
    }
  }
  for (std::size_t i = 0; i < data->size(); ++i) {
    progress->step(fmt::format("sample {} of {}", i + 1, data->size()));
    OCTAVO_TRY(const auto sample, data->at(i));
    std::vector<ir::Tensor> exact;
    Arrays saved;
    for (std::size_t k = 0; k < entries.size(); ++k) {
      Entry& e = entries[k];
      const auto begun = std::chrono::steady_clock::now();
      OCTAVO_TRY(const auto given, api::run(*e.context, to_other(e.inputs, sample.inputs)));
      e.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      const auto out = to_first(e.outputs, given);
      if (k == 0) exact = out;
      for (const Column& c : columns) OCTAVO_CHECK(c.metric->add(k, i, out));
      for (std::size_t t = 0; t < out.size(); ++t) {
        if (!o.save.empty()) saved.insert_or_assign(fmt::format("{}.{}", k, plan.outputs[t].name), out[t]);
        if (!ir::is_float(out[t].dtype())) continue;
        for (std::int64_t x = 0; x < out[t].size(); ++x) {
          const double a = exact[t].at(x), d = out[t].at(x) - a;
          e.signal += a * a;
          e.noise += d * d;
        }
      }
      if (!classes) continue;
      e.agree += best_of(out[0]) == best_of(exact[0]) ? 1 : 0;
      if (!labelled) continue;
      const std::int64_t rank = rank_of(out[0], labels[i]);
      e.top1 += rank == 0 ? 1 : 0;
      e.top5 += rank < 5 ? 1 : 0;
    }
    if (!o.save.empty()) {
      std::error_code problem;
      std::filesystem::create_directories(o.save, problem);
      OCTAVO_TRY(const auto bytes, format_npz(saved));
      OCTAVO_CHECK(write_file(fmt::format("{}/{:05}.npz", o.save, i), bytes));
    }
  }
  for (Column& c : columns) {
    progress->step(fmt::format("metric {}", c.metric->title()));
    OCTAVO_TRY(c.values, c.metric->values(entries.size()));
  }
  progress.reset();
  print(entries, columns, data->size(), labelled, classes);
  if (!o.json.empty()) {
    const std::string text = as_json(entries, columns, data->size(), labelled, classes);
    OCTAVO_CHECK(write_file(o.json, std::as_bytes(std::span(text.data(), text.size()))));
  }
  return 0;
}

}  // namespace

Command add_eval(Arguments& app) {
  auto o = std::make_shared<EvalOptions>();
  o->model.build.plan.effort =
      0;  // the results are the same at every effort, but for roundings that a measured plan adds to implicit models
  add_model_options(app, o->model, true);
  app.add_option("OTHERS", o->others, "Models and engines that are compared with the first")->reads("FILE");
  add_data_options(app, o->data);
  app.add_option("--labels", o->labels,
                 "Expected results. For map50: a COCO file of objects. For classes: a .csv file with the columns file and "
                 "class_index, a text file with "
                 "one number on each line, or the word folders, if each class has a folder of pictures (classes in the order of "
                 "the folders' names)")
      ->reads("FILE");
  app.add_option(
         "--metric", o->metrics,
         "Further columns: map50 (COCO's average precision of detectors, with --labels instances.json), or a Python file with "
         "metric(outputs, reference, samples, labels); top1, top5 and sqnr are always printed")
      ->delimiter(',')
      ->type_name("NAME")
      ->use(FileUse::read);
  app.add_option("--json", o->json, "Write the figures as JSON")->writes("FILE");
  app.add_option("--save", o->save, "Write the outputs of each sample into this folder, as .npz")->writes("FOLDER");
  not_these(
      app, [] { return true; }, {"--batch"},
      "samples are counted one by one\n  the batch of an engine: octavo build MODEL --batch N");
  o->model.others = [o = o.get()] { return o->others; };
  app.footer(
      "The first model is the reference: SQNR is 10 log10 of (sum of its squared outputs / sum of squared differences), over all "
      "samples "
      "and\n"
      "outputs. With --calibration the first model is also run with these ranges. Models are built at effort 0 unless --effort "
      "says "
      "otherwise.\n"
      "Example: octavo eval model.onnx model.q.onnx model.octavo --calibration ranges.cache --data photos/ --preset torch --labels "
      "labels.csv");
  return [o] { return eval(*o); };
}

}  // namespace octavo::cli
