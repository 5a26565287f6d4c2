#include "report/explain.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/model.h"
#include "report/decisions.h"

namespace octavo::cli {
namespace {

struct Options {
  ModelOptions model;
  report::Filter filter;
  bool json = false, all = false, copies = false;
};

/// What import says about an ONNX node that no region stands for; empty if it says nothing.
std::string why_absorbed(const Loaded& loaded, const std::string& node) {
  if (!loaded.built) return {};
  for (const auto& [name, why] : loaded.built->model.absorbed) {
    if (name == node) return why;
  }
  return {};
}

Result<int> explain(const Options& o) {
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
  if (o.copies && !o.json) {
    fmt::print("{}", report::extras(plan));
    return 0;
  }
  if (!o.filter.tensor.empty() && !o.json) {
    OCTAVO_TRY(const auto text, report::tensor(plan, o.filter.tensor));
    fmt::print("{}\n", text);
  }
  OCTAVO_TRY(const auto regions, report::select(plan, o.filter));
  if (o.json) {
    fmt::print("{}", report::to_json(plan, loaded.engine->plan_hash(), regions));
  } else if (o.all || !o.filter.empty()) {
    fmt::print("{}", report::details(plan, regions));
  } else {
    fmt::print("{}", report::table(plan));
  }
  return 0;
}

}  // namespace

Command add_explain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_model_options(app, o->model, true);
  app.add_option("--region", o->filter.region, "Only this region, by name or number, in detail")->type_name("NAME");
  app.add_option("--tensor", o->filter.tensor, "Only regions that read or store this tensor, in detail")->type_name("NAME");
  app.add_option("--node", o->filter.node, "Only regions that this ONNX node went into, in detail")->type_name("NAME");
  app.add_flag("--all", o->all, "Every region in detail: tensors, scales, programs, refused tactics");
  app.add_flag(
      "--copies", o->copies,
      "Only what moves data or changes its type without computing, and float layers: cause, cost, and the way to change it");
  app.add_flag("--json", o->json, "The same facts for programs");
  app.footer("Example: octavo explain model.onnx --node conv1");
  return [o] { return explain(*o); };
}

}  // namespace octavo::cli
