#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/canonical.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/bind.h"
#include "plan/choose.h"
#include "plan/memory.h"
#include "plan/permit.h"
#include "plan/permit_error.h"
#include "plan/price.h"
#include "plan/search.h"
#include "quant/normal_form.h"

namespace octavo::plan {
namespace {

constexpr std::string_view kFusions[] = {"fuse-epilogue", "fuse-conv-pool", "stages",    "horizontal",
                                         "one-pass",      "concat",         "stores",    "segments",
                                         "direct-store",  "split-views",    "precision", "inner-view"};

// One reason a name is known: laws, float rules and fusions share the switch.
Status split_disabled(const PlanOptions& options, rewrite::RunOptions& laws, rewrite::RunOptions& floats) {
  for (const std::string& name : options.disabled) {
    bool known = std::find(std::begin(kFusions), std::end(kFusions), name) != std::end(kFusions);
    for (const rewrite::Rule* r : quant::laws()) {
      if (r->name() == name) known = laws.disabled.insert(name).second;
    }
    for (const rewrite::Rule* r : passes::float_rules()) {
      if (r->name() == name) known = floats.disabled.insert(name).second;
    }
    if (!known) {
      std::string all;
      for (const std::string& n : rule_names()) all += (all.empty() ? "" : ", ") + n;
      return fail(ErrorKind::usage, fmt::format("--disable={}: no rule has this name\n  known: {}", name, all));
    }
  }
  laws.verify = floats.verify = options.verify;
  laws.dump = floats.dump = options.dump;
  return {};
}

/// Was int8 demanded or permitted, and what kept float anchors float?
void explain_precision(region::Plan& plan, const PermitReport& report) {
  for (region::Region& r : plan.regions) {
    for (const std::string& node : r.onnx_nodes) {
      if (report.permitted.contains(node) && r.precision.starts_with("int8")) {
        r.reason = "permitted by the range of its input; " + r.reason;
        break;
      }
      if (report.demanded.contains(node) && r.precision.starts_with("int8")) {
        r.reason = "demanded by the model's Q/DQ; " + r.reason;
        break;
      }
      const auto why = report.why_float.find(node);
      if (why != report.why_float.end() && r.precision.starts_with("float32")) {
        r.reason = "not int8: " + why->second + "; " + r.reason;
        break;
      }
    }
  }
}

}  // namespace

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const rewrite::Rule* r : quant::laws()) names.emplace_back(r->name());
  for (const rewrite::Rule* r : passes::float_rules()) names.emplace_back(r->name());
  for (const std::string_view f : kFusions) names.emplace_back(f);
  return names;
}

namespace {

/// One planning: the passes of a graph, and what came of them.
class Planner {
 public:
  Planner(const std::vector<const region::Provider*>& providers, const PlanOptions& options, Costs& costs)
      : providers_(providers), options_(options), costs_(costs) {}

  Result<Planned> run(ir::Graph graph) {
    OCTAVO_CHECK(split_disabled(options_, laws_, floats_));
    if (!options_.ranges.empty()) given_ = set_ranges(graph, options_.ranges);
    OCTAVO_TRY(auto first, quant::normalize(graph, laws_));
    out_.reports.push_back(std::move(first));
    std::map<std::string, BoundTensor> bound;
    if (!options_.bindings.empty()) {
      OCTAVO_TRY(bound, bind(graph, options_.bindings));
      OCTAVO_CHECK(ir::verify(graph));
      OCTAVO_TRY(const auto again, quant::normalize(graph, laws_));
    }
    rewrite::RunOptions before = floats_;  // codes are made of the model's own weights, as exporters of Q/DQ do: fold later
    if (permits()) before.disabled.insert("fold-batch-norm");
    OCTAVO_TRY(auto second, rewrite::run(graph, passes::float_rules(), before));
    out_.reports.push_back(std::move(second));
    OCTAVO_TRY(auto form, normal_form(graph, {}));
    if (options_.max_error > 0 && !form.permitted.permitted.empty()) OCTAVO_CHECK(check_error(graph, form));
    out_.reports.push_back(std::move(form.report));
    OCTAVO_TRY(Searched searched, search(form.graph, providers_, options_, costs_));
    if (options_.effort >= 2 && !form.permitted.permitted.empty() && !options_.disabled.contains("precision")) {
      PermitChoices choices;
      OCTAVO_CHECK(choose_precision(graph, form, searched, choices));
      if (!options_.disabled.contains("inner-view")) OCTAVO_CHECK(choose_inner(graph, form, searched, choices));
      searched.decisions.insert(searched.decisions.end(), decisions_.begin(), decisions_.end());
    }
    OCTAVO_CHECK(finish(searched.best));
    OCTAVO_CHECK(confirm(searched));
    out_.permitted = std::move(form.permitted);
    out_.permitted.unmatched = std::move(given_.unmatched);
    out_.permitted.unusable = std::move(given_.unusable);
    out_.plan = std::move(searched.best.plan);
    explain_precision(out_.plan, out_.permitted);
    out_.plan.decisions = std::move(searched.decisions);
    for (auto* list : {&out_.plan.inputs, &out_.plan.outputs}) {
      for (region::Binding& b : *list) {
        const auto found = bound.find(b.name);
        if (found == bound.end()) continue;
        b.format = found->second.format;
        if (found->second.quantizer) b.quantizer = found->second.quantizer;
      }
    }
    out_.graph = std::move(searched.best.graph);
    return std::move(out_);
  }

