#include "plan/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ir/grid.h"
#include "passes/passes.h"
#include "plan/choices.h"
#include "plan/permit_error.h"
#include "plan/price.h"
#include "quant/normal_form.h"
#include "quant/weight_scales.h"
#include "region/key.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

class Adviser {
 public:
  Adviser(const std::vector<const region::Provider*>& providers, const PlanOptions& options, Costs& costs)
      : providers_(providers), options_(options), pricer_(providers, costs) {}

  Result<Advised> run(Graph graph, int errors) {
    OCTAVO_CHECK(normalize(graph));
    OCTAVO_TRY(const auto base, price(graph));
    Advised out;
    for (const auto& i : base) out.plan_seconds += i.seconds;
    std::vector<Graph> changed;
    std::vector<NodeId> views;
    const ir::Grids grids = ir::find_grids(graph);
    for (const NodeId id : graph.order()) {
      Advice a;
      Graph other = graph;
      if (!drop(graph, other, id, a) && !add(graph, grids, other, id, a)) continue;
      ++out.tried;
      other.remove_dead();
      OCTAVO_CHECK(normalize(other));
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
      if (a.kind == Advice::Kind::drop && errors > 0) changed.push_back(other);
      a.error = a.kind == Advice::Kind::drop && errors > 0 ? -2.0 - static_cast<double>(changed.size() - 1)
                                                           : -1;  // a place in `changed`, for now
      views.push_back(id);
      a.place = views.size() - 1;
      out.advice.push_back(std::move(a));
    }
    std::stable_sort(out.advice.begin(), out.advice.end(), [](const Advice& a, const Advice& b) { return a.seconds > b.seconds; });
    out.dropped_seconds = out.plan_seconds;
    std::vector<NodeId> taken;
    for (Advice& a : out.advice) {
      if (a.kind != Advice::Kind::drop) continue;
      Graph other = graph;
      taken.push_back(views[a.place]);
      for (const NodeId id : taken) other.replace_uses(graph.node(id).outputs[0], other.node(id).inputs[0], false);
      other.remove_dead();
      OCTAVO_CHECK(normalize(other));
      const auto items = price(other);
      double sum = 0;
      if (items) {
        for (const auto& i : *items) sum += i.seconds;
      }
      a.together = items && sum < out.dropped_seconds - 0.2 * a.seconds;
      if (a.together) {
        out.dropped_seconds = sum;
      } else {
        taken.pop_back();
      }
    }
    for (Advice& a : out.advice) {
      if (a.error > -2) continue;
      const auto at = static_cast<std::size_t>(-2.0 - a.error);
      a.error = -1;
      if (errors-- <= 0) continue;
      OCTAVO_TRY(a.error, estimated_error(graph, changed[at]));
    }
    return out;
  }

  Result<std::vector<Rounding>> find(Graph& graph) const {
    OCTAVO_CHECK(normalize(graph));
    return find_roundings(graph, options_.disabled);
  }

  Result<Roundings> roundings(Graph graph) {
    Roundings out;
    OCTAVO_TRY(const std::vector<Rounding> found, find(graph));
    OCTAVO_TRY(const region::Plan base, plan_of(graph));
    std::vector<NodeId> all, costly;
    std::map<std::string, std::vector<std::size_t>> by_region;
    for (const Rounding& r : found) {
      PricedRounding p;
      p.rounding = r;
      const region::Region* home = home_of(r, base);
      if (home != nullptr) p.region = home->name;
      OCTAVO_TRY(const Roundings::Together alone, difference(graph, base, {r.view}, home));
      std::tie(p.with, p.without, p.same_plan) = std::tie(alone.with, alone.without, alone.same_plan);
      p.costs_time = pays(alone);
      all.push_back(r.view);
      if (home != nullptr) by_region[p.region].push_back(out.each.size());
      out.each.push_back(std::move(p));
    }
    for (const auto& [name, members] : by_region) OCTAVO_CHECK(try_together(graph, base, members, out.each));
    for (const PricedRounding& p : out.each) {
      if (p.costs_time) costly.push_back(p.rounding.view);
    }
    out.costly = static_cast<int>(costly.size());
    OCTAVO_TRY(out.all, difference(graph, base, all, nullptr));
    OCTAVO_TRY(out.without_costly, difference(graph, base, costly, nullptr));
    return out;
  }

 private:
  static bool pays(const Roundings::Together& t) { return !t.same_plan && t.without >= 0 && t.without < 0.995 * t.with; }

  /// Of one region's roundings, all cost time if leaving out all saves more than leaving out those that cost time alone.
  Status try_together(const Graph& graph, const region::Plan& base, const std::vector<std::size_t>& members,
                      std::vector<PricedRounding>& each) {
    std::vector<NodeId> some, all;
    for (const std::size_t i : members) {
      all.push_back(each[i].rounding.view);
      if (each[i].costs_time) some.push_back(each[i].rounding.view);
    }
    if (some.size() == all.size() || all.size() == 1) return {};
    OCTAVO_TRY(const Roundings::Together every, difference(graph, base, all, nullptr));
    if (!pays(every)) return {};
    OCTAVO_TRY(const Roundings::Together part, difference(graph, base, some, nullptr));
    if (part.without >= 0 && every.with - every.without < part.with - part.without + 0.005 * every.with) return {};
    for (const std::size_t i : members) each[i].costs_time = true;
    return {};
  }

