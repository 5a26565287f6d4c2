#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/causes/plan_precision.h"
#include "ir/canonical.h"
#include "ir/output_sizes.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/candidates/magnitudes.h"
#include "plan/candidates/narrow.h"
#include "plan/candidates/registry.h"
#include "plan/layout/bind.h"
#include "plan/layout/counted.h"
#include "plan/layout/transfers.h"
#include "plan/precision/choose_pairs.h"
#include "plan/precision/permit.h"
#include "plan/precision/precision.h"
#include "plan/precision/refused_type.h"
#include "plan/regions/group.h"
#include "plan/search/by_image.h"
#include "plan/search/choose.h"
#include "plan/search/confirm.h"
#include "plan/search/guard.h"
#include "plan/search/search.h"
#include "quant/normal_form.h"

namespace octavo::plan {
namespace {

/// How the laws and the float rules are run: each has its share of the names that are disabled.
struct Rules {
  rewrite::RunOptions laws, floats;
};

Rules rules_of(const PlanOptions& options) {
  Rules out;
  const auto take = [&](const std::vector<const rewrite::Rule*>& rules, rewrite::RunOptions& run) {
    for (const rewrite::Rule* r : rules) {
      if (options.disabled.contains(r->name())) run.disabled.emplace(r->name());
    }
    run.verify = options.verify;
    run.dump = options.dump;
  };
  take(quant::laws(), out.laws);
  take(passes::float_rules(), out.floats);
  return out;
}

/// May the planner put views or casts where the model has none, or must layers have another type than float32?
bool permits(const PlanOptions& options) {
  return !options.ranges.empty() || options.permit_pairs || !options.precisions.empty() ||
         options.allowed.contains(LayerType::bfloat16) || options.allowed.contains(LayerType::float16) ||
         !options.allowed.contains(LayerType::float32) || !options.model_types.empty();
}

/// Which float tensors between regions may lie in memory in 16 bits.
Storage storage_of(const PlanOptions& options, const PermitReport& permitted, const PermitChoices& choices) {
  Storage s;
  if (options.allowed.contains(LayerType::float16)) s.all = ir::DType::f16;
  s.model = options.model_types;
  s.kept = permitted.kept_wide;
  s.large = choices.large;
  for (const auto& [node, why] : permitted.not_float16) s.kept.insert(node);
  return s;
}

/// A graph after the steps that do not depend on times.
struct Prepared {
  ir::Graph graph;
  PermitReport given;                   ///< which ranges count, and what became of the model's pairs
  std::optional<ir::Graph> with_pairs;  ///< before its pairs became ranges
  std::map<std::string, BoundTensor> bound;
  std::vector<rewrite::RunReport> reports;
};

/// Float rules and laws of a graph in normal form, in turn until neither finds anything: a rule that moves an operator may leave a view where a law
/// moves it on, and a view that has moved may let an operator move. GELU with a pair behind each of its operators takes several rounds.
Status settle(ir::Graph& g, const rewrite::RunOptions& laws, const rewrite::RunOptions& floats,
              std::vector<rewrite::RunReport>& reports) {
  constexpr int kMostRounds = 32;  // each moves operators towards the products in front of them
  for (int round = 0; round < kMostRounds; ++round) {
    OCTAVO_TRY(reports.emplace_back(), rewrite::run(g, passes::float_rules(), floats));
    if (reports.back().applied.empty()) break;
    OCTAVO_TRY(reports.emplace_back(), quant::normalize(g, laws));
    if (reports.back().applied.empty()) break;
  }
  return {};
}

/// Ranges are written onto their values, the laws bring the graph into normal form, inputs and outputs get the memory that their
/// callers want, and float rules clean up. Where views are permitted, normalization is folded into weights later: codes are made of
/// the model's own weights, as exporters of Q/DQ do.
Result<Prepared> prepare(ir::Graph graph, const PlanOptions& options, const Rules& rules) {
  Prepared out;
  if (!options.ranges.empty()) out.given = set_ranges(graph, options.ranges);
  if (options.permit_pairs) {
    out.with_pairs = graph;
    out.given.pairs = permit_pairs(graph);
  }
  OCTAVO_TRY(out.reports.emplace_back(), quant::normalize(graph, rules.laws));
  if (!options.bindings.empty()) {
    OCTAVO_TRY(out.bound, bind(graph, options.bindings));
    OCTAVO_CHECK(ir::verify(graph));
    OCTAVO_TRY(out.reports.emplace_back(), quant::normalize(graph, rules.laws));
  }
  rewrite::RunOptions floats = rules.floats;
  if (permits(options)) floats.disabled.insert("fold-batch-norm");
  OCTAVO_CHECK(settle(graph, rules.laws, floats, out.reports));
  out.graph = std::move(graph);
  return out;
}

/// Views put where ranges permit them, but for some nodes; then the laws.
Result<Form> permitted_form(const ir::Graph& prepared, const PlanOptions& options, const Rules& rules,
                            const PermitChoices& choices) {
  Form form;
  form.graph = prepared;
  if (permits(options)) {
    OCTAVO_TRY(form.permitted, permit(form.graph, options, choices));
    OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, rules.laws));
    OCTAVO_CHECK(settle(form.graph, rules.laws, rules.floats, form.reports));
  }
  OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, rules.laws));
  for (auto& [node, why] : narrow(form.graph, storage_of(options, form.permitted, choices))) {
    const auto marked = form.permitted.float16.find(node);
    if (marked != form.permitted.float16.end() && marked->second.cause == cause::type_permitted &&
        !options.allowed.contains(LayerType::float32)) {
      if (!choices.keep_float.contains(node))
        return tl::unexpected<Error>(no_allowed_type(node, options.allowed, {{LayerType::float16, why}}));
      PermitChoices in_int8 = choices;  // only compared, or kept for --max-error: its range permits int8
      in_int8.keep_float.erase(node);
      return permitted_form(prepared, options, rules, in_int8);
    }
    form.permitted.float16.erase(node);
    form.permitted.not_float16.insert_or_assign(node, std::move(why));
  }
  if (options.allowed.contains(LayerType::tf32)) permit_tf32(form.graph);
  OCTAVO_CHECK(ir::verify(form.graph));
  return form;
}

