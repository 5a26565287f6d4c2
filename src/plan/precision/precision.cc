// One class, a little longer than 400 lines: --max-error, bfloat16, float32 and inner views share what was chosen so far.
#include "plan/precision/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/causes/plan_candidates.h"
#include "base/causes/plan_precision.h"
#include "base/causes/plan_search.h"
#include "plan/candidates/registry.h"
#include "plan/effort.h"
#include "plan/precision/error_limit.h"
#include "plan/precision/node_times.h"
#include "plan/precision/permit_error.h"
#include "plan/search/choose.h"
#include "plan/search/price.h"
#include "plan/search/whole_runs.h"

namespace octavo::plan {
namespace {

using Names = std::set<std::string>;

constexpr std::size_t kMostUnits = 256;  // of --max-error
constexpr std::size_t kMostTrials = 16;  // layers tried in bfloat16 one by one, where all together do not pay

const std::string& name_of_chosen(const region::Decision& d) {
  return d.candidates[d.chosen].name;
}

/// Position of a candidate by its name; 0, the default, where it is none.
std::size_t index_of(const region::Decision& d, std::string_view name) {
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    if (d.candidates[i].name == name) return i;
  }
  return 0;
}

class Chooser {
 public:
  explicit Chooser(const PrecisionWork& work)
      : work_(work),
        context_(work.context),
        options_(work.context.options),
        pricer_(work.context),
        wide_(options_.allowed.contains(LayerType::float16) ? LayerType::float16
              : !options_.allowed.contains(LayerType::float32) && options_.allowed.contains(LayerType::bfloat16)
                  ? LayerType::bfloat16
                  : LayerType::float32) {}

  Result<Precisions> run() {
    choices_.all_inner = options_.inner_pairs;
    if (options_.magnitudes) choices_.large = options_.magnitudes->large;
    OCTAVO_TRY(out_.form, work_.form(choices_));
    OCTAVO_CHECK(demanded_kernels());
    const PermitReport& made = out_.form.permitted;
    const bool rounds = options_.allowed.contains(LayerType::float16) || !made.bfloat16.empty() || !made.float16.empty();
    if (options_.max_error && (rounds || !made.permitted.empty() || !made.others.empty())) OCTAVO_CHECK(keep_within_error());
    OCTAVO_TRY(out_.searched, search(out_.form.graph, context_));
    const PermitReport& report = out_.form.permitted;
    const bool open = !report.permitted.empty() || !report.may_bfloat16.empty();
    const bool weighed = open && !options_.disabled.contains(kPrecision), searches = effort_at(options_.effort).searches;
    if (weighed && (searches || options_.priced.contains(kPrecision))) OCTAVO_CHECK(confirmed([&] { return choose_bfloat16(); }));
    if (weighed && searches) {
      OCTAVO_CHECK(confirmed([&] { return choose_float(out_.form.permitted.layers); }));
      // One more rounding inside a region costs accuracy that nobody has measured: only where the caller asks, or bounds the error.
      if (!options_.disabled.contains(kInnerView) && !options_.inner_pairs &&
          (options_.forced.contains(kInnerView) || options_.max_error))
        OCTAVO_CHECK(confirmed([&] { return choose_inner(); }));
    }
    for (auto& [node, d] : decisions_) out_.searched.decisions.push_back(std::move(d));
    out_.searched.decisions.insert(out_.searched.decisions.end(), inner_.begin(), inner_.end());
    out_.choices = std::move(choices_);
    return std::move(out_);
  }

 private:
  /// Takes back what `choose` chose if the whole plan, run, is not faster for it.
  Status confirmed(const std::function<Status()>& choose) {
    const Precisions before = out_;  // constants are shared
    const PermitChoices choices_before = choices_;
    const auto decisions_before = decisions_;
    changed_ = false;
    OCTAVO_CHECK(choose());
    if (!changed_) return {};
    Realized was = before.searched.best, is = out_.searched.best;
    OCTAVO_CHECK(finish(was.plan, context_));
    OCTAVO_CHECK(finish(is.plan, context_));
    OCTAVO_TRY(const auto times, run_in_turn(was.plan, is.plan, context_));
    if (!times || times->faster()) return {};
    out_ = before;
    choices_ = choices_before;
    for (auto& [node, d] : decisions_) {
      const auto had = decisions_before.find(node);
      take_back(d, had == decisions_before.end() ? 0 : index_of(d, name_of_chosen(had->second)), *times);
    }
    for (region::Decision& d : inner_) take_back(d, 0, *times);
    return {};
  }

