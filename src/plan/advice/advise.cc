#include "plan/advice/advise.h"

#include <algorithm>
#include <map>

#include "base/causes/plan_advice.h"
#include "ir/grid.h"
#include "plan/advice/pair_change.h"
#include "plan/advice/replan.h"
#include "plan/plan.h"
#include "plan/precision/permit_error.h"
#include "plan/search/price.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::NodeId;

class Adviser {
 public:
  explicit Adviser(const PlanContext& context) : options_(context.options), replanner_(context), pricer_(context) {}

  Result<Advised> run(Graph graph, int errors, const ir::Ranges& ranges) {
    OCTAVO_CHECK(replanner_.normalize(graph));
    OCTAVO_TRY(const auto base, price(graph));
    Advised out;
    for (const auto& i : base) out.plan_seconds += i.seconds;
    std::vector<Graph> tried;  // for their errors
    std::vector<PairChange> changes = find_pair_changes(graph, options_.disabled);
    for (PairChange& c : find_added_pairs(graph, ranges)) changes.push_back(std::move(c));
    const ir::Grids grids = ir::find_grids(graph);
    for (std::size_t at = 0; at < changes.size(); ++at) {
      Advice a;
      describe(graph, grids, changes[at], a);
      Graph other = changed(graph, {&changes[at]});
      a.place = at;
      ++out.tried;
      other.remove_dead();
      OCTAVO_CHECK(replanner_.normalize(other));
      const auto items = price(other);
      if (!items) {
        if (items.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(items.error());
        continue;
      }
      std::map<std::string, double> gone;
      double before = 0, after = 0;
      for (const auto& i : base) gone[key_of(i)] += i.seconds;
      for (const auto& i : *items) gone[key_of(i)] -= i.seconds;
      for (const auto& [key, seconds] : gone) (seconds > 0 ? before : after) += seconds;
      a.seconds = before + after;
      if (a.seconds < 0.02 * before || a.seconds <= 0) continue;
      a.small = a.seconds < kWorth * out.plan_seconds;
      const bool estimated = applicable(a) && errors > 0;
      if (estimated) tried.push_back(other);
      a.error = estimated ? -2.0 - static_cast<double>(tried.size() - 1) : -1;  // a place in `tried`, for now
      out.advice.push_back(std::move(a));
    }
    std::stable_sort(out.advice.begin(), out.advice.end(), [](const Advice& a, const Advice& b) {
      return applicable(a) != applicable(b) ? applicable(a) : a.seconds > b.seconds;
    });
    out.applied_seconds = out.plan_seconds;
    std::vector<const PairChange*> taken;
    for (Advice& a : out.advice) {
      if (!applicable(a)) continue;
      const NodeId view = changes[a.place].rounding.view;
      if (view != ir::kNone && std::ranges::any_of(taken, [&](const PairChange* c) { return c->rounding.view == view; }))
        continue;  // one change a pair
      taken.push_back(&changes[a.place]);
      Graph other = changed(graph, taken);
      OCTAVO_CHECK(replanner_.normalize(other));
      const auto items = price(other);
      double sum = 0;
      if (items) {
        for (const auto& i : *items) sum += i.seconds;
      }
      a.together = items && sum < out.applied_seconds - 0.2 * a.seconds;
      if (a.together) {
        out.applied_seconds = sum;
      } else {
        taken.pop_back();
      }
    }
    if (out.plan_seconds - out.applied_seconds < kWorth * out.plan_seconds) {
      for (Advice& a : out.advice) a.together = false;
      out.applied_seconds = out.plan_seconds;
    }
    for (Advice& a : out.advice) {
      if (a.error > -2) continue;
      const auto at = static_cast<std::size_t>(-2.0 - a.error);
      a.error = -1;
      if (errors-- <= 0) continue;
      OCTAVO_TRY(a.error, estimated_error(graph, tried[at]));
    }
    return out;
  }

 private:
  Result<std::vector<Pricer::Item>> price(const Graph& g) {
    OCTAVO_TRY(const region::Plan plan, replanner_.plan_of(g));
    return pricer_.price(plan);
  }
  /// Ids differ between graphs: only the key tells regions apart.
  static std::string key_of(const Pricer::Item& i) { return i.identity.substr(0, i.identity.rfind(" -> ")); }

  /// Can be done to the model with what is known: an addition needs a quantizer.
  static bool applicable(const Advice& a) { return a.kind != Advice::Kind::add || a.quantizer; }

  static void describe(const Graph& g, const ir::Grids& grids, const PairChange& c, Advice& a) {
    const Rounding& r = c.rounding;
    a.tensor = r.tensor;
    a.onnx_nodes = r.onnx_nodes;
    if (c.kind == PairChange::Kind::add) {
      a.kind = Advice::Kind::add;
      a.why = {*ir::classify_anchor(g, grids, c.node).why_float, because<cause::pair_would_make_integer>(a.tensor)};
      if (c.in_range) a.quantizer = r.quantizer;
      return;
    }
    if (c.kind == PairChange::Kind::drop) {
      a.why = {because<cause::pair_costs_time>(ir::to_string(r.quantizer))};
      return;
    }
    if (c.kind == PairChange::Kind::move) {
      a.kind = Advice::Kind::move;
      a.pair = r.onnx_nodes;
      a.onnx_nodes = c.onnx_nodes;
      a.behind = g.value(c.behind).name;
      a.why = {because<cause::pair_before_activation>(ir::to_string(r.quantizer))};
      return;
    }
    a.kind = Advice::Kind::share;
    a.pair = r.pair;
    a.why = {because<cause::codes_and_float_stored>(ir::to_string(r.quantizer))};
  }

  const PlanOptions& options_;
  Replanner replanner_;
  Pricer pricer_;
};

}  // namespace

Result<Advised> advise(Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options, int errors,
                       const ir::Ranges& ranges) {
  OCTAVO_CHECK(check_names(options));
  Estimates estimates;
  Memo memo(providers);
  return Adviser({providers, options, costs_of(options, estimates), memo}).run(std::move(graph), errors, ranges);
}

}  // namespace octavo::plan