/// The network as if nothing were permitted: what errors are measured against.
Result<ir::Graph> exact_form(const ir::Graph& prepared, const Rules& rules) {
  ir::Graph g = prepared;
  OCTAVO_TRY(const auto first, quant::normalize(g, rules.laws));
  std::vector<rewrite::RunReport> reports;
  OCTAVO_CHECK(settle(g, rules.laws, rules.floats, reports));
  OCTAVO_TRY(const auto last, quant::normalize(g, rules.laws));
  return g;
}

/// Was int8 demanded or permitted, and what kept float anchors float? Put before the region's other reasons.
void explain_precision(region::Plan& plan, const PermitReport& report) {
  for (region::Region& r : plan.regions) {
    const auto say_first = [&](Reasons why) {
      add(why, r.reasons);
      r.reasons = std::move(why);
    };
    for (const std::string& node : r.onnx_nodes) {
      if (report.permitted.contains(node) && r.precision == region::Work::int8) {
        say_first({because<cause::int8_permitted>()});
        break;
      }
      if (report.demanded.contains(node) && r.precision == region::Work::int8) {
        say_first({because<cause::int8_demanded>()});
        break;
      }
      const auto not_int8 = report.why_float.find(node);
      const bool half = r.precision == ir::DType::f16;
      const auto& narrow = half ? report.float16 : report.bfloat16;
      const auto small = narrow.find(node);
      if (small != narrow.end() && (half || r.precision == ir::DType::bf16)) {
        Reasons why{small->second};
        const bool by_rule = small->second.cause == cause::asked_for_by_rule;
        if (not_int8 != report.why_float.end() && not_int8->second != small->second && !by_rule) why.push_back(not_int8->second);
        say_first(std::move(why));
        break;
      }
      const auto not_half = report.not_float16.find(node);
      if ((not_int8 != report.why_float.end() || not_half != report.not_float16.end()) && r.precision.from_float32()) {
        Reasons why;
        if (not_int8 != report.why_float.end()) why.push_back(not_int8->second);
        if (not_half != report.not_float16.end() && (why.empty() || why[0] != not_half->second)) why.push_back(not_half->second);
        say_first(std::move(why));
        break;
      }
    }
  }
}

/// What the caller asked of inputs and outputs, where plans say it.
void describe_bindings(region::Plan& plan, const std::map<std::string, BoundTensor>& bound) {
  for (auto* list : {&plan.inputs, &plan.outputs}) {
    for (region::Binding& b : *list) {
      const auto found = bound.find(b.name);
      if (found == bound.end()) continue;
      b.format = found->second.format;
      if (found->second.quantizer) b.quantizer = found->second.quantizer;
    }
  }
}