  /// What a rule or the allowed types demand in bfloat16 or float16 must have a kernel: nothing slower is taken for it silently.
  Status demanded_kernels() {
    if (out_.form.permitted.bfloat16.empty() && out_.form.permitted.float16.empty()) return {};
    OCTAVO_TRY(const Realized made, realize(out_.form.graph, {}, context_));
    for (const region::Region& r : made.plan.regions) {
      if (r.precision != ir::DType::bf16 && r.precision != ir::DType::f16) continue;
      const Reasons refused = refusals_of(r, made.plan, context_);
      if (refused.empty()) continue;
      std::string list;
      for (const Reason& why : refused) {
        list += why.cause == cause::kernel_refused ? fmt::format("\n  {}:", std::get<std::string>(why.values[0]))
                                                   : " " + spelled(Reasons{why});
      }
      return fail(ErrorKind::unsupported,
                  fmt::format("region \"{0}\" is to compute in {1}, and nothing here can:{2}\n  allow float32 "
                              "as well, or drop the rule that asks for {1}",
                              r.name, to_string(r.precision), list));
    }
    return {};
  }

  region::Decision& decision(const std::string& node) {
    region::Decision& d = decisions_[node];
    d.choice = kPrecision;
    d.where = node;
    d.onnx_nodes = {node};
    return d;
  }

  Result<double> error(const ir::Graph& g) {
    if (!meter_) {
      OCTAVO_TRY(ir::Graph exact, work_.exact());
      OCTAVO_TRY(meter_, ErrorMeter::of(std::move(exact)));
    }
    return meter_->error(g);
  }
  /// Nothing, or why the cheaper `candidate` is not taken.
  Result<std::optional<Reason>> beyond_error(const ir::Graph& g, std::string_view candidate) {
    if (!options_.max_error) return std::nullopt;
    OCTAVO_TRY(const double e, error(g));
    if (e <= *options_.max_error) return std::nullopt;
    return because<cause::beyond_max_error>(candidate, e, *options_.max_error);
  }

  Result<Realized> plan_of(const PermitChoices& choices) {
    OCTAVO_TRY(const Form form, work_.form(choices));
    return realize(form.graph, {}, context_);
  }

