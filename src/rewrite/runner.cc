#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "ir/text.h"
#include "ir/verify.h"
#include "rewrite/rule.h"

namespace octavo::rewrite {
namespace {

using Clock = std::chrono::steady_clock;

/// The rules do not come to rest: names the ones applied most recently, which undo each other.
Error endless(const ir::Graph& g, const std::deque<std::string>& recent, std::int64_t applications) {
  std::map<std::string, int> counts;
  for (const std::string& entry : recent) ++counts[entry];
  std::string list;
  for (const auto& [entry, times] : counts) list += fmt::format("{}{} ({} times)", list.empty() ? "" : ", ", entry, times);
  return {
      ErrorKind::internal,
      fmt::format("rewriting graph \"{}\": still changing after {} applications; in the last {}: {}. These rules undo each other; "
                  "disable one (--disable=NAME) and report this",
                  g.name, applications, recent.size(), list)};
}

/// The graph notes edits in this scope.
struct Noting {
  ir::Graph& graph;
  explicit Noting(ir::Graph& g) : graph(g) { graph.note_edits(true); }
  ~Noting() { graph.note_edits(false); }
  Noting(const Noting&) = delete;
  Noting& operator=(const Noting&) = delete;
};

/// Compares what `settle` and `update_grids` keep up to date with the same found anew.
Status check_upkeep(const ir::Graph& g, const ir::Grids& grids) {
  ir::Graph fresh = g;
  fresh.note_edits(false);
  fresh.touch();
  for (ir::ValueId v = 0; v < g.value_capacity(); ++v) {
    if (g.users(v) != fresh.users(v)) return fail(ErrorKind::internal, fmt::format("readers of value {} are out of date", v));
  }
  if (fresh.remove_dead() > 0) return fail(ErrorKind::internal, "nodes that nothing reads are left");
  if (grids.of != ir::find_grids(g).of) return fail(ErrorKind::internal, "grids are out of date");
  return {};
}

class Runner {
 public:
  Runner(ir::Graph& g, const std::vector<const Rule*>& rules, const RunOptions& options)
      : g_(g), seen_(g), rules_(rules), options_(options) {}

  Result<RunReport> run() {
    OCTAVO_CHECK(check_names());
    for (const Rule* rule : rules_) {
      report_.stats.push_back({std::string(rule->name()), 0, 0, 0});
      enabled_.push_back(!options_.disabled.contains(rule->name()));
    }
    // Each law lowers a measure of the graph, so a run ends long before this: it catches rules that undo each other.
    limit_ = 1000 + 200 * static_cast<std::int64_t>(seen_.order().size());
    const Noting noting{g_};
    grids_ = ir::find_grids(seen_);
    for (bool changed = true; changed;) {
      OCTAVO_TRY(changed, sweep());
    }
    for (auto& [key, entry] : refusals_) {
      if (!alive(key.first)) continue;  // the reason died with its node
      ++report_.stats[key.second].refused;
      report_.refusals.push_back(std::move(entry));
    }
    return std::move(report_);
  }

 private:
  Status check_names() const {
    for (const std::string& name : options_.disabled) {
      if (std::any_of(rules_.begin(), rules_.end(), [&](const Rule* r) { return r->name() == name; })) continue;
      std::string known;
      for (const Rule* r : rules_) known += fmt::format("{}{}", known.empty() ? "" : ", ", r->name());
      return fail(ErrorKind::usage, fmt::format("disabling rule \"{}\": there is no such rule; the rules are: {}", name, known));
    }
    return {};
  }

  /// Every rule at every live node once, producers first; nodes that a rule adds are visited by the next sweep.
  Result<bool> sweep() {
    bool changed = false;
    read_ = Clock::now();
    for (const ir::NodeId id : seen_.order()) {
      for (std::size_t r = 0; r < rules_.size() && alive(id); ++r) {
        if (!enabled_[r]) continue;
        OCTAVO_TRY(const bool applied, attempt(r, id));
        changed = changed || applied;
      }
    }
    return changed;
  }

  bool alive(ir::NodeId id) const { return !seen_.node(id).dead; }

