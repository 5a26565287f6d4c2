#include "plan/advice/price_roundings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "plan/advice/replan.h"
#include "plan/effort.h"
#include "plan/plan.h"
#include "plan/search/margins.h"
#include "plan/search/price.h"
#include "region/key.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using Views = std::vector<const Rounding*>;
using Cost = PricedRounding::Cost;

class RoundingPricer {
 public:
  explicit RoundingPricer(const PlanContext& context) : options_(context.options), replanner_(context), pricer_(context) {}

  Result<std::vector<Rounding>> find(Graph& graph) const {
    OCTAVO_CHECK(replanner_.normalize(graph));
    return find_roundings(graph, options_.disabled,
                          options_.usual.contains("above-moves") && !options_.disabled.contains("above-moves"));
  }

  Result<Roundings> run(Graph graph) {
    Roundings out;
    OCTAVO_TRY(const std::vector<Rounding> found, find(graph));
    OCTAVO_TRY(const region::Plan base, replanner_.plan_of(graph));
    Views all;
    std::map<std::string, std::vector<std::size_t>> by_region;
    for (const Rounding& r : found) {
      PricedRounding p;
      p.rounding = r;
      const region::Region* owner = owner_of(r, base);
      if (owner != nullptr) p.region = owner->name;
      OCTAVO_TRY(const Roundings::Together alone, difference(graph, base, {&r}, owner));
      std::tie(p.with, p.without, p.same_plan) = std::tie(alone.with, alone.without, alone.same_plan);
      p.cost = pays(alone) ? Cost::alone : Cost::none;
      all.push_back(&r);
      if (owner != nullptr) by_region[p.region].push_back(out.each.size());
      out.each.push_back(std::move(p));
    }
    for (const auto& [name, members] : by_region) OCTAVO_CHECK(try_grouped(graph, base, members, out.each));
    OCTAVO_TRY(out.all, difference(graph, base, all, nullptr));
    OCTAVO_CHECK(leave_out_costly(graph, base, out));
    OCTAVO_CHECK(run_whole(base, out.all));
    if (out.costly < static_cast<int>(out.each.size())) {
      OCTAVO_TRY(const bool marked, judge_rest(graph, base, out));
      if (marked) OCTAVO_CHECK(leave_out_costly(graph, base, out));
    }
    if (out.costly > 0) OCTAVO_CHECK(run_whole(base, out.without_costly));
    return out;
  }

 private:
  static bool pays(const Roundings::Together& t) { return !t.same_plan && t.without >= 0 && t.without < 0.995 * t.with; }

  /// Of one region's roundings, all cost time if leaving out all saves more than leaving out those that cost time alone.
  Status try_grouped(const Graph& graph, const region::Plan& base, const std::vector<std::size_t>& members,
                     std::vector<PricedRounding>& each) {
    Views some, all;
    for (const std::size_t i : members) {
      all.push_back(&each[i].rounding);
      if (each[i].costs_time()) some.push_back(&each[i].rounding);
    }
    if (some.size() == all.size() || all.size() == 1) return {};
    OCTAVO_TRY(const Roundings::Together every, difference(graph, base, all, nullptr));
    if (!pays(every)) return {};
    OCTAVO_TRY(const Roundings::Together part, difference(graph, base, some, nullptr));
    if (part.without >= 0 && every.with - every.without < part.with - part.without + 0.005 * every.with) return {};
    for (const std::size_t i : members)
      if (!each[i].costs_time()) each[i].cost = Cost::region;
    return {};
  }

  Status leave_out_costly(const Graph& graph, const region::Plan& base, Roundings& out) {
    Views costly;
    for (const PricedRounding& p : out.each) {
      if (p.costs_time()) costly.push_back(&p.rounding);
    }
    out.costly = static_cast<int>(costly.size());
    OCTAVO_TRY(out.without_costly, difference(graph, base, costly, nullptr));
    return {};
  }

  /// Whole runs with all roundings and without these.
  Status run_whole(const region::Plan& base, Roundings::Together& some) const {
    if (!effort_at(options_.effort).compares_plans || some.same_plan || some.without < 0) return {};
    region::Plan with = base;
    OCTAVO_TRY(region::Plan without, replanner_.plan_of(some.graph));
    OCTAVO_TRY(const auto pair, replanner_.compare(with, without));
    if (pair) std::tie(some.whole_with, some.whole_without) = std::pair(pair->base, pair->other);
    return {};
  }

  /// Regions timed alone may not show what a rounding costs (short ones, several threads, a busy machine). The others are left out
  /// too: those that their region is not clearly faster with, or all of them; what makes the network fastest. Those in regions that
  /// differ then cost time. True if there is one.
  Result<bool> judge_rest(const Graph& graph, const region::Plan& base, Roundings& out) {
    if (out.without_costly.without < 0) return false;
    std::vector<PricedRounding*> some, all;
    for (PricedRounding& p : out.each) {
      if (p.costs_time()) continue;
      all.push_back(&p);
      if (p.without >= 0 && p.with >= kPart * p.without) some.push_back(&p);
    }
    OCTAVO_TRY(Trial best, left_out(graph, base, out, some));
    if (all.size() > some.size() && effort_at(options_.effort).compares_plans) {  // sums say no more than the regions did
      OCTAVO_TRY(Trial other, left_out(graph, base, out, all));
      if (!other.costly.empty() && other.part < kWhole * best.part) best = std::move(other);
    }
    for (PricedRounding* p : best.costly) p->cost = Cost::whole;
    return !best.costly.empty();
  }

