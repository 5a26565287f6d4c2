#include "plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/task.h"
#include "plan/candidates/merge.h"
#include "plan/search/margins.h"
#include "plan/search/price.h"

namespace octavo::plan {
namespace {

using Items = std::vector<Pricer::Item>;

double total(const Items& items) {
  return std::accumulate(items.begin(), items.end(), 0.0, [](double t, const Pricer::Item& i) { return t + i.seconds; });
}

/// What an answer changes: regions of the default plan that go, and what comes for them.
struct Effect {
  std::size_t question = 0, answer = 0;
  std::map<std::string, double> removed;
  double added = 0;
  std::string impossible;
  [[nodiscard]] double before() const {
    double t = 0;
    for (const auto& [id, s] : removed) t += s;
    return t;
  }
  [[nodiscard]] double gain() const { return before() - added; }
  [[nodiscard]] bool pays() const { return impossible.empty() && added < before() * kPart; }
};

using Picks = std::map<std::size_t, std::size_t>;  // question -> answer

class Search {
 public:
  Search(const ir::Graph& g, const std::vector<const region::Provider*>& providers, const PlanOptions& options, Costs& costs)
      : g_(g), providers_(providers), options_(options), pricer_(providers, costs) {}

  Result<Searched> run() {
    Searched out;
    OCTAVO_TRY(auto unfused, realize(g_, {}, providers_, options_));
    defaults_.staged = find_default_stages(unfused.plan, options_);
    if (defaults_.staged.empty()) {
      out.defaults = std::move(unfused);
    } else {
      OCTAVO_TRY(out.defaults, realize(g_, defaults_, providers_, options_));
    }
    OCTAVO_CHECK(take_forced(out));
    out.default_choices = defaults_;
    if (options_.effort < 2) {
      out.best = out.defaults;
      return out;
    }
    OCTAVO_TRY(base_, pricer_.price(out.defaults.plan));
    out.default_seconds = out.best_seconds = total(base_);
    questions_ = find_questions(out.defaults, defaults_, options_);
    const std::size_t limit = options_.effort == 2 ? 96 : options_.effort == 3 ? 400 : questions_.size();
    for (std::size_t q = 0; q < std::min(limit, questions_.size()); ++q) {
      OCTAVO_CHECK(begin_step(fmt::format("plan: candidate {} of {}", q + 1, std::min(limit, questions_.size()))));
      for (std::size_t a = 1; a < questions_[q].answers.size(); ++a) OCTAVO_CHECK(price_alone(q, a));
    }
    OCTAVO_TRY(const Picks picks, options_.effort == 2 ? greedy() : by_components());
    OCTAVO_TRY(const auto found, evaluate(picks));
    out.changed = !picks.empty() && found && found->second < out.default_seconds;
    if (out.changed) {
      out.best_seconds = found->second;
      OCTAVO_TRY(out.best, realize(g_, chosen(picks), providers_, options_));
      for (const auto& [q, a] : picks) out.taken.push_back({questions_[q].kind, questions_[q].answers[a].apply});
    } else {
      out.best = out.defaults;
    }
    report(out, out.changed ? picks : Picks{});
    return out;
  }

 private:
  [[nodiscard]] Choices chosen(const Picks& picks) const {
    Choices c = defaults_;
    for (const auto& [q, a] : picks) questions_[q].answers[a].apply(c);
    return c;
  }

  /// The other answer of every question of the kinds that are asked for becomes the default. One that cannot be planned stays
  /// apart; stages and neighbours that no provider takes stay apart in `realize`, which says why.
  Status take_forced(Searched& out) {
    if (options_.forced.empty()) return {};
    PlanOptions open = options_;
    open.forced.clear();
    const Choices before = defaults_;
    for (const Question& q : find_questions(out.defaults, before, open)) {
      const bool already = q.kind == kStageOperand && q.answers.back().name == "two regions";  // by default
      if (!options_.forced.contains(q.kind) || already) continue;
      Choices trial = defaults_;
      q.answers.back().apply(trial);
      const bool possible = realize(g_, trial, providers_, options_).has_value();
      if (possible) defaults_ = std::move(trial);
      region::Decision d{q.kind, q.where,     q.answers[possible ? 1 : 0].name, possible ? "forced" : "forced, but not possible",
                         {},     q.onnx_nodes};
      for (const auto& a : q.answers) d.answers.push_back({a.name, -1, a.note});
      if (possible) std::swap(d.answers.front(), d.answers.back());  // it is the default now
      out.decisions.push_back(std::move(d));
    }
    OCTAVO_TRY(out.defaults, realize(g_, defaults_, providers_, options_));
    return {};
  }

