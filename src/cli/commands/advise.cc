// octavo advise: which Q/DQ pairs to drop, to add, to move or to share with further readers, and what each gains.
#include "plan/advice/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/pipeline.h"
#include "api/ranges.h"
#include "cli/commands/commands.h"
#include "cli/effect.h"
#include "cli/file.h"
#include "cli/inputs/data.h"
#include "cli/inputs/model.h"
#include "onnx/edit/convert.h"
#include "onnx/model/graph_nodes.h"
#include "plan/effort.h"
#include "report/sentences.h"

namespace octavo::cli {
namespace {

struct AdviseOptions {
  ModelOptions model;
  std::string apply, ranges;
  int errors = 0, most = 20;
};

using Kind = plan::Advice::Kind;

/// In words, an imperative.
std::string change(const plan::Advice& a) {
  const std::string nodes = fmt::format("{}", fmt::join(a.onnx_nodes, ", ")), pair = fmt::format("{}", fmt::join(a.pair, ", "));
  const std::string tensor = a.tensor.empty() ? "a tensor without a name" : '"' + a.tensor + '"';
  switch (a.kind) {
    case Kind::share: return fmt::format("put the pair on {} ({}) before {} too", tensor, pair, nodes);
    case Kind::move: return fmt::format("move the pair on {} ({}) behind \"{}\", before {}", tensor, pair, a.behind, nodes);
    case Kind::add: return fmt::format("add a pair on {} before {}", tensor, nodes);
    default: return fmt::format("drop the pair on {} ({})", tensor, nodes);
  }
}

void edit(const plan::Advice& a, onnx::PairEdits& edits) {
  if (a.kind == Kind::add) edits.add.push_back({a.tensor, *a.quantizer, a.onnx_nodes});
  if (a.kind == Kind::drop) edits.drop.insert(edits.drop.end(), a.onnx_nodes.begin(), a.onnx_nodes.end());
  if (a.kind == Kind::share) edits.share.push_back({a.pair, a.onnx_nodes});
  if (a.kind == Kind::move) edits.move.push_back({a.pair, a.behind});
}

/// The edit that --apply could not make, because the file has the tensor under another name: in front of a Reshape, for example.
std::string by_hand(const plan::Advice& a, const onnx::GraphNodes& nodes) {
  const auto data_of = [&](const std::string& node) {
    const auto at = std::ranges::find(nodes.nodes, node, &onnx::GraphNode::name);
    return at == nodes.nodes.end() || at->inputs.empty() ? std::string() : at->inputs[0];
  };
  const std::string pair = fmt::format("{}", fmt::join(a.pair, ", "));
  std::string text = fmt::format("not applied: the file has no node that reads or makes \"{}\" under this name. To do it by hand, ",
                                 a.kind == Kind::move ? a.behind : a.tensor);
  if (a.kind == Kind::move)
    return text + fmt::format("let the readers of the pair ({}) read its input, and insert the pair where {} read their data", pair,
                              fmt::join(a.onnx_nodes, ", "));
  std::string readers;
  for (const std::string& node : a.onnx_nodes) {
    const std::string data = data_of(node);
    if (data.empty()) continue;
    readers += fmt::format("{}between \"{}\" and {}", readers.empty() ? "" : ", and ", data, node);
  }
  if (a.kind == Kind::share) return text + fmt::format("repeat the pair ({}) with its scale {}", pair, readers);
  const ir::Quantizer& q = *a.quantizer;
  return text + fmt::format("insert QuantizeLinear and DequantizeLinear with scale {} and zero point {} ({}) {}", q.scale[0],
                            q.zero_point[0], q.type == ir::DType::u8 ? "uint8" : "int8", readers);
}

constexpr int kWorthPercent = static_cast<int>(100 * plan::kWorth);

/// What does not pay alone: a line each without reasons, and what all of it saves.
void print_small(const plan::Advised& result, int most) {
  int count = 0;
  double sum = 0;
  std::string lines;
  for (const plan::Advice& a : result.advice) {
    if (!a.small || !a.together) continue;
    sum += a.seconds;
    if (++count <= most) lines += fmt::format("  {}: saves {:.4g} us\n", change(a), a.seconds * 1e6);
  }
  if (count == 0) return;
  fmt::print("{} change{} save{} less than {} % each, and {:.4g} us ({:.1f} %) together:\n{}", count, count == 1 ? "" : "s",
             count == 1 ? "s" : "", kWorthPercent, sum * 1e6, 100 * sum / result.plan_seconds, lines);
  if (count > most) fmt::print("  and {} more\n", count - most);
}

Result<int> advise(const AdviseOptions& o) {
  OCTAVO_CHECK(check_outputs({o.apply}));
  std::optional<Progress> progress(std::in_place, o.model.verbose);
  OCTAVO_TRY(api::PipelineOptions build, pipeline_options(o.model));
  OCTAVO_CHECK(api::check_options(build));
  build.device = "cpu";
  api::PipelineOptions with_ranges = build;
  if (!o.ranges.empty()) {
    OCTAVO_TRY(with_ranges.plan.ranges, api::read_ranges(o.ranges));
  }
  OCTAVO_TRY(const auto session, session_of(o.model));
  OCTAVO_TRY(const auto imported, session->imported(build.import));
  const onnx::Model& model = *imported;
  OCTAVO_CHECK(check_batch(o.model, inputs_of(model.graph).inputs));
  OCTAVO_TRY(const auto providers, api::providers(build.device));
  plan::PlanOptions options = api::planner_options(build, model);
  api::Measuring measuring;
  const TaskScope task(progress->watcher(o.model.path));
  OCTAVO_CHECK(measuring.begin(build, providers, options));
  progress->step("try every pair");
  OCTAVO_TRY(const auto result,
             plan::advise(model.graph, providers, options, o.errors, api::planner_options(with_ranges, model).ranges));
  OCTAVO_CHECK(measuring.keep(build));
  progress.reset();

  const char* source = plan::effort_at(options.effort).measures ? "measured" : "estimated";
  const auto pays = std::ranges::count(result.advice, false, &plan::Advice::small);
  fmt::print("{} changes tried one at a time; the plan's regions cost {:.4g} us ({}); {} change{} {} % of that or more\n",
             result.tried, result.plan_seconds * 1e6, source, pays, pays == 1 ? " saves" : "s save", kWorthPercent);
  onnx::PairEdits edits;
  int shown = 0;
  for (const plan::Advice& a : result.advice) {
    if (a.together) edit(a, edits);
    if (a.small || ++shown > o.most) continue;
    fmt::print("{}: saves {:.4g} us, {:.1f} %\n  {}\n", change(a), a.seconds * 1e6, 100 * a.seconds / result.plan_seconds,
               report::sentences(a.why));
    if (a.kind == Kind::add && !a.quantizer && !a.tensor.empty())
      fmt::print("  to add it, give a range for \"{}\" with --ranges; octavo quantize finds ranges\n", a.tensor);
    if (a.error >= 0) fmt::print("  outputs change by at most {:.3g} of their largest magnitude (seeded inputs)\n", a.error);
  }
  if (shown > o.most) fmt::print("and {} more\n", shown - o.most);
  print_small(result, o.most);
  if (result.advice.size() > 1 && result.applied_seconds < result.plan_seconds)
    fmt::print("with all changes that can be made together, the plan's regions cost {:.4g} us\n", result.applied_seconds * 1e6);
  if (o.apply.empty()) return 0;
  OCTAVO_TRY(const auto done, session->edit_pairs(edits, o.apply));
  std::vector<std::string> changes;
  const auto count = [&](int n, const char* what) {
    if (n > 0) changes.push_back(fmt::format("{} {} {}", n, n == 1 ? "pair" : "pairs", what));
  };
  count(done.added, "added");
  count(done.dropped, "dropped");
  count(done.moved, "moved");
  count(done.shared, "put before further readers");
  if (!changes.empty()) {
    fmt::print("{}: {}\n", o.apply, fmt::join(changes, ", "));
  } else {
    fmt::print(
        "{}: the model is unchanged, because no change that advise can make saves time. Adding a pair needs a range of its "
        "tensor:\n"
        "  octavo quantize MODEL --data FOLDER -o ranges.json, then octavo advise ... --ranges ranges.json\n",
        o.apply);
  }
  if (!done.not_found.empty()) {
    const onnx::GraphNodes nodes = session->nodes();
    for (const plan::Advice& a : result.advice) {
      const std::string& tensor = a.kind == Kind::move ? a.behind : a.tensor;
      if (a.together && std::ranges::find(done.not_found, tensor) != done.not_found.end()) fmt::print("  {}\n", by_hand(a, nodes));
    }
  }
  return 0;
}

}  // namespace

Command add_advise(Arguments& app) {
  auto o = std::make_shared<AdviseOptions>();
  add_model_options(app, o->model, false);
  app.add_option("--apply", o->apply,
                 "Write the model with the changes that save time: pairs dropped, added, moved, or shared with more readers")
      ->writes("FILE");
  app.add_option(
         "--ranges", o->ranges,
         "Ranges of tensors, which give the scales of pairs to add: a TensorRT calibration table, or JSON of octavo quantize")
      ->reads("FILE");
  app.add_option("--errors", o->errors,
                 "Run the N best changes on random inputs, and print how much they change the outputs (slow)")
      ->check(Range{0, 1000});
  app.add_option("--most", o->most, "Number of changes to print (default 20)")->check(Range{1, 100000});
  not_these(
      app, [] { return true; }, {"--values"}, kNoValues);
  has_effect(app, app.get_option("--device"), [o = o.get()](const std::string&) {
    return o->model.build.device == "cpu" ? "" : "advise works on plans for CPUs\n  leave it out";
  });
  app.footer("Example: octavo advise model.onnx --threads 1 --timing-cache times.txt --apply faster.onnx");
  return [o] { return advise(*o); };
}

}  // namespace octavo::cli
