#include "plan/search/search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/causes/plan_search.h"
#include "plan/candidates/registry.h"
#include "plan/candidates/stages.h"
#include "plan/effort.h"
#include "plan/search/margins.h"
#include "plan/search/price.h"
#include "plan/search/steps.h"

namespace octavo::plan {
namespace {

using Items = std::vector<Pricer::Item>;

double total(const Items& items) {
  return std::accumulate(items.begin(), items.end(), 0.0, [](double t, const Pricer::Item& i) { return t + i.seconds; });
}

/// What a candidate changes: regions of the default plan that go, and what comes for them.
struct Effect {
  std::size_t choice = 0, candidate = 0;
  std::map<std::string, double> removed;
  double added = 0;
  Reasons impossible;
  [[nodiscard]] double before() const {
    double t = 0;
    for (const auto& [id, s] : removed) t += s;
    return t;
  }
  [[nodiscard]] double gain() const { return before() - added; }
  [[nodiscard]] bool pays() const { return impossible.empty() && added < before() * kPart; }
};

using Picks = std::map<std::size_t, std::size_t>;  // choice -> candidate

class Search {
 public:
  Search(const ir::Graph& g, const PlanContext& context)
      : g_(g), context_(context), options_(context.options), effort_(effort_at(context.options.effort)), pricer_(context) {}

  Result<Searched> run() {
    Searched out;
    OCTAVO_TRY(Defaults defaults, realize_defaults(g_, context_));
    defaults_ = std::move(defaults.selection);
    out.defaults = std::move(defaults.made);
    OCTAVO_CHECK(take_forced(out));
    out.default_selection = out.best_selection = defaults_;
    choices_ = choices_to_price(out.defaults);
    if (!effort_.searches && choices_.empty() && !precision_is_priced()) {
      out.best = out.defaults;
      return out;
    }
    // Kernels of the default plan are compiled while the candidates are planned, and those of candidates while the default plan is timed.
    context_.costs.begin(out.defaults.plan);
    const std::size_t limit = std::min(static_cast<std::size_t>(effort_.choices), choices_.size());
    OCTAVO_CHECK(give_notice(limit));
    Steps regions("region", out.defaults.plan.regions.size());
    OCTAVO_TRY(base_, pricer_.price(out.defaults.plan, &regions));
    out.default_seconds = out.best_seconds = total(base_);
    Steps steps("choice", limit);
    for (std::size_t i = 0; i < limit; ++i) {
      OCTAVO_CHECK(steps.next());
      for (std::size_t k = 1; k < choices_[i].candidates.size(); ++k) OCTAVO_CHECK(price_alone(i, k));
    }
    OCTAVO_TRY(const Picks picks, effort_.combine == Combine::greedy ? greedy() : by_components());
    OCTAVO_TRY(const auto found, evaluate(picks));
    out.changed = !picks.empty() && found && found->second < out.default_seconds;
    if (out.changed) {
      out.best_seconds = found->second;
      out.best_selection = selected(picks);
      OCTAVO_TRY(out.best, realize(g_, out.best_selection, context_));
      for (const auto& [i, k] : picks) out.taken.push_back({choices_[i].name, choices_[i].candidates[k].apply});
    } else {
      out.best = out.defaults;
    }
    report(out, out.changed ? picks : Picks{});
    return out;
  }

 private:
  [[nodiscard]] Selection selected(const Picks& picks) const {
    Selection s = defaults_;
    for (const auto& [i, k] : picks) choices_[i].candidates[k].apply(s);
    return s;
  }

  /// All that the default plan raises, where plans are searched.
  [[nodiscard]] std::vector<Choice> choices_to_price(const Realized& defaults) const {
    if (!effort_.searches && options_.priced.empty()) return {};
    std::vector<Choice> all = find_choices(defaults, defaults_, options_);
    if (!effort_.searches) std::erase_if(all, [&](const Choice& c) { return !priced(c); });
    return all;
  }
  [[nodiscard]] bool priced(const Choice& c) const { return options_.priced.contains(c.name) || options_.priced.contains(c.kind); }

  /// The caller compares this plan with one in bfloat16 (plan/precision).
  [[nodiscard]] bool precision_is_priced() const {
    return options_.priced.contains(kPrecision) && options_.allowed.contains(LayerType::bfloat16);
  }

