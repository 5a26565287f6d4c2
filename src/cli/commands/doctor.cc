// octavo doctor: numbers of a model that mislead, and where each of its nodes runs; with --system what the machine offers.
#include "api/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands/commands.h"
#include "cli/commands/diagnosis.h"
#include "cli/commands/inspection.h"
#include "cli/commands/system.h"
#include "cli/effect.h"
#include "cli/inputs/gpu_option.h"
#include "cli/inputs/model.h"
#include "cli/print.h"

namespace octavo::cli {
namespace {

using Severity = onnx::Finding::Severity;

struct DoctorOptions {
  ModelOptions model;
  DataOptions data;
  std::string minmax, picture;
  bool json = false, no_nodes = false, system = false;
};

/// Where one ONNX node runs.
struct Place {
  std::string device, precision, kernel;  ///< kernel: the tactic; or why there is none
  int region = -1;
};

/// ONNX nodes that are nothing but pointwise operators: in a region with a convolution they are its epilogue, in float32.
std::set<std::string> pointwise_nodes(const ir::Graph& g) {
  std::set<std::string> pointwise, others;
  for (const ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    const bool here =
        ir::has_trait(n.op, ir::kPointwise) && n.op != ir::Op::view && n.op != ir::Op::quantize && n.op != ir::Op::dequantize;
    (here ? pointwise : others).insert(n.origin.begin(), n.origin.end());
  }
  for (const std::string& name : others) pointwise.erase(name);
  return pointwise;
}

Place place_of(const api::Built& built, const std::set<std::string>& pointwise, const std::string& node) {
  for (const auto& [name, why] : built.model.absorbed) {
    if (name == node) return {"-", "", why, -1};
  }
  const auto& regions = built.engine->plan().regions;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const region::Region& r = regions[i];
    if (!r.onnx_nodes.contains(node)) continue;
    const bool epilogue = r.precision == region::Work::int8 && pointwise.contains(node);
    return {api::device_of(built.engine->plan()), to_string(epilogue ? region::Precision(ir::DType::f32) : r.precision),
            r.tactic.name() + (r.tactic.reference ? " (reference code: slow)" : ""), static_cast<int>(i)};
  }
  return {"-", "", "part of other nodes' layers", -1};
}

void print_nodes(const std::vector<onnx::NodeName>& nodes, const api::Built& built) {
  std::size_t wide = 4, op_wide = 4;
  for (const auto& n : nodes)
    wide = std::max(wide, std::min<std::size_t>(n.name.size(), 48)), op_wide = std::max(op_wide, n.op.size());
  fmt::print("\n{:<{}}  {:<{}}  {:<9}  {:<13}  {:>6}  kernel\n", "node", wide, "op", op_wide, "device", "precision", "region");
  const std::set<std::string> pointwise = pointwise_nodes(built.graph);
  for (const auto& n : nodes) {
    const Place p = place_of(built, pointwise, n.name);
    fmt::print("{:<{}}  {:<{}}  {:<9}  {:<13}  {:>6}  {}\n", n.name, wide, n.op, op_wide, p.device, p.precision,
               p.region < 0 ? "" : std::to_string(p.region), p.kernel);
  }
}

std::string json_of(const onnx::Diagnosis& d, const Result<api::Built>& built, const quantize::Inspection& rounded) {
  nlohmann::json out;
  out["findings"] = nlohmann::json::array();
  for (const auto& f : d.findings) {
    out["findings"].push_back({{"severity", f.severity == Severity::error ? "error" : "warning"},
                               {"rule", f.rule},
                               {"tensor", f.tensor},
                               {"nodes", f.nodes},
                               {"text", f.text}});
  }
  out["nodes"] = nlohmann::json::array();
  const std::set<std::string> pointwise = built ? pointwise_nodes(built->graph) : std::set<std::string>();
  for (const auto& n : d.nodes) {
    nlohmann::json node{{"name", n.name}, {"op", n.op}};
    if (built) {
      const Place p = place_of(*built, pointwise, n.name);
      node["device"] = p.device, node["kernel"] = p.kernel, node["precision"] = p.precision;
      if (p.region >= 0) node["region"] = p.region;
    }
    out["nodes"].push_back(std::move(node));
  }
  add_json(rounded, out);
  if (!built) out["refusal"] = built.error().message;
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<int> doctor(const DoctorOptions& o) {
  if (o.system) {
    const SystemFacts facts = system_facts();
    fmt::print("{}", o.json ? json_of(facts) : text_of(facts));
    return 0;
  }
  if (o.model.path.empty()) return fail(ErrorKind::usage, "MODEL is missing\n  give an ONNX model, or --system for this machine");
  if (!o.picture.empty() && o.data.data.empty())
    return fail(ErrorKind::usage, "--picture shows the error of tensors on data\n  give --data as well");
  if (!o.minmax.empty() && o.model.calibration.empty())
    return fail(ErrorKind::usage, "--minmax is compared with the table of --calibration; give both");
  OCTAVO_TRY(const onnx::Diagnosis d, diagnose(o.model, o.minmax));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(o.model));
  build.import.most_listed = static_cast<std::size_t>(-1);
  build.progress = progress->watcher(o.model.path);
  OCTAVO_TRY(const auto session, session_of(o.model));
  onnx::LateValues none;
  const auto built = session->build(build, none);
  if (built) OCTAVO_CHECK(check_batch(o.model, inputs_of(built->engine->plan()).inputs));
  quantize::Inspection rounded;
  std::size_t samples = 0;
  if (built && !o.data.data.empty()) {
    OCTAVO_TRY(const auto data, FileData::open(o.data, inputs_of(built->model.graph)));
    for (const std::string& w : data->warnings()) say("warning: {}\n", w);
    OCTAVO_TRY(rounded, inspect_on(o.model, *built, *data, *progress));
    samples = data->size();
    if (!o.picture.empty()) OCTAVO_CHECK(write_picture(rounded, o.picture));
  }
  progress.reset();
  const auto errors =
      std::count_if(d.findings.begin(), d.findings.end(), [](const auto& f) { return f.severity == Severity::error; });
  const bool sick = errors > 0 || !built;
  if (o.json) {
    fmt::print("{}", json_of(d, built, rounded));
    return sick ? 1 : 0;
  }
  const std::ptrdiff_t warnings = static_cast<std::ptrdiff_t>(d.findings.size()) - errors;
  fmt::print("{}: {} node{}, {} error{}, {} warning{}{}\n", o.model.path, d.nodes.size(), d.nodes.size() == 1 ? "" : "s", errors,
             errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s", built ? "" : "; it cannot be compiled");
  for (const auto& f : d.findings) fmt::print("{}\n", onnx::to_string(f));
  if (!built) {
    fmt::print("refused: {}\n", built.error().message);
    return 1;
  }
  if (!o.no_nodes) print_nodes(d.nodes, *built);
  if (!rounded.tensors.empty()) fmt::print("\n{}{}", tensors_text(rounded, samples), outputs_text(rounded, samples));
  return sick ? 1 : 0;
}

}  // namespace

Result<onnx::Diagnosis> diagnose(const ModelOptions& model, const std::string& minmax) {
  OCTAVO_TRY(const onnx::DiagnoseOptions options, api::diagnose_options(model.calibration, minmax));
  OCTAVO_TRY(const auto session, model.opened->session(model.path));
  return session->diagnose(options);
}

void print_warnings(const onnx::Diagnosis& d, const std::string& failure) {
  constexpr int kMost = 8;
  std::map<std::string, int> shown;
  for (const auto& f : d.findings) {
    if (!failure.empty() && f.severity == Severity::error && failure.find(fmt::format("\"{}\"", f.tensor)) != std::string::npos)
      continue;
    if (shown[f.rule]++ < kMost) say("{}\n", onnx::to_string(f));
  }
  for (const auto& [rule, count] : shown) {
    if (count > kMost) say("and {} more [{}]; octavo doctor lists all\n", count - kMost, rule);
  }
}

Command add_doctor(Arguments& app) {
  auto o = std::make_shared<DoctorOptions>();
  add_model_options(app, o->model, false);
  add_gpu_option(app, o->model);
  o->model.build.plan.effort = 0;  // which kernel is fastest does not matter here
  app.add_option("--minmax", o->minmax,
                 "A min-max table of the same model and data; doctor compares the entropy table of --calibration with it")
      ->reads("FILE");
  add_data_options(app, o->data);
  app.add_option("--picture", o->picture,
                 "With --data: write the signal to noise of each rounded tensor and layer as a picture (.svg)")
      ->writes("FILE");
  app.add_flag("--no-nodes", o->no_nodes, "Print only the findings, without the table of nodes");
  app.add_flag(
      "--system", o->system,
      "Describe this machine instead of a model: processor, caches, threads, GPUs, drivers, NVRTC, versions and timing cache");
  app.add_flag("--json", o->json, "Print JSON");
  only_these(
      app, [o = o.get()] { return o->system; }, {"--system", "--json"}, "--system describes this machine and takes no MODEL");
  not_these(
      app, [o = o.get()] { return o->json; }, {"--no-nodes"}, "--json has the nodes\n  leave out one of the two");
  not_these(
      app, [] { return true; }, {"--values"}, kNoValues);
  app.footer(
      "Lists doubtful scales, biases, axes and ranges, each with its tensor (docs/doctor.md), and the region in which each ONNX "
      "node runs.\n"
      "With --data, doctor also runs the model with and without its roundings, and reports how much each tensor clips, how many "
      "codes it uses,\n"
      "and which layers add the error. The exit code is 1 if there is an error or a node is refused.\n"
      "Examples: octavo doctor model.onnx --calibration model.cache\n"
      "          octavo doctor --system");
  return [o] { return doctor(*o); };
}

}  // namespace octavo::cli