/// One plan of the graph by the decisions of another one.
Result<Planned> plan_like(ir::Graph graph, const PlanContext& context, const Decided& decided) {
  OCTAVO_CHECK(check_names(context.options));
  const Rules rules = rules_of(context.options);
  OCTAVO_TRY(Prepared prepared, prepare(std::move(graph), context.options, rules));
  OCTAVO_TRY(Form form, permitted_form(prepared.graph, context.options, rules, decided.choices));
  Planned out;
  out.decided.permit_pairs = decided.permit_pairs;
  out.decided.inner_pairs = decided.inner_pairs;
  out.decided.choices = decided.choices;
  out.decided.form = form_of(form.graph);
  Realized made;
  if (out.decided.form == decided.form) {
    out.decided.selection = decided.selection;
    OCTAVO_TRY(made, realize(form.graph, decided.selection, context));
  } else {
    OCTAVO_TRY(Defaults defaults, realize_defaults(form.graph, context));
    out.decided.selection = std::move(defaults.selection);
    made = std::move(defaults.made);
  }
  OCTAVO_CHECK(finish(made.plan, context));
  out.plan = std::move(made.plan);
  out.graph = std::move(made.graph);
  out.permitted = std::move(form.permitted);
  out.permitted.pairs = std::move(prepared.given.pairs);
  explain_precision(out.plan, out.permitted);
  describe_bindings(out.plan, prepared.bound);
  out.plan.cost_source = decided.cost_source;
  out.plan.decided_for = decided.from;
  out.reports = std::move(prepared.reports);
  for (rewrite::RunReport& report : form.reports) out.reports.push_back(std::move(report));
  return out;
}

/// The same for a plan of one image, which is repeated.
Result<Planned> follow(const ir::Graph& graph, const PlanContext& context, const Decided& decided) {
  const std::int64_t images =
      graph.inputs.empty() || graph.type(graph.inputs[0]).shape.empty() ? 1 : graph.type(graph.inputs[0]).shape[0];
  if (decided.images < 2 || images < 2) return plan_like(graph, context, decided);
  auto one = one_image(graph);
  if (!one) return plan_like(graph, context, decided);
  PlanOptions alone = context.options;
  alone.threads = decided.threads;
  OCTAVO_TRY(Planned planned,
             plan_like(std::move(*one), {context.providers, alone, context.costs, context.memo, context.shown}, decided));
  repeat(planned.plan, images, context.options.threads);
  return planned;
}

/// One plan of the graph as it is: prepared, in the best types, by the best candidates, confirmed by whole runs.
Result<Planned> plan_once(ir::Graph graph, const PlanContext& context) {
  OCTAVO_CHECK(check_names(context.options));
  const Rules rules = rules_of(context.options);
  OCTAVO_TRY(Prepared prepared, prepare(std::move(graph), context.options, rules));
  const PrecisionWork work{
      [&](const PermitChoices& choices) { return permitted_form(prepared.graph, context.options, rules, choices); },
      [&] { return exact_form(prepared.with_pairs ? *prepared.with_pairs : prepared.graph, rules); }, context};
  OCTAVO_TRY(auto chosen, choose_precisions(work));
  auto& [form, choices, searched] = chosen;
  OCTAVO_CHECK(confirm(form.graph, context, searched));

  Planned out;
  out.decided.permit_pairs = context.options.permit_pairs;
  out.decided.inner_pairs = context.options.inner_pairs;
  out.decided.choices = std::move(choices);
  out.decided.form = form_of(form.graph);
  out.decided.selection = std::move(searched.best_selection);
  out.decided.selection.small = small_nodes(form.graph);
  out.plan = std::move(searched.best.plan);
  out.graph = std::move(searched.best.graph);
  out.seconds = searched.best_seconds;
  out.permitted = std::move(form.permitted);
  out.permitted.unmatched = std::move(prepared.given.unmatched);
  out.permitted.unusable = std::move(prepared.given.unusable);
  out.permitted.pairs = std::move(prepared.given.pairs);
  out.permitted.magnitudes = context.options.magnitudes;
  explain_precision(out.plan, out.permitted);
  out.plan.decisions = std::move(searched.decisions);
  describe_bindings(out.plan, prepared.bound);
  out.reports = std::move(prepared.reports);
  for (rewrite::RunReport& report : form.reports) out.reports.push_back(std::move(report));
  return out;
}

}  // namespace