  /// Tells the source of times what will be priced, where it wants to know.
  Status give_notice(std::size_t limit) {
    if (!context_.costs.wants_notice()) return {};
    Steps steps("candidates of choice", limit);
    for (std::size_t i = 0; i < limit; ++i) {
      OCTAVO_CHECK(steps.next());
      for (std::size_t k = 1; k < choices_[i].candidates.size(); ++k) {
        if (const auto made = realize(g_, selected({{i, k}}), context_)) context_.costs.notice(made->plan, false);
      }
    }
    context_.costs.notice({}, true);
    return {};
  }

  /// The other candidate of every choice that is forced, or usual on the device, becomes the default. One that cannot be planned stays apart; stages and
  /// neighbours that no provider takes stay apart in `realize`, which says why.
  Status take_forced(Searched& out) {
    std::set<std::string, std::less<>> names = options_.forced;
    if (!effort_.searches) names.insert(options_.usual.begin(), options_.usual.end());
    if (names.empty()) return {};
    PlanOptions open = options_;
    open.forced.clear();
    std::vector<Choice> wanted = find_choices(out.defaults, defaults_, open, true);
    std::erase_if(wanted, [&](const Choice& c) {
      const bool already = c.name == kStageOperand && c.candidates.back().name == find_choice(kStageOperand)->candidates[0].name;
      return already || !names.contains(c.name) || (!options_.forced.contains(c.name) && priced(c));
    });
    if (wanted.empty()) return {};
    // Nearly always all of them can be planned together: then it is not asked of each alone, which takes as long as a plan.
    Selection all = defaults_;
    for (const Choice& choice : wanted) choice.candidates.back().apply(all);
    const bool together = realize(g_, all, context_).has_value();
    for (const Choice& choice : wanted) {
      const bool forced = options_.forced.contains(choice.name);
      Selection trial = defaults_;
      choice.candidates.back().apply(trial);
      Status possible;
      if (!together) {
        if (auto made = realize(g_, trial, context_); !made) possible = tl::unexpected<Error>(made.error());
      }
      region::Decision d;
      d.choice = choice.name, d.where = choice.where, d.onnx_nodes = choice.onnx_nodes;
      for (const auto& c : choice.candidates) d.candidates.push_back({c.name, -1, c.notes});
      if (possible) {
        defaults_ = std::move(trial);
        std::swap(d.candidates.front(), d.candidates.back());  // it is the default now
        d.reasons = {forced ? because<cause::forced>() : because<cause::usual_on_device>()};
      } else if (!forced) {
        continue;
      } else {
        d.reasons = {because<cause::forced_not_possible>(), because<cause::not_planned>(possible.error().message)};
      }
      out.decisions.push_back(std::move(d));
    }
    OCTAVO_TRY(out.defaults, realize(g_, defaults_, context_));
    return {};
  }

  /// The items and their sum; nothing when this combination cannot be planned or run.
  Result<std::optional<std::pair<Items, double>>> evaluate(const Picks& picks) {
    auto made = realize(g_, selected(picks), context_);
    if (!made) {
      last_problem_ = {because<cause::not_planned>(made.error().message)};
      return std::nullopt;
    }
    auto items = pricer_.price(made->plan);
    if (!items) {
      if (items.error().kind != ErrorKind::unsupported)
        return tl::unexpected<Error>(items.error());  // a miss in strict mode, a bad pin
      last_problem_ = {because<cause::not_planned>(items.error().message)};
      return std::nullopt;
    }
    last_problem_ = made->refusal.empty() ? Reasons{because<cause::no_effect>()} : made->refusal;
    const double sum = total(*items);
    return std::pair{std::move(*items), sum};
  }

  Status price_alone(std::size_t choice, std::size_t candidate) {
    Effect e;
    e.choice = choice;
    e.candidate = candidate;
    OCTAVO_TRY(const auto found, evaluate({{choice, candidate}}));
    if (!found) {
      e.impossible = last_problem_;
    } else {
      std::map<std::string, int> balance;
      std::map<std::string, double> price;
      for (const auto& i : base_) ++balance[i.identity], price[i.identity] = i.seconds;
      for (const auto& i : found->first) --balance[i.identity], price[i.identity] = i.seconds;
      for (const auto& [id, n] : balance) {
        if (n > 0) e.removed[id] = price[id] * n;
        if (n < 0) e.added -= price[id] * n;
      }
      if (e.removed.empty() && e.added == 0) e.impossible = last_problem_;
    }
    effects_.push_back(std::move(e));
    return {};
  }

