#include "report/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/nearest.h"
#include "cli/commands/commands.h"
#include "cli/commands/kept_float.h"
#include "cli/commands/roundings.h"
#include "cli/commands/slow_share.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/gpu_option.h"
#include "cli/inputs/model.h"
#include "cli/inputs/shape_sets.h"
#include "cli/outputs/view_page.h"
#include "onnx/model/tensor_uses.h"
#include "report/decisions.h"
#include "report/laws.h"

namespace octavo::cli {
namespace {

struct ExplainOptions {
  ModelOptions model;
  report::Filter filter;
  bool json = false, all = false, copies = false, laws = false, roundings = false;
  std::string html;
  BuildWithout without;
};

/// What import says about an ONNX node that no region stands for; empty if it says nothing.
std::string why_absorbed(const Loaded& loaded, const std::string& node) {
  if (!loaded.built) return {};
  for (const auto& [name, why] : loaded.built->model.absorbed) {
    if (name == node) return why;
  }
  return {};
}

/// A tensor that no region stores: the regions in which the nodes around it went.
std::string inside(const region::Plan& plan, const report::GridOrigin& origin) {
  std::string out;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const auto& nodes = plan.regions[i].onnx_nodes;
    const bool here = std::any_of(nodes.begin(), nodes.end(), [&](const auto& n) {
      return origin.makers.contains(n) || (origin.makers.empty() && origin.quantizing.contains(n));
    });
    if (here) out += fmt::format("  inside region {} ({})\n", i, plan.regions[i].name);
  }
  return out;
}

/// A tensor that neither graph has under this name: what the ONNX file says about it, and the regions of the nodes around it.
Result<std::string> folded(const ExplainOptions& o, const Loaded& loaded, const std::string& name, const Error& unknown) {
  OCTAVO_TRY(const auto session, session_of(o.model));
  const onnx::TensorUses uses = session->uses_of(name);
  if (uses.maker_type.empty()) {
    const std::vector<std::string> names = session->tensor_names();
    return fail(unknown.kind, fmt::format("the model \"{}\" has no tensor \"{}\"\n  nearest: {}", o.model.path, name,
                                          fmt::join(nearest({names.begin(), names.end()}, name), ", ")));
  }
  std::string out = uses.maker.empty() ? fmt::format("tensor \"{}\": an {} of the model", name, uses.maker_type)
                                       : fmt::format("tensor \"{}\": made by {} \"{}\"", name, uses.maker_type, uses.maker);
  const std::string why = uses.maker.empty() ? "" : why_absorbed(loaded, uses.maker);
  out += fmt::format("{}; no tensor of its own in the plan\n", why.empty() ? "" : ", which is in no region: " + why);
  report::GridOrigin around;
  for (const auto& r : uses.readers) {
    around.makers.insert(r.node);
    const std::string gone = why_absorbed(loaded, r.node);
    out += fmt::format("  read by {} \"{}\" as input {}{}\n", r.type, r.node, r.slot,
                       gone.empty() ? "" : ", which is in no region: " + gone);
  }
  if (uses.readers.empty()) out += "  read by nothing\n";
  return out + inside(loaded.engine->plan(), around);
}

Result<int> explain_tensor(const ExplainOptions& o, const Loaded& loaded, bool detailed) {
  const auto& plan = loaded.engine->plan();
  std::string name = o.filter.tensor, head;
  report::GridOrigin origin;
  std::string fate;
  if (loaded.built) {
    const auto& model = loaded.built->model;
    if (const auto alias = model.aliases.find(name); alias != model.aliases.end()) {
      name = alias->second;
      head = fmt::format("\"{}\" is another name of \"{}\": the node between them has no effect at inference\n", o.filter.tensor,
                         name);
    }
    origin = report::grid_of(model.graph, loaded.built->graph, name);
    fate = report::fate_of(model.graph, loaded.built->graph, loaded.built->reports, name);
  }
  const auto text = report::tensor(plan, name);
  if (!text && origin.text.empty()) {
    if (!loaded.built) return tl::unexpected(text.error());
    OCTAVO_TRY(const auto said, folded(o, loaded, name, text.error()));
    fmt::print("{}{}", head, said);
    return 0;
  }
  fmt::print("{}{}{}{}", head, text ? *text : fmt::format("tensor \"{}\": never in memory\n{}", name, inside(plan, origin)), fate,
             origin.text);
  if (loaded.built) {
    const std::set<std::string>& nodes = origin.quantizing.empty() ? origin.makers : origin.quantizing;
    if (!nodes.empty()) fmt::print("{}", report::law_log(loaded.built->reports, nodes));
  }
  if (!text || !detailed) return 0;
  OCTAVO_TRY(const auto regions, report::select(plan, {.tensor = name}));
  fmt::print("\n{}", report::details(plan, regions, api::parameters_of));
  return 0;
}

/// Of an engine file: who built it, and whether a later version can build it again.
std::string file_text(const ModelOptions& model, const Loaded& loaded) {
  if (loaded.built) return "";
  const auto file = engine::EngineFile::open(model.path);
  if (!file) return "";
  const double megabytes = static_cast<double>((*file)->model_bytes()) / 1e6;
  return fmt::format("engine file: built by Octavo {}, file format {}; {}; {}\n", (*file)->made_by().version(),
                     (*file)->made_by().format,
                     megabytes > 0 ? fmt::format("holds its model ({:.1f} MB), so that a later version can rebuild it", megabytes)
                                   : "without its model",
                     (*file)->is_signed() ? "signed" : "not signed");
}

/// Where the laws are asked about; empty: everywhere.
std::set<std::string> nodes_of(const report::Filter& filter, const region::Plan& plan, const std::vector<std::size_t>& regions) {
  if (!filter.node.empty()) return {filter.node};
  std::set<std::string> nodes;
  if (filter.empty()) return nodes;
  for (const std::size_t i : regions) nodes.insert(plan.regions[i].onnx_nodes.begin(), plan.regions[i].onnx_nodes.end());
  return nodes;
}

/// --html: the page of `octavo view`.
Result<int> explain_page(const ExplainOptions& o) {
  if (!o.filter.empty() || o.json || o.all || o.copies || o.laws || o.roundings) {
    return fail(ErrorKind::usage, "--html: the page shows every region and all of this; give --html alone, or leave it out");
  }
  OCTAVO_CHECK(check_outputs({o.html}));
  Loaded loaded;
  {
    Progress progress(o.model.verbose);
    OCTAVO_TRY(loaded, load(o.model, progress));
  }
  ViewExtras extras;
  extras.file = std::filesystem::path(o.model.path).filename().string();
  onnx::GraphNodes nodes;
  if (loaded.built) {
    OCTAVO_TRY(const auto session, session_of(o.model));
    nodes = session->nodes();
    extras.built = &*loaded.built;
    extras.nodes = &nodes;
  }
  extras.ranges = !o.model.calibration.empty();
  extras.disabled = o.model.build.plan.disabled;
  OCTAVO_TRY(auto document, view_document(loaded.engine, extras));
  std::vector<nlohmann::json> documents;
  documents.push_back(std::move(document));
  return write_page(std::move(documents), o.html);
}

Result<int> explain(const ExplainOptions& o) {
  if (!o.html.empty()) return explain_page(o);
  if (o.roundings) return explain_roundings(o.model, o.json, o.without);
  Loaded loaded;
  {
    Progress progress(o.model.verbose);
    OCTAVO_TRY(loaded, load(o.model, progress));
  }
  const auto& plan = loaded.engine->plan();
  if (const auto why = why_absorbed(loaded, o.filter.node); !why.empty() && !o.json) {
    fmt::print("ONNX node \"{}\" is in no region: {}\n", o.filter.node, why);
    return 0;
  }
  if (o.laws && !loaded.built) {
    return fail(ErrorKind::usage, fmt::format("--laws: \"{}\" is an engine, which does not keep the rules that were applied\n"
                                              "  give the ONNX model that it was built from",
                                              o.model.path));
  }
  if (o.copies && !o.json) {
    fmt::print("{}", report::extras(plan));
    return 0;
  }
  const bool only_tensor = !o.filter.tensor.empty() && o.filter.node.empty() && o.filter.region.empty();
  if (only_tensor && !o.json) return explain_tensor(o, loaded, true);
  OCTAVO_TRY(const auto regions, report::select(plan, o.filter));
  const std::set<std::string> nodes = nodes_of(o.filter, plan, regions);
  if (o.json) {
    std::optional<report::LawLog> laws;
    if (loaded.built) laws = report::laws_at(loaded.built->reports, nodes);
    fmt::print("{}", report::to_json(plan, loaded.engine->plan_hash(), regions, laws ? &*laws : nullptr,
                                     loaded.engine->made_by().version()));
    return 0;
  }
  if (o.all || !o.filter.empty()) {
    fmt::print("{}", report::details(plan, regions, api::parameters_of));
  } else if (!o.laws) {
    OCTAVO_TRY(const std::string roundings, roundings_summary(loaded, o.model));
    OCTAVO_TRY(const std::string slow, slow_share(loaded.engine, loaded.threads));
    fmt::print("{}{}{}{}{}", report::table(plan), slow, roundings, range_lines(loaded), file_text(o.model, loaded));
  }
  if (!o.all && !o.laws && o.filter.tensor.empty() && o.filter.region.empty()) {
    const std::string kept = kept_float_text(loaded, o.filter.node);
    fmt::print("{}", kept);
  }
  if (loaded.built && (o.laws || !o.filter.empty())) {
    fmt::print("{}{}", o.filter.empty() ? "" : "\n", report::law_log(loaded.built->reports, nodes));
  }
  return 0;
}

}  // namespace