OCTAVO_DEFINE_OUT_OF_LINE(Planned);

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const rewrite::Rule* r : quant::laws()) names.emplace_back(r->name());
  for (const rewrite::Rule* r : passes::float_rules()) names.emplace_back(r->name());
  for (std::string& choice : choice_names()) names.push_back(std::move(choice));
  names.emplace_back("round-to-scale-type");  // of import: onnx::ImportOptions
  return names;
}

Status check_names(const PlanOptions& options) {
  const std::vector<std::string> known = rule_names(), forceable = forceable_choices();
  for (const std::string& name : options.disabled) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return fail(ErrorKind::usage,
                  fmt::format("--disable={}: no rule or choice has this name\n  known: {}", name, fmt::join(known, ", ")));
    }
  }
  for (const std::string& name : options.forced) {
    if (std::find(forceable.begin(), forceable.end(), name) == forceable.end()) {
      return fail(ErrorKind::usage,
                  fmt::format("--force={}: no choice of this name can be forced\n  known: {}", name, fmt::join(forceable, ", ")));
    }
    if (options.disabled.contains(name))
      return fail(ErrorKind::usage, fmt::format("--force={0} and --disable={0}: give one of them", name));
  }
  return {};
}

Result<region::Plan> outline(const ir::Graph& graph, const std::vector<const region::Provider*>& providers,
                             const PlanOptions& options) {
  const Decided& decided = *options.follow;
  PlanOptions taken = options;
  taken.effort = kEstimates;
  taken.permit_pairs = decided.permit_pairs, taken.inner_pairs = decided.inner_pairs;
  taken.threads = decided.threads;
  Estimates estimates;
  Memo memo(providers);
  const PlanContext context{providers, taken, estimates, memo};
  const Rules rules = rules_of(taken);
  ir::Graph own = graph;
  if (!counts(providers)) ir::drop_conditions(own);
  if (decided.images > 1) {
    auto one = one_image(graph);
    if (!one) return fail(ErrorKind::unsupported, "images are not independent");
    own = std::move(*one);
  }
  OCTAVO_TRY(Prepared prepared, prepare(std::move(own), taken, rules));
  OCTAVO_TRY(Form form, permitted_form(prepared.graph, taken, rules, decided.choices));
  if (form_of(form.graph) != decided.form) return fail(ErrorKind::unsupported, "the normalized graph has another form");
  OCTAVO_TRY(Realized made, realize(form.graph, decided.selection, context));
  describe_bindings(made.plan, prepared.bound);
  add_transfers(made.plan);
  return std::move(made.plan);
}

Result<Planned> make_plan(ir::Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  if (!counts(providers)) ir::drop_conditions(graph);
  Estimates estimates;
  Memo memo(providers);
  if (const Decided* decided = followed(options)) {
    PlanOptions taken = options;
    taken.effort = kEstimates;
    taken.permit_pairs = decided->permit_pairs;
    taken.inner_pairs = decided->inner_pairs;
    OCTAVO_TRY(Planned planned, follow(graph, {providers, taken, estimates, memo}, *decided));
    keep_tactics(planned.plan, planned.decided);
    mark_counted(planned.plan, planned.graph);
    OCTAVO_CHECK(count_on_devices(planned.plan, providers));
    return planned;
  }
  PlanOptions with = options;
  OCTAVO_TRY(with.magnitudes, magnitudes_of(graph, options));
  const PlanContext context{providers, with, costs_of(options, estimates), memo};
  const PlanOnce once = !options.permit_pairs ? PlanOnce(plan_once) : [](ir::Graph g, const PlanContext& with) {
    return choose_pairs(g, with, plan_once);
  };
  OCTAVO_TRY(Planned planned, once(graph, context));
  OCTAVO_CHECK(choose_images(graph, context, once, planned));
  OCTAVO_CHECK(guard(graph, context, once, planned));
  keep_tactics(planned.plan, planned.decided);
  mark_counted(planned.plan, planned.graph);
  OCTAVO_CHECK(count_on_devices(planned.plan, providers));
  return planned;
}

}  // namespace octavo::plan