  Result<bool> attempt(std::size_t r, ir::NodeId id) {
    const Rule& rule = *rules_[r];
    Outcome outcome = rule.apply(g_, id, grids_);
    RuleStats& stats = report_.stats[r];
    const auto now = Clock::now();  // once an attempt: most take less time than to read it
    stats.seconds += std::chrono::duration<double>(now - std::exchange(read_, now)).count();
    const auto key = std::pair(id, r);
    if (outcome.kind != Outcome::Kind::applied) g_.drop_edits();
    switch (outcome.kind) {
      case Outcome::Kind::no_match: refusals_.erase(key); return false;
      case Outcome::Kind::refused: {
        const ir::Node& n = seen_.node(id);
        refusals_.insert_or_assign(key, LogEntry{std::string(rule.name()), describe(id), n.origin, std::move(outcome.reason)});
        return false;
      }
      case Outcome::Kind::applied: break;
    }
    refusals_.erase(key);
    ++stats.applied;
    report_.applied.push_back(log(rule, id));
    ir::update_grids(seen_, g_.settle(), grids_);
    read_ = Clock::now();
    recent_.push_back(fmt::format("{} at {}", rule.name(), ir::name_of(seen_.node(id).op)));
    if (recent_.size() > 32) recent_.pop_front();
    if (++applications_ > limit_) return tl::unexpected<Error>(endless(g_, recent_, applications_));
#ifdef NDEBUG
    const bool check = options_.verify;
#else
    const bool check = true;
#endif
    if (check) {
      Status status = ir::verify(seen_);
      if (status) status = check_upkeep(seen_, grids_);
      if (!status) {
        return fail(ErrorKind::internal,
                    fmt::format("after rule {} ({}): {}", rule.name(), rule.equation(), status.error().message));
      }
    }
    if (options_.dump) options_.dump(rule.name(), ir::print(g_, {.full_constants = false}));
    return true;
  }

  std::string describe(ir::NodeId id) const {
    const ir::Node& n = seen_.node(id);
    const std::string& name = n.name.empty() ? seen_.value(n.outputs[0]).name : n.name;
    return name.empty() ? fmt::format("{} #{}", ir::name_of(n.op), id) : name;
  }

  /// The node that a rule just replaced: still as it was, but for rules that edit in place.
  LogEntry log(const Rule& rule, ir::NodeId id) const {
    const ir::Node& n = seen_.node(id);
    LogEntry entry{std::string(rule.name()), describe(id), n.origin};
    entry.op = ir::name_of(n.op);
    if (n.quantizer)
      entry.quantizer = n.quantizer->entries() <= 2 ? ir::to_string(*n.quantizer)
                                                    : fmt::format("{}[axis={}, {} scales]", ir::name_of(n.quantizer->type),
                                                                  n.quantizer->axis, n.quantizer->entries());
    if (n.inputs.empty() || n.inputs[0] == ir::kNone) return entry;
    const ir::NodeId below = seen_.value(n.inputs[0]).producer;
    entry.operand_op = ir::name_of(seen_.node(below).op);
    entry.operand = describe(below);
    entry.origin.insert(seen_.node(below).origin.begin(), seen_.node(below).origin.end());
    return entry;
  }

  ir::Graph& g_;
  const ir::Graph& seen_;  ///< the same: what is only read must not be noted
  const std::vector<const Rule*>& rules_;
  const RunOptions& options_;
  RunReport report_;
  ir::Grids grids_;
  std::vector<bool> enabled_;                                        ///< of each rule
  Clock::time_point read_;                                           ///< when the clock was read last
  std::map<std::pair<ir::NodeId, std::size_t>, LogEntry> refusals_;  ///< the last refusal of each rule at each node
  std::deque<std::string> recent_;
  std::int64_t applications_ = 0, limit_ = 0;
};

}  // namespace

Result<RunReport> run(ir::Graph& g, const std::vector<const Rule*>& rules, const RunOptions& options) {
  return Runner(g, rules, options).run();
}

}  // namespace octavo::rewrite