 private:
  struct Form {
    ir::Graph graph;
    PermitReport permitted;
    rewrite::RunReport report;
  };
  [[nodiscard]] bool permits() const { return !options_.ranges.empty() || !options_.precisions.empty(); }

  /// Views put where ranges permit them, but for some nodes; then the laws.
  Result<Form> normal_form(const ir::Graph& before, const PermitChoices& choices) const {
    Form form;
    form.graph = before;
    if (permits()) {
      OCTAVO_TRY(form.permitted, permit(form.graph, options_, choices));
      OCTAVO_TRY(const auto labelled, quant::normalize(form.graph, laws_));
      OCTAVO_TRY(const auto folded, rewrite::run(form.graph, passes::float_rules(), floats_));
    }
    OCTAVO_TRY(form.report, quant::normalize(form.graph, laws_));
    OCTAVO_CHECK(ir::verify(form.graph));
    return form;
  }

  /// Seconds of the region that computes an ONNX node's anchor, by node name.
  Result<std::map<std::string, double>> by_node(const region::Plan& plan, const std::set<std::string>& nodes) {
    Pricer pricer(providers_, costs_);
    OCTAVO_TRY(const auto items, pricer.price(plan));
    std::map<std::string, double> out;
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      const bool anchored = std::any_of(plan.regions[i].stages.begin(), plan.regions[i].stages.end(),
                                        [](const region::Stage& s) { return s.anchor.weights.has_value(); });
      if (!anchored) continue;
      for (const std::string& node : plan.regions[i].onnx_nodes) {
        if (nodes.contains(node)) out.emplace(node, items[i].seconds);
      }
    }
    return out;
  }

  // Candidate precision:  conv(view(x)) that a range permits  <==>  conv(x) in float32
  //   Why    a range permits int8, it does not demand it: where float32 is faster with all that it needs around it, it stays.
  //   Exact  not bit for bit: the permitted view is one rounding, which --max-error bounds.
  //   Needs  a range (docs/implicit.md); never asked of a layer that Q/DQ nodes make int8.
  //   Order  after the search. All are priced in one plan without permitted views; only where float wins there is a plan tried
  //          without the node's view. Default: int8.
  Status choose_precision(const ir::Graph& before, Form& form, Searched& searched, PermitChoices& choices) {
    const std::set<std::string> nodes = form.permitted.permitted;
    OCTAVO_TRY(const Form float_form, normal_form(before, {nodes, {}, false}));
    OCTAVO_TRY(const Realized as_float, realize(float_form.graph, {}, providers_, options_));
    OCTAVO_TRY(const auto floats, by_node(as_float.plan, nodes));
    OCTAVO_TRY(const auto integers, by_node(searched.defaults.plan, nodes));
    std::set<std::string>& keep = choices.keep_float;
    for (const auto& [node, seconds] : integers) {
      const auto other = floats.find(node);
      if (other == floats.end()) continue;
      region::Decision d;
      d.kind = "precision";
      d.where = node;
      d.onnx_nodes = {node};
      d.chosen = "int8";
      d.reason =
          other->second < seconds ? "float32 costs less alone, but not with what it needs around it" : "permitted, and faster";
      d.answers = {{"int8", seconds, "permitted"}, {"float32", other->second, ""}};
      if (other->second < seconds * 0.98) {
        std::set<std::string> trial = keep;
        trial.insert(node);
        OCTAVO_TRY(Form changed, normal_form(before, {trial, {}, false}));
        OCTAVO_TRY(Searched found, search(changed.graph, providers_, options_, costs_));
        if (found.best_seconds < searched.best_seconds - 0.02 * seconds) {
          keep = std::move(trial);
          searched = std::move(found);
          form = std::move(changed);
          d.chosen = "float32";
          d.reason = "permitted, but float32 is faster";
        }
      }
      decisions_.push_back(std::move(d));
    }
    return {};
  }

  Result<double> error_of(const ir::Graph& before, const ir::Graph& with_views) const {
    ir::Graph plain = before;
    OCTAVO_TRY(const auto labelled, quant::normalize(plain, laws_));
    return estimated_error(plain, with_views);
  }
  // --max-error on what ranges permit: refused, with the figure, rather than exceeded.
  Status check_error(const ir::Graph& before, const Form& form) const {
    OCTAVO_TRY(const double error, error_of(before, form.graph));
    if (error <= options_.max_error) return {};
    return fail(ErrorKind::usage, fmt::format("--max-error {}: with every permitted layer in int8 an output differs by {:.4g} of "
                                              "its largest magnitude (seeded inputs)\n  "
                                              "keep layers float with --precision, give better ranges, or allow more",
                                              options_.max_error, error));
  }

