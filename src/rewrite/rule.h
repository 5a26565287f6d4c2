// Rules and the one runner that applies them: order, on/off by name, timing, verifying, dumping, and a reason for every refusal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::rewrite {

/// The outcome of a rule at one node. `no_match`: the rule does not apply to this kind of node (silent). `refused`: it does, but a condition fails.
struct Outcome {
  enum class Kind { no_match, refused, applied } kind = Kind::no_match;
  std::optional<Reason> reason;  ///< refused: the condition that failed, with the values
};
[[nodiscard]] inline Outcome no_match() {
  return {};
}
[[nodiscard]] inline Outcome applied() {
  return {Outcome::Kind::applied, std::nullopt};
}
[[nodiscard]] inline Outcome refuse(Reason reason) {
  return {Outcome::Kind::refused, std::move(reason)};
}

/// One rewrite: one file `<module>/rules/<name with _>.cc`, one text test `tests/<module>/rules/<name with _>.irt`, one row in docs/rules.md,
/// one switch `--disable=<name>`. The file opens with: equation, Why, Exact, Needs, Order.
class Rule {
 public:
  virtual ~Rule() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;      ///< "move-view-transpose"
  [[nodiscard]] virtual std::string_view equation() const = 0;  ///< "q(transpose(x)) ==> transpose(q(x))"
  [[nodiscard]] virtual bool exact() const { return true; }     ///< bit for bit in the reference
  /// Tries the rule at `node` (its result may be replaced, users redirected). `grids` is current for this graph state.
  [[nodiscard]] virtual Outcome apply(ir::Graph& g, ir::NodeId node, const ir::Grids& grids) const = 0;
};

/// What one rule did at one node. `origin`: the ONNX nodes of the node; of an applied rule those of its first operand too.
struct LogEntry {
  std::string rule, node;
  std::set<std::string> origin;
  std::optional<Reason> refusal = {};  ///< the condition that failed; nothing where the rule was applied
  /// Where it was applied: the operator, its quantizer if it has one ("u8(0.02,0)"), and the first operand's operator and name.
  std::string op = {}, quantizer = {}, operand_op = {}, operand = {};
};
struct RuleStats {
  std::string rule;
  int applied = 0, refused = 0;
  double seconds = 0;
};
struct RunOptions {
  std::set<std::string, std::less<>> disabled{};  ///< rule names
  bool verify = false;                            ///< after every application (debug builds: always)
  std::function<void(std::string_view rule, const std::string& graph_text)> dump{};  ///< called when a rule changed the graph
};
struct RunReport {
  std::vector<RuleStats> stats;
  std::vector<LogEntry> refusals;  ///< last reason for each (rule, node)
  std::vector<LogEntry> applied;   ///< in the order in which they happened
};

/// Applies the rules to a fixed point: all nodes in order, rules in list order, until nothing changes. An unknown name in `disabled` is an error.
[[nodiscard]] Result<RunReport> run(ir::Graph& g, const std::vector<const Rule*>& rules, const RunOptions& options);

}  // namespace octavo::rewrite