  Status keep_within_error() {
    Names nodes = out_.form.permitted.layers;
    for (const std::string& node : out_.form.permitted.only_int8) nodes.erase(node);
    nodes.insert(out_.form.permitted.others.begin(), out_.form.permitted.others.end());
    if (!options_.allowed.contains(wide_)) {
      OCTAVO_TRY(const double all, error(out_.form.graph));
      if (all <= *options_.max_error) return {};
      return fail(ErrorKind::usage,
                  fmt::format("--max-error {}: with every permitted layer in int8 an output differs by {:.4g} of its "
                              "largest magnitude (seeded inputs)\n  allow float32 as well, or a larger error",
                              *options_.max_error, all));
    }
    const auto form_with = [&](const Names& in_float) {
      PermitChoices c = choices_;
      c.keep_float = in_float;
      return work_.form(c);
    };
    OCTAVO_TRY(const Realized integer, realize(out_.form.graph, {}, context_));
    OCTAVO_TRY(const Form float_form, form_with(nodes));
    OCTAVO_TRY(const Realized as_float, realize(float_form.graph, {}, context_));
    OCTAVO_TRY(const NodeTimes integers, node_times(pricer_, integer.plan, nodes, false));
    OCTAVO_TRY(const NodeTimes floats, node_times(pricer_, as_float.plan, nodes, false));
    const auto seconds = [](const NodeTimes& t, const std::string& node) { return t.contains(node) ? t.at(node) : -1.0; };
    std::vector<ErrorUnit> units;
    const std::vector<std::string> order = in_order(nodes);
    const std::size_t each = (order.size() + kMostUnits - 1) / kMostUnits;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i % each == 0) units.emplace_back();
      units.back().nodes.insert(order[i]);
      const double a = seconds(integers, order[i]), b = seconds(floats, order[i]);
      if (a >= 0 && b >= 0) units.back().gain += b - a;
    }
    OCTAVO_TRY(const ErrorLimit found, limit_error(units, *options_.max_error, [&](const Names& in_float) -> Result<double> {
                 OCTAVO_TRY(const Form form, form_with(in_float));
                 return error(form.graph);
               }));
    if (found.kept.empty()) return {};
    for (const std::size_t u : found.kept) {
      for (const std::string& node : units[u].nodes) {
        const Reason why =
            units[u].nodes.size() == 1
                ? because<cause::kept_for_max_error>(wide_.name(), *options_.max_error, units[u].alone)
                : because<cause::kept_with_neighbours_for_max_error>(wide_.name(), *options_.max_error, units[u].alone);
        choices_.keep_float.insert(node);
        choices_.why.insert_or_assign(node, why);
        region::Decision& d = decision(node);
        d.candidates = {{"int8", seconds(integers, node), {because<cause::permitted_with_error>(units[u].alone)}},
                        {std::string(wide_.name()), seconds(floats, node)}};
        d.chosen = 1;
        d.reasons = {why, because<cause::max_error_search>(found.before, found.after, found.evaluations)};
      }
    }
    OCTAVO_TRY(out_.form, work_.form(choices_));
    return {};
  }

  /// The names in the graph's order.
  [[nodiscard]] std::vector<std::string> in_order(const Names& names) const {
    std::vector<std::string> out;
    Names left = names;
    for (const ir::NodeId id : out_.form.graph.order()) {
      for (const std::string& origin : out_.form.graph.node(id).origin) {
        if (left.erase(origin) > 0) out.push_back(origin);
      }
    }
    out.insert(out.end(), left.begin(), left.end());
    return out;
  }

  /// Takes a form if its plan costs less by `margin` seconds and keeps --max-error; otherwise says why `candidate` is not taken.
  Result<std::optional<Reason>> try_choices(PermitChoices trial, double margin, std::string_view candidate) {
    OCTAVO_TRY(Form changed, work_.form(trial));
    OCTAVO_TRY(Searched found, search(changed.graph, context_));
    if (found.best_seconds >= out_.searched.best_seconds - margin) return because<cause::gain_lost_around>(candidate);
    OCTAVO_TRY(std::optional<Reason> refused, beyond_error(changed.graph, candidate));
    if (refused) return refused;
    changed_ = true;
    choices_ = std::move(trial);
    out_.searched = std::move(found);
    out_.form = std::move(changed);
    return std::nullopt;
  }

  // Candidate precision:  conv(view(x)) that a range permits  <==>  conv(x) in float32  <==>  conv(bf16(x)) in bfloat16
  //   Why    a range permits int8, but does not demand it: a layer stays float32 if that is faster, with all necessary conversions.
  //          bfloat16, if allowed, halves the bytes of float32 and doubles the products of an instruction.
  //   Exact  not bit for bit: the permitted view, or data and weights in bfloat16, are one rounding each, which --max-error bounds.
  //   Needs  a range (docs/implicit.md), or bfloat16 among the allowed types; never raised for a layer that Q/DQ nodes make int8. A product of
  //          two matrices is float32 or bfloat16.
  //   Order  after the search. All are priced in one plan without permitted views (and one in bfloat16); only where another type
  //          wins there is a plan tried with it. Default: int8 where a range permits it, else float16 where it is allowed, else
  //          float32.
  Status choose_float(Names nodes) {
    for (const std::string& node : out_.form.permitted.only_int8) nodes.erase(node);
    if (nodes.empty() || !options_.allowed.contains(wide_)) return {};
    PermitChoices none = choices_;
    none.keep_float.insert(nodes.begin(), nodes.end());
    OCTAVO_TRY(const Realized as_float, plan_of(none));
    OCTAVO_TRY(const NodeTimes floats, node_times(pricer_, as_float.plan, nodes));
    OCTAVO_TRY(const NodeTimes integers, node_times(pricer_, out_.searched.defaults.plan, nodes));
    for (const auto& [node, seconds] : integers) {
      const auto other = floats.find(node);
      if (other == floats.end()) continue;
      region::Decision& d = decision(node);
      if (d.candidates.size() < 3) {  // bfloat16 was no candidate
        d.chosen = 0;
        d.reasons = {because<cause::not_slower>("int8", kPartPercent)};
        d.candidates = {{"int8", seconds, {because<cause::int8_permitted>()}}, {std::string(wide_.name()), other->second}};
      }
      if (other->second >= seconds * kPart) continue;
      PermitChoices trial = choices_;
      trial.keep_float.insert(node);
      trial.why.insert_or_assign(node, because<cause::faster_by_parts>(wide_.name(), context_.times()));
      OCTAVO_TRY(const auto refused, try_choices(std::move(trial), (1 - kPart) * seconds, wide_.name()));
      if (refused) {
        d.reasons = {*refused};
        continue;
      }
      d.chosen = index_of(d, wide_.name());
      d.reasons = {because<cause::permitted_but_slower>(wide_.name())};
    }
    return {};
  }

  Status choose_bfloat16() {
    if (!options_.allowed.contains(LayerType::bfloat16) || !options_.allowed.contains(LayerType::float32)) return {};
    Names nodes;
    for (const std::string& n : out_.form.permitted.may_bfloat16) {
      if (!out_.form.permitted.bfloat16.contains(n)) nodes.insert(n);
    }
    if (nodes.empty()) return {};
    PermitChoices floats_only = choices_, small = choices_;
    floats_only.keep_float.insert(nodes.begin(), nodes.end());
    small.keep_float = floats_only.keep_float;
    small.bfloat16 = nodes;
    OCTAVO_TRY(const Realized as_float, plan_of(floats_only));
    OCTAVO_TRY(const NodeTimes floats, node_times(pricer_, as_float.plan, nodes));
    OCTAVO_TRY(const NodeTimes now, node_times(pricer_, out_.searched.defaults.plan, nodes));
    OCTAVO_TRY(Realized as_small, plan_of(small));
    std::map<std::string, Reasons> impossible;
    for (const region::Region& r : as_small.plan.regions) {
      if (r.precision != ir::DType::bf16) continue;
      const Reasons refused = refusals_of(r, as_small.plan, context_);
      for (const std::string& node : r.onnx_nodes) {
        if (!refused.empty() && nodes.contains(node)) impossible[node] = refused;
      }
    }
    for (const auto& [node, why] : impossible) small.bfloat16.erase(node);
    if (!impossible.empty() && !small.bfloat16.empty()) {
      OCTAVO_TRY(as_small, plan_of(small));
    }
    NodeTimes smalls;
    if (!small.bfloat16.empty()) {
      OCTAVO_TRY(smalls, node_times(pricer_, as_small.plan, small.bfloat16));
    }
    struct Gain {
      std::string node;
      double seconds, of;
    };
    std::vector<Gain> gains;
    for (const std::string& node : nodes) {
      const bool integer = out_.form.permitted.layers.contains(node);
      const bool limited = decisions_.contains(node);  // --max-error forbids int8: that candidate and its error stay in the list
      const auto current = now.find(node), plain = floats.find(node);
      const auto half = smalls.find(node);
      if (current == now.end() || plain == floats.end()) continue;
      if (half == smalls.end() && !impossible.contains(node)) continue;
      region::Decision& d = decision(node);
      if (!limited) {
        d.candidates.clear();
        if (integer) d.candidates.push_back({"int8", current->second, {because<cause::int8_permitted>()}});
        d.candidates.push_back({"float32", plain->second});
        d.chosen = 0;
        d.reasons = {because<cause::not_slower>(integer ? "int8" : "float32", kPartPercent)};
      }
      if (half == smalls.end()) {
        d.candidates.push_back({"bfloat16", -1, impossible[node]});
        if (!limited && !integer) d.reasons = {because<cause::no_kernel_in_type>("bfloat16")};
        continue;
      }
      d.candidates.push_back({"bfloat16", half->second, {because<cause::operands_rounded>("bfloat16")}});
      const double least = integer ? std::min(current->second, plain->second) : current->second;
      if (half->second < least * kPart) {
        gains.push_back({node, current->second - half->second, current->second});
      }
    }
    // Neighbours share tensors, so all of them first; then one by one, the largest gain first.
    std::stable_sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) { return a.seconds > b.seconds; });
    const auto with = [&](const Names& more) {
      PermitChoices trial = choices_;
      for (const std::string& node : more) {
        trial.bfloat16.insert(node);
        trial.keep_float.insert(node);
        trial.why.emplace(node,
                          because<cause::faster_by_parts>("bfloat16", context_.times()));  // --max-error may have said why already
      }
      return trial;
    };
    const auto taken = [&](const std::string& node, const std::optional<Reason>& refused) {
      region::Decision& d = decisions_[node];
      if (!refused) d.chosen = index_of(d, "bfloat16");
      d.reasons = {refused ? *refused : because<cause::faster_and_allowed>("bfloat16", kPartPercent)};
    };
    Names all;
    double sum = 0;
    for (const Gain& g : gains) all.insert(g.node), sum += g.of;
    if (all.empty()) return {};
    OCTAVO_TRY(std::optional<Reason> refused, try_choices(with(all), (1 - kPart) * sum, "bfloat16"));
    for (const std::string& node : all) taken(node, refused);
    if (!refused || all.size() == 1) return {};
    for (std::size_t i = 0; i < std::min(kMostTrials, gains.size()); ++i) {
      OCTAVO_TRY(refused, try_choices(with({gains[i].node}), (1 - kPart) * gains[i].of, "bfloat16"));
      taken(gains[i].node, refused);
    }
    return {};
  }

  // Candidate inner-view:  f(conv(x))  <==>  f(view(conv(x))), where the range of the convolution's result permits it
  //   Why    an activation behind a view is a table of 256 entries instead of arithmetic.
  //   Exact  not bit for bit: one more rounding, as Q/DQ between a convolution and its activation demands; --max-error bounds it.
  //   Needs  a range of the convolution's result (docs/implicit.md), an activation in its epilogue, and --force=inner-view, or
  //          --max-error as a bound, because otherwise no plan may lose accuracy.
  //   Order  after precision. All are priced in one plan; those that pay are taken together. Default: arithmetic.
  Status choose_inner() {
    PermitChoices all = choices_;
    all.all_inner = true;
    OCTAVO_TRY(const Form every, work_.form(all));
    const Names& nodes = every.permitted.inner;
    if (nodes.empty()) return {};
    OCTAVO_TRY(const Realized realized, realize(every.graph, {}, context_));
    OCTAVO_TRY(const NodeTimes tables, node_times(pricer_, realized.plan, nodes));
    OCTAVO_TRY(const NodeTimes arithmetic, node_times(pricer_, out_.searched.defaults.plan, nodes));
    PermitChoices chosen = choices_;
    for (const auto& [node, seconds] : arithmetic) {
      const auto other = tables.find(node);
      if (other == tables.end()) continue;
      region::Decision d;
      d.choice = kInnerView;
      d.where = node;
      d.onnx_nodes = {node};
      d.candidates = {{"arithmetic", seconds}, {"table", other->second, {because<cause::one_more_rounding>()}}};
      d.reasons = {because<cause::not_cheaper>(kPartPercent)};
      if (other->second < seconds * kPart) chosen.inner.insert(node);
      inner_.push_back(std::move(d));
    }
    if (chosen.inner.empty()) return {};
    const Names asked = chosen.inner;
    OCTAVO_TRY(const auto refused, try_choices(std::move(chosen), 0, "table"));
    for (region::Decision& d : inner_) {
      if (!asked.contains(d.where)) continue;
      d.reasons = {refused ? *refused : because<cause::faster_and_allowed>("table", kPartPercent)};
      if (!refused) d.chosen = 1;
    }
    return {};
  }

  const PrecisionWork& work_;
  const PlanContext& context_;
  const PlanOptions& options_;
  Pricer pricer_;
  PermitChoices choices_;
  bool changed_ = false;
  LayerType wide_;  ///< what a permitted layer is without int8
  std::optional<ErrorMeter> meter_;
  std::map<std::string, region::Decision> decisions_;  ///< precision, by node
  std::vector<region::Decision> inner_;
  Precisions out_;
};

}  // namespace

Result<Precisions> choose_precisions(const PrecisionWork& work) {
  return Chooser(work).run();
}

}  // namespace octavo::plan