  /// The items and their sum; nothing when this combination cannot be planned or run.
  Result<std::optional<std::pair<Items, double>>> evaluate(const Picks& picks) {
    auto made = realize(g_, chosen(picks), providers_, options_);
    if (!made) {
      last_problem_ = made.error().message;
      return std::nullopt;
    }
    auto items = pricer_.price(made->plan);
    if (!items) {
      if (items.error().kind != ErrorKind::unsupported)
        return tl::unexpected<Error>(items.error());  // a miss in strict mode, a bad pin
      last_problem_ = items.error().message;
      return std::nullopt;
    }
    last_problem_ = made->refusal.empty() ? "it does not change the plan: something else needs the tensor" : made->refusal;
    const double sum = total(*items);
    return std::pair{std::move(*items), sum};
  }

  Status price_alone(std::size_t q, std::size_t a) {
    Effect e;
    e.question = q;
    e.answer = a;
    OCTAVO_TRY(const auto found, evaluate({{q, a}}));
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
      if (picks.contains(e->question)) continue;
      Picks trial = picks;
      trial[e->question] = e->answer;
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
    const std::size_t width = options_.effort <= 3 ? 2 : options_.effort == 4 ? 4 : 8;
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
          if (s.picks.contains(e->question)) continue;
          Picks trial = s.picks;
          trial[e->question] = e->answer;
          OCTAVO_TRY(const auto found, evaluate(trial));
          if (found) next.push_back({std::move(trial), found->second});
        }
        std::stable_sort(next.begin(), next.end(), [](const State& a, const State& b) { return a.sum < b.sum; });
        if (!exact && next.size() > width) next.resize(width);
        beam = std::move(next);
      }
      double touched = 0;
      for (const Effect* e : component) {
        if (beam[0].picks.contains(e->question)) touched = std::max(touched, e->before());
      }
      if (total(base_) - beam[0].sum > touched * (1 - kPart)) all.insert(beam[0].picks.begin(), beam[0].picks.end());
    }
    return all;
  }

  void report(Searched& out, const Picks& picks) const {
    for (std::size_t q = 0; q < questions_.size(); ++q) {
      const Question& question = questions_[q];
      region::Decision d;
      d.kind = question.kind;
      d.where = question.where;
      d.onnx_nodes = question.onnx_nodes;
      std::map<std::string, double> touched;
      for (const Effect& e : effects_) {
        if (e.question == q) touched.insert(e.removed.begin(), e.removed.end());
      }
      double before = 0;
      for (const auto& [id, s] : touched) before += s;
      d.answers.push_back({question.answers[0].name, touched.empty() ? -1 : before, question.answers[0].note});
      std::string why = "not priced at this effort";
      for (const Effect& e : effects_) {
        if (e.question != q) continue;
        region::Decision::Answer a{question.answers[e.answer].name, -1, question.answers[e.answer].note};
        if (e.impossible.empty()) {
          a.seconds = before - e.before() + e.added;
          why = !e.pays() ? "not more than 2 % cheaper than the default" : "cheaper alone, but not beside what else was chosen";
        } else {
          a.note = why = "not possible: " + e.impossible;
        }
        d.answers.push_back(std::move(a));
      }
      const auto pick = picks.find(q);
      d.chosen = question.answers[pick == picks.end() ? 0 : pick->second].name;
      d.reason = pick == picks.end() ? why : "cheapest by more than 2 %";
      out.decisions.push_back(std::move(d));
    }
  }

  const ir::Graph& g_;
  const std::vector<const region::Provider*>& providers_;
  const PlanOptions& options_;
  Pricer pricer_;
  Choices defaults_;
  Items base_;
  std::vector<Question> questions_;
  std::vector<Effect> effects_;
  std::string last_problem_;
};

}  // namespace

Result<Searched> search(const ir::Graph& normalized, const std::vector<const region::Provider*>& providers,
                        const PlanOptions& options, Costs& costs) {
  return Search(normalized, providers, options, costs).run();
}

}  // namespace octavo::plan