  static const region::Region* home_of(const Rounding& r, const region::Plan& plan) {
    std::set<std::string> nodes = r.around;
    nodes.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
    for (const region::Region& region : plan.regions) {
      if (std::includes(region.onnx_nodes.begin(), region.onnx_nodes.end(), nodes.begin(), nodes.end())) return &region;
    }
    return nullptr;
  }

  /// Seconds of the regions of `base` that go when the views are left out, and of those that come. None goes when the key does not
  /// say so (a step of a table): then `home` costs what it costs.
  Result<Roundings::Together> difference(const Graph& graph, const region::Plan& base, const std::vector<NodeId>& views,
                                         const region::Region* home) {
    Graph other = plan::without(graph, views);
    OCTAVO_CHECK(normalize(other));
    OCTAVO_TRY(const region::Plan changed, plan_of(other));
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
    if (same && home != nullptr) ++balance[region::key(*home, base)];
    OCTAVO_TRY(const double with, sum(base, 1));
    if (same) return Roundings::Together{with, with, true, std::move(other)};
    const auto after = sum(changed, -1);
    if (!after && after.error().kind != ErrorKind::unsupported) return tl::unexpected<Error>(after.error());
    return Roundings::Together{with, after ? *after : -1, false, std::move(other)};
  }

  Status normalize(Graph& g) const {
    const auto without_disabled = [&](const std::vector<const rewrite::Rule*>& rules) {
      rewrite::RunOptions out;
      for (const rewrite::Rule* r : rules) {
        if (options_.disabled.contains(r->name())) out.disabled.emplace(r->name());
      }
      return out;
    };
    const rewrite::RunOptions laws = without_disabled(quant::laws());
    OCTAVO_TRY(const auto first, quant::normalize(g, laws));
    OCTAVO_TRY(const auto second, rewrite::run(g, passes::float_rules(), without_disabled(passes::float_rules())));
    OCTAVO_TRY(const auto third, quant::normalize(g, laws));
    return {};
  }
  Result<region::Plan> plan_of(const Graph& g) {
    OCTAVO_TRY(const auto unfused, realize(g, {}, providers_, options_));
    Choices defaults;
    defaults.staged = find_default_stages(unfused.plan, options_);
    OCTAVO_TRY(auto made, realize(g, defaults, providers_, options_));
    return std::move(made.plan);
  }
  Result<std::vector<Pricer::Item>> price(const Graph& g) {
    OCTAVO_TRY(const region::Plan plan, plan_of(g));
    return pricer_.price(plan);
  }
  /// Ids differ between graphs: only the key tells regions apart.
  static std::string key_of(const Pricer::Item& i) { return i.identity.substr(0, i.identity.rfind(" -> ")); }

  static bool drop(const Graph& g, Graph& other, NodeId id, Advice& a) {
    const Node& n = g.node(id);
    if (n.op != Op::view || g.is_constant(n.inputs[0])) return false;
    a.kind = Advice::Kind::drop;
    a.tensor = g.value(n.inputs[0]).name;
    a.onnx_nodes = n.origin;
    a.why = fmt::format("{} is demanded here; without it the tensor is read as it is", ir::to_string(*n.quantizer));
    other.replace_uses(n.outputs[0], n.inputs[0], false);
    return true;
  }

  static bool add(const Graph& g, const ir::Grids& grids, Graph& other, NodeId id, Advice& a) {
    const Node n = g.node(id);
    if ((n.op != Op::conv && n.op != Op::conv_transpose && n.op != Op::gemm) || !g.is_constant(n.inputs[1])) return false;
    const auto kind = ir::classify_anchor(g, grids, id);
    if (kind.integer || g.type(n.inputs[0]).dtype != ir::DType::f32) return false;
    a.kind = Advice::Kind::add;
    a.tensor = g.value(n.inputs[0]).name;
    a.onnx_nodes = n.origin;
    a.why = fmt::format("{}; with a pair on \"{}\" and int8 weights it would be an integer operator", kind.why_float, a.tensor);
    const ValueId x =
        other.add_quantizer(Op::view, n.inputs[0], ir::per_tensor(ir::DType::s8, 1.0F / 64), g.type(n.inputs[0]), n.origin);
    other.node(id).inputs[0] = x;
    const Node& w = g.producer(n.inputs[1]);
    if (!w.quantizer) {
      if (w.payload.dtype() != ir::DType::f32) return false;
      const ValueId coded =
          other.add_quantizer(Op::view, n.inputs[1], quant::weight_quantizer(g, n), g.type(n.inputs[1]), n.origin);
      other.node(id).inputs[1] = coded;
    }
    other.touch();
    return true;
  }

  const std::vector<const region::Provider*>& providers_;
  const PlanOptions& options_;
  Pricer pricer_;
};

}  // namespace

Result<Advised> advise(Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options, int errors) {
  Estimates estimates;
  Costs& costs = options.costs != nullptr && options.effort > 0 ? *options.costs : estimates;
  return Adviser(providers, options, costs).run(std::move(graph), errors);
}

Result<Roundings> price_roundings(Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  Estimates estimates;
  Costs& costs = options.costs != nullptr && options.effort > 0 ? *options.costs : estimates;
  return Adviser(providers, options, costs).roundings(std::move(graph));
}

Result<std::vector<Rounding>> roundings_of(Graph graph, const PlanOptions& options) {
  Estimates estimates;
  const std::vector<const region::Provider*> nobody;
  return Adviser(nobody, options, estimates).find(graph);
}

}  // namespace octavo::plan