  struct Trial {
    double part = 1;  ///< of the time of the network without those that cost time so far
    std::vector<PricedRounding*> costly;
  };
  Result<Trial> left_out(const Graph& graph, const region::Plan& base, const Roundings& out,
                         const std::vector<PricedRounding*>& rest) {
    const Roundings::Together& costly = out.without_costly;
    if (rest.empty()) return Trial{};
    Views views;
    for (const PricedRounding& p : out.each) {
      if (p.costs_time()) views.push_back(&p.rounding);
    }
    for (const PricedRounding* p : rest) views.push_back(&p->rounding);
    OCTAVO_TRY(const Roundings::Together every, difference(graph, base, views, nullptr));
    if (every.same_plan || every.without < 0) return Trial{};
    OCTAVO_TRY(region::Plan some, replanner_.plan_of(costly.graph));
    OCTAVO_TRY(region::Plan all, replanner_.plan_of(every.graph));
    std::map<std::string, int> left;
    for (const region::Region& r : all.regions) ++left[region::key(r, all)];
    std::vector<const region::Region*> gone;
    for (const region::Region& r : some.regions) {
      if (--left[region::key(r, some)] < 0) gone.push_back(&r);
    }
    if (gone.empty()) return Trial{};
    std::optional<WholeRuns> runs;
    if (effort_at(options_.effort).compares_plans) {
      OCTAVO_TRY(runs, replanner_.compare(some, all));
    }
    const bool faster = runs ? runs->faster() : every.with - every.without > costly.with - costly.without + 0.005 * every.with;
    if (!faster) return Trial{};
    Trial trial{runs ? runs->other / runs->base : 1, {}};
    for (PricedRounding* p : rest) {
      const auto& nodes = p->rounding.onnx_nodes;
      const auto in = [&](const region::Region* r) {
        return std::includes(r->onnx_nodes.begin(), r->onnx_nodes.end(), nodes.begin(), nodes.end());
      };
      if (std::any_of(gone.begin(), gone.end(), in)) trial.costly.push_back(p);
    }
    return trial;
  }

  static const region::Region* owner_of(const Rounding& r, const region::Plan& plan) {
    std::set<std::string> nodes = r.around;
    if (r.kind == Rounding::Kind::inside) nodes.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
    for (const region::Region& region : plan.regions) {
      if (std::includes(region.onnx_nodes.begin(), region.onnx_nodes.end(), nodes.begin(), nodes.end())) return &region;
    }
    return nullptr;
  }

  /// Seconds of the regions of `base` that go when the views are left out, and of those that come. None goes when the key does not
  /// say so (a step of a table): then `owner` costs what it costs.
  Result<Roundings::Together> difference(const Graph& graph, const region::Plan& base, const Views& views,
                                         const region::Region* owner) {
    Graph other = otherwise(graph, views);
    OCTAVO_CHECK(replanner_.normalize(other));
    OCTAVO_TRY(const region::Plan changed, replanner_.plan_of(other));
    std::map<std::string, int> balance;
    for (const region::Region& r : base.regions) ++balance[region::key(r, base)];
    for (const region::Region& r : changed.regions) --balance[region::key(r, changed)];
    const auto sum = [&](const region::Plan& plan, int sign) -> Result<double> {
      region::Plan part = plan;
      std::erase_if(part.regions, [&](const region::Region& r) {
        int& left = balance[region::key(r, plan)];
        if (left * sign <= 0) return true;
        left -= sign;
        return false;
      });
      double seconds = 0;
      OCTAVO_TRY(const auto items, pricer_.price(part));
      for (const auto& i : items) seconds += i.seconds;
      return seconds;
    };
    const bool same = std::ranges::all_of(balance, [](const auto& b) { return b.second == 0; });
    if (same && owner != nullptr) ++balance[region::key(*owner, base)];
    OCTAVO_TRY(const double with, sum(base, 1));
    if (same) return Roundings::Together{with, with, true, std::move(other)};
    const auto after = sum(changed, -1);
    if (!after && after.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(after.error());
    return Roundings::Together{with, after ? *after : -1, false, std::move(other)};
  }

  const PlanOptions& options_;
  Replanner replanner_;
  Pricer pricer_;
};

}  // namespace

std::string_view name_of(Cost cost) {
  switch (cost) {
    case Cost::alone: return "alone";
    case Cost::region: return "with the others of its region";
    case Cost::whole: return "with all others";
    default: return "";
  }
}

Result<Roundings> price_roundings(Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  OCTAVO_CHECK(check_names(options));
  Estimates estimates;
  Memo memo(providers);
  return RoundingPricer({providers, options, costs_of(options, estimates), memo}).run(std::move(graph));
}

Result<std::vector<Rounding>> roundings_of(Graph graph, const PlanOptions& options) {
  Estimates estimates;
  const std::vector<const region::Provider*> nobody;
  Memo memo(nobody);
  return RoundingPricer({nobody, options, estimates, memo}).find(graph);
}

}  // namespace octavo::plan
