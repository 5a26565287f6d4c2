// octavo view: the plan as a page to look at.
#include "cli/commands/view.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/write_file.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/gpu_option.h"
#include "cli/inputs/model.h"
#include "cli/outputs/view_page.h"

namespace octavo::cli {
namespace {

struct ViewOptions {
  ModelOptions model;
  std::string output, beside, beside_calibration, graph, accuracy, beside_accuracy;
  bool profile = false;
  int runs = 20;
};

/// A file that begins as JSON does: what `explain --json` printed. Nothing for others.
Result<std::optional<nlohmann::json>> saved_document(const std::string& path) {
  if (path.empty()) return std::optional<nlohmann::json>();  // `load` says what is missing
  OCTAVO_TRY(const std::string text, read_text(path));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return std::optional<nlohmann::json>();
  OCTAVO_TRY(auto document, read_document(text, path));
  return std::optional<nlohmann::json>(std::move(document));
}

/// One side of the page.
Result<nlohmann::json> document_of(const ViewOptions& o, const ModelOptions& model, const std::string& graph) {
  const std::string name = std::filesystem::path(model.path).filename().string();
  OCTAVO_TRY(auto saved, saved_document(model.path));
  if (saved) {
    if (o.profile) {
      return fail(
          ErrorKind::usage,
          fmt::format("--profile: \"{}\" is a plan as JSON, which cannot be run\n  give the model or the engine", model.path));
    }
    if (!graph.empty()) {
      OCTAVO_TRY(const auto session, model.opened->session(graph));
      (*saved)["onnx"] = onnx_document(session->nodes());
    }
    (*saved)["file"] = name;
    return std::move(*saved);
  }
  std::optional<onnx::GraphNodes> nodes;
  if (!graph.empty()) {  // before the build: it may not be there
    OCTAVO_TRY(const auto session, model.opened->session(graph));
    nodes = session->nodes();
  }
  Progress progress(model.verbose);
  OCTAVO_TRY(const Loaded loaded, load(model, progress));
  if (loaded.built && !nodes) {
    OCTAVO_TRY(const auto session, session_of(model));
    nodes = session->nodes();
  }
  if (o.profile) progress.step(fmt::format("time {} runs", o.runs));
  ViewExtras extras;
  extras.built = loaded.built ? &*loaded.built : nullptr;
  extras.nodes = nodes ? &*nodes : nullptr;
  extras.ranges = !model.calibration.empty();
  extras.disabled = model.build.plan.disabled;
  extras.threads = loaded.threads;
  extras.file = name;
  extras.runs = o.profile ? o.runs : 0;
  return view_document(loaded.engine, extras);
}

Result<int> view(const ViewOptions& o) {
  for (const auto& [name, value] :
       {std::pair{"--beside-calibration", &o.beside_calibration}, std::pair{"--beside-accuracy", &o.beside_accuracy}}) {
    if (o.beside.empty() && !value->empty())
      return fail(ErrorKind::usage, fmt::format("{} \"{}\" is about a second plan; name it with --beside", name, *value));
  }
  OCTAVO_CHECK(check_outputs({o.output}));
  std::string report, beside_report;  // before the builds: files that are not there
  if (!o.accuracy.empty()) {
    OCTAVO_TRY(report, read_text(o.accuracy, "report"));
  }
  if (!o.beside_accuracy.empty()) {
    OCTAVO_TRY(beside_report, read_text(o.beside_accuracy, "report"));
  }
  if (!o.beside.empty()) OCTAVO_CHECK(read_text(o.beside));
  std::vector<nlohmann::json> documents;
  OCTAVO_TRY(documents.emplace_back(), document_of(o, o.model, o.graph));
  if (!o.accuracy.empty()) OCTAVO_CHECK(add_accuracy(documents.back(), report, o.accuracy));
  if (!o.beside.empty()) {
    ModelOptions other = options_for(o.model, o.beside);
    other.calibration = o.beside_calibration;
    OCTAVO_TRY(documents.emplace_back(), document_of(o, other, ""));
    if (!o.beside_accuracy.empty()) OCTAVO_CHECK(add_accuracy(documents.back(), beside_report, o.beside_accuracy));
  }
  return write_page(std::move(documents), o.output);
}

}  // namespace

Command add_view(Arguments& app) {
  auto o = std::make_shared<ViewOptions>();
  add_model_options(app, o->model, true);
  add_gpu_option(app, o->model);
  arrange(app, [o = o.get()] { o->model.looks_only = !o->profile; });
  app.add_option("-o,--output", o->output, "The page to write; - for stdout")->required()->writes("FILE");
  app.add_option(
         "--beside", o->beside,
         "A second model, engine or plan (of `octavo explain --json`) to show beside the first; the other options apply to both")
      ->reads("FILE");
  app.add_option("--beside-calibration", o->beside_calibration,
                 "Ranges of the second model; --calibration applies to the first only")
      ->reads("FILE");
  app.add_flag("--profile", o->profile, "Measure each region on random inputs, instead of showing the times that the planner used");
  app.add_option("--runs", o->runs, "Number of runs for --profile (default 20)")->check(Range{1, 1000000})->type_name("N");
  app.add_option("--graph", o->graph, "The ONNX model that an engine was built from, to show its graph beside the plan")
      ->reads("FILE");
  app.add_option("--accuracy", o->accuracy, "Show the signal to noise of layers from this file of `octavo quantize --report`")
      ->reads("FILE");
  app.add_option("--beside-accuracy", o->beside_accuracy, "The same for the second plan")->reads("FILE");
  o->model.others = [o = o.get()] { return std::vector<std::string>{o->beside}; };
  not_these(
      app, [o = o.get()] { return !o->profile; }, {"--runs"}, "nothing is measured\n  give --profile as well, or leave it out");
  app.footer(
      "MODEL may also be a plan that `octavo explain --json` printed. The page is one file without links to the network. It shows "
      "the plan as a graph\n"
      "and as a table, the ONNX graph, working memory over time, and the reasons for each region (docs/view.md).\n"
      "Example: octavo view model.onnx --profile -o report.html\n"
      "         octavo view explicit.onnx --beside float.onnx --beside-calibration ranges.cache -o both.html");
  return [o] { return view(*o); };
}

}  // namespace octavo::cli