  // Candidate inner-view:  f(conv(x))  <==>  f(view(conv(x))), where the range of the convolution's result permits it
  //   Why    an activation behind a view is a table of 256 entries instead of arithmetic.
  //   Exact  not bit for bit: one more rounding, as Q/DQ between a convolution and its activation demands; --max-error bounds it.
  //   Needs  a range of the convolution's result (docs/implicit.md), and an activation in its epilogue.
  //   Order  after precision. All are priced in one plan; those that pay are taken together. Default: arithmetic.
  Status choose_inner(const ir::Graph& before, Form& form, Searched& searched, const PermitChoices& choices) {
    PermitChoices all = choices;
    all.all_inner = true;
    OCTAVO_TRY(const Form every, normal_form(before, all));
    const std::set<std::string>& nodes = every.permitted.inner;
    if (nodes.empty()) return {};
    OCTAVO_TRY(const Realized realized, realize(every.graph, {}, providers_, options_));
    OCTAVO_TRY(const auto tables, by_node(realized.plan, nodes));
    OCTAVO_TRY(const auto arithmetic, by_node(searched.defaults.plan, nodes));
    PermitChoices chosen = choices;
    std::vector<region::Decision> asked;
    for (const auto& [node, seconds] : arithmetic) {
      const auto other = tables.find(node);
      if (other == tables.end()) continue;
      region::Decision d;
      d.kind = "inner-view";
      d.where = node;
      d.onnx_nodes = {node};
      d.answers = {{"activation in float", seconds, ""},
                   {"activation through the range of its input", other->second, "one more rounding"}};
      d.chosen = d.answers[0].name;
      d.reason = "not more than 2 % cheaper than the default";
      if (other->second < seconds * 0.98) chosen.inner.insert(node);
      asked.push_back(std::move(d));
    }
    std::string refused;
    if (!chosen.inner.empty()) {
      OCTAVO_TRY(Form changed, normal_form(before, chosen));
      OCTAVO_TRY(Searched found, search(changed.graph, providers_, options_, costs_));
      if (found.best_seconds >= searched.best_seconds) {
        refused = "cheaper alone, but the plan is not";
      } else if (options_.max_error > 0) {
        OCTAVO_TRY(const double error, error_of(before, changed.graph));
        if (error > options_.max_error)
          refused = fmt::format("cheaper, but the outputs' error becomes {:.4g}, above --max-error {}", error, options_.max_error);
      }
      if (refused.empty()) {
        searched = std::move(found);
        form = std::move(changed);
      }
    }
    for (region::Decision& d : asked) {
      if (!chosen.inner.contains(d.where)) continue;
      d.reason = refused.empty() ? "permitted, and cheaper by more than 2 %" : refused;
      if (refused.empty()) d.chosen = d.answers[1].name;
    }
    decisions_.insert(decisions_.end(), asked.begin(), asked.end());
    return {};
  }

  Status finish(Realized& made) {
    OCTAVO_CHECK(choose_tactics(made.plan, providers_, costs_));
    plan_memory(made.plan);
    return {};
  }

  // The sum of the parts is a forecast: from effort 4 on the whole decides.
  Status confirm(Searched& searched) {
    if (options_.effort < 4 || !searched.changed) return {};
    OCTAVO_CHECK(finish(searched.defaults));
    OCTAVO_TRY(const auto pair, costs_.compare(searched.defaults.plan, searched.best.plan));
    if (!pair || pair->second < pair->first) return {};
    for (region::Decision& d : searched.decisions) {
      if (d.kind == "precision" || d.kind == "inner-view" || d.chosen == d.answers[0].name) continue;
      d.reason = fmt::format("\"{}\" was cheaper by parts, but the whole plan was not: {:.4g} us against {:.4g} us", d.chosen,
                             pair->second * 1e6, pair->first * 1e6);
      d.chosen = d.answers[0].name;
    }
    searched.best = std::move(searched.defaults);
    return {};
  }

  const std::vector<const region::Provider*>& providers_;
  const PlanOptions& options_;
  Costs& costs_;
  rewrite::RunOptions laws_, floats_;
  PermitReport given_;  ///< which ranges count
  std::vector<region::Decision> decisions_;
  Planned out_;
};

}  // namespace

Result<Planned> make_plan(ir::Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  Estimates estimates;
  Costs& costs = options.costs != nullptr && options.effort > 0 ? *options.costs : estimates;
  return Planner(providers, options, costs).run(std::move(graph));
}

}  // namespace octavo::plan