  Result<Picks> greedy() {
    std::vector<const Effect*> order;
    for (const Effect& e : effects_) {
      if (e.pays()) order.push_back(&e);
    }
    std::stable_sort(order.begin(), order.end(), [](const Effect* a, const Effect* b) { return a->gain() > b->gain(); });
    Picks picks;
    double sum = total(base_);
    for (const Effect* e : order) {
      if (picks.contains(e->choice)) continue;
      Picks trial = picks;
      trial[e->choice] = e->candidate;
      OCTAVO_TRY(const auto found, evaluate(trial));
      if (!found || found->second > sum - e->before() * (1 - kPart)) continue;
      sum = found->second;
      picks = std::move(trial);
    }
    return picks;
  }

  [[nodiscard]] std::vector<std::vector<const Effect*>> components() const {
    std::vector<std::size_t> root(effects_.size());
    std::iota(root.begin(), root.end(), std::size_t{0});
    const auto find = [&](std::size_t i) {
      while (root[i] != i) i = root[i] = root[root[i]];
      return i;
    };
    std::map<std::string, std::size_t> owner;
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      if (!effects_[i].impossible.empty()) continue;
      for (const auto& [id, s] : effects_[i].removed) {
        const auto [at, fresh] = owner.emplace(id, i);
        if (!fresh) root[find(i)] = find(at->second);
      }
    }
    std::map<std::size_t, std::vector<const Effect*>> by_root;
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      if (effects_[i].impossible.empty()) by_root[find(i)].push_back(&effects_[i]);
    }
    std::vector<std::vector<const Effect*>> out;
    for (auto& [r, list] : by_root) out.push_back(std::move(list));
    return out;
  }

  Result<Picks> by_components() {
    const auto width = static_cast<std::size_t>(effort_.beam);
    Picks all;
    for (const auto& component : components()) {
      // Every combination while there are at most 64; beyond, the best `width` prefixes.
      struct State {
        Picks picks;
        double sum;
      };
      std::vector<State> beam{{{}, total(base_)}};
      const bool exact = component.size() <= 6;
      for (const Effect* e : component) {
        std::vector<State> next = beam;
        for (const State& s : beam) {
          if (s.picks.contains(e->choice)) continue;
          Picks trial = s.picks;
          trial[e->choice] = e->candidate;
          OCTAVO_TRY(const auto found, evaluate(trial));
          if (found) next.push_back({std::move(trial), found->second});
        }
        std::stable_sort(next.begin(), next.end(), [](const State& a, const State& b) { return a.sum < b.sum; });
        if (!exact && next.size() > width) next.resize(width);
        beam = std::move(next);
      }
      double touched = 0;
      for (const Effect* e : component) {
        if (beam[0].picks.contains(e->choice)) touched = std::max(touched, e->before());
      }
      if (total(base_) - beam[0].sum > touched * (1 - kPart)) all.insert(beam[0].picks.begin(), beam[0].picks.end());
    }
    return all;
  }

  void report(Searched& out, const Picks& picks) const {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      region::Decision d;
      d.choice = choice.name;
      d.where = choice.where;
      d.onnx_nodes = choice.onnx_nodes;
      std::map<std::string, double> touched;
      for (const Effect& e : effects_) {
        if (e.choice == i) touched.insert(e.removed.begin(), e.removed.end());
      }
      double before = 0;
      for (const auto& [id, s] : touched) before += s;
      d.candidates.push_back({choice.candidates[0].name, touched.empty() ? -1 : before, choice.candidates[0].notes});
      d.reasons = {because<cause::not_priced>()};
      for (const Effect& e : effects_) {
        if (e.choice != i) continue;
        region::Decision::Candidate c{choice.candidates[e.candidate].name, -1, choice.candidates[e.candidate].notes};
        if (e.impossible.empty()) {
          c.seconds = before - e.before() + e.added;
          d.reasons = {!e.pays() ? because<cause::not_cheaper>(kPartPercent) : because<cause::cheaper_alone_only>()};
        } else {
          d.reasons = c.notes = e.impossible;
        }
        d.candidates.push_back(std::move(c));
      }
      if (const auto pick = picks.find(i); pick != picks.end()) {
        d.chosen = pick->second;
        d.reasons = {because<cause::cheapest>(kPartPercent)};
      }
      out.decisions.push_back(std::move(d));
    }
  }

  const ir::Graph& g_;
  const PlanContext& context_;
  const PlanOptions& options_;
  const Effort& effort_;
  Pricer pricer_;
  Selection defaults_;
  Items base_;
  std::vector<Choice> choices_;
  std::vector<Effect> effects_;
  Reasons last_problem_{because<cause::no_effect>()};
};

}  // namespace

OCTAVO_DEFINE_OUT_OF_LINE(Searched);

Result<Searched> search(const ir::Graph& normalized, const PlanContext& context) {
  return Search(normalized, context).run();
}

}  // namespace octavo::plan