Command add_explain(Arguments& app) {
  auto o = std::make_shared<ExplainOptions>();
  add_model_options(app, o->model, true);
  add_gpu_option(app, o->model);
  o->model.looks_only = true;
  app.add_option("--region", o->filter.region,
                 "Show one region in detail, by name or number, and which rewrite rules applied to its nodes")
      ->type_name("NAME");
  app.add_option("--tensor", o->filter.tensor,
                 "Show one tensor: where it lies in memory, which Q/DQ nodes define its scale, and which regions store and read it")
      ->type_name("NAME");
  app.add_option("--node", o->filter.node,
                 "Show in detail the regions that compute one ONNX node, and which rewrite rules applied to it")
      ->type_name("NAME");
  app.add_flag("--all", o->all, "Show every region in detail: tensors, scales, programs, refused tactics");
  app.add_flag("--copies", o->copies,
               "Show only copies, requantizations and float layers: the cause of each, its cost, and how to change it");
  app.add_flag("--laws", o->laws,
               "Show all rewrite rules that applied to the model, in order, and those that were refused (docs/rules.md)");
  auto* roundings = app.add_flag(
      "--roundings", o->roundings,
      "Show only what the placement of Q/DQ pairs costs: roundings inside regions, and tensors that are stored in float32 "
      "as well as in 8 bits; with the times of regions with and without each");
  app.add_option("--build-without", o->without.costly, "With --roundings: also write the engine without those that cost time")
      ->needs(roundings)
      ->writes("ENGINE");
  app.add_option("--build-without-all", o->without.all, "With --roundings: also write the engine without any of them")
      ->needs(roundings)
      ->writes("ENGINE");
  app.add_flag("--json", o->json, "Print JSON (docs/schema.md)");
  app.add_option("--html", o->html, "Write an HTML page, as `octavo view` does (docs/view.md); - for stdout")->writes("FILE");
  not_these(
      app, [o = o.get()] { return o->roundings; }, {"--region", "--tensor", "--node", "--all", "--copies", "--laws"},
      "--roundings shows only what the placement of Q/DQ pairs costs\n  leave out one of the two");
  not_these(
      app, [o = o.get()] { return o->json; }, {"--all", "--copies", "--laws"},
      "--json prints all of this, of the regions that --region, --tensor and --node select\n  leave it out");
  not_these(
      app, [o = o.get()] { return o->copies; }, {"--region", "--tensor", "--node", "--all", "--laws"},
      "--copies shows only copies, requantizations and float layers\n  leave out one of the two");
  app.footer("Example: octavo explain model.onnx --node conv1");
  return [o] { return explain(*o); };
}

}  // namespace octavo::cli
