#include "report/laws.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ir/grid.h"
#include "passes/passes.h"
#include "quant/normal_form.h"
#include "report/explain.h"
#include "report/sentences.h"

namespace octavo::report {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

bool quantizes(Op op) {
  return op == Op::view || op == Op::quantize || op == Op::dequantize || op == Op::quantize_rt || op == Op::dequantize_rt;
}

bool concerns(const rewrite::LogEntry& entry, const std::set<std::string>& nodes) {
  return nodes.empty() || std::any_of(entry.origin.begin(), entry.origin.end(), [&](const auto& n) { return nodes.contains(n); });
}

std::string equation_of(const std::string& rule) {
  for (const auto* list : {&quant::laws(), &passes::float_rules()}) {
    for (const rewrite::Rule* r : *list) {
      if (r->name() == rule) return std::string(r->equation());
    }
  }
  return "";
}

std::string listed(const std::set<std::string>& names) {
  constexpr std::size_t kMost = 8;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  std::vector<std::string> some(names.begin(), std::next(names.begin(), kMost));
  return fmt::format("{} and {} more", fmt::join(some, ", "), names.size() - kMost);
}

/// The quantizing ONNX nodes whose labels reach v: those of the first views and codes found towards the inputs.
void sources(const Graph& g, ValueId v, const std::set<std::string>& quantizing, std::set<ValueId>& seen,
             std::set<std::string>& out) {
  if (!seen.insert(v).second) return;
  const Node& n = g.producer(v);
  if (quantizes(n.op) || n.op == Op::constant) {
    std::set<std::string> origin = n.origin;
    if (n.op == Op::constant) {  // the pair of a constant is kept by its readers
      for (const auto& [user, slot] : g.users(v)) origin.insert(g.node(user).origin.begin(), g.node(user).origin.end());
    }
    std::set_intersection(origin.begin(), origin.end(), quantizing.begin(), quantizing.end(), std::inserter(out, out.end()));
    return;
  }
  for (const ValueId in : n.inputs) {
    if (in != ir::kNone) sources(g, in, quantizing, seen, out);
  }
}

/// Pairs written behind a tensor of the imported graph, through operators that move.
void pairs_behind(const Graph& g, ValueId v, std::set<ValueId>& seen, std::set<std::string>& out) {
  if (!seen.insert(v).second) return;
  for (const auto& [user, slot] : g.users(v)) {
    const Node& n = g.node(user);
    if (quantizes(n.op)) {
      out.insert(n.origin.begin(), n.origin.end());
    } else if (!ir::has_trait(n.op, ir::kMove) && n.op != Op::relu && n.op != Op::clip) {
      continue;
    }
    if (n.op != Op::dequantize) {
      for (const ValueId o : n.outputs) pairs_behind(g, o, seen, out);
    }
  }
}

}  // namespace

LawLog laws_at(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes) {
  LawLog out;
  std::map<std::string, std::string> equations;
  std::set<std::tuple<std::string, std::string, std::string>> said;  // rule, node, sentence
  for (const rewrite::RunReport& report : reports) {
    for (const rewrite::LogEntry& e : report.applied) {
      if (!concerns(e, nodes)) continue;
      auto [equation, fresh] = equations.try_emplace(e.rule);
      if (fresh) equation->second = equation_of(e.rule);
      out.applied.push_back({e.rule, equation->second, e.op, e.quantizer, e.operand_op, e.operand, e.origin});
    }
    for (const rewrite::LogEntry& e : report.refusals) {
      if (concerns(e, nodes) && said.emplace(e.rule, e.node, sentence(*e.refusal)).second)
        out.refused.push_back({e.rule, e.node, *e.refusal});
    }
  }
  return out;
}

std::string place_of(const LawLog::Applied& applied) {
  std::string out = applied.op;
  if (!applied.quantizer.empty()) out += " " + applied.quantizer;
  if (!applied.operand_op.empty()) out += fmt::format(" of {} \"{}\"", applied.operand_op, applied.operand);
  return out;
}

std::string law_log(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes) {
  const LawLog log = laws_at(reports, nodes);
  std::string out, where, refusals;
  std::set<std::string> used;
  int count = 0;
  for (const LawLog::Applied& a : log.applied) {
    out += fmt::format("  {:>4}  {:<24}  {} [{}]\n", ++count, a.rule, place_of(a), listed(a.onnx_nodes));
    if (used.insert(a.rule).second) where += fmt::format("        {:<24}  {}\n", a.rule, a.equation);
  }
  for (const LawLog::Refused& r : log.refused) refusals += fmt::format("  {} at \"{}\": {}\n", r.rule, r.node, sentence(r.reason));
  if (count == 0) {
    out = "laws and rules: none applied here\n";
  } else {
    out = fmt::format("laws and rules, {} applied in this order (docs/rules.md):\n{}  where\n{}", count, out, where);
  }
  if (!refusals.empty()) out += "refused:\n" + refusals;
  return out;
}

std::set<std::string> quantizing_nodes(const Graph& imported) {
  std::set<std::string> out;
  for (const NodeId id : imported.order()) {
    const Node& n = imported.node(id);
    if (quantizes(n.op)) out.insert(n.origin.begin(), n.origin.end());
    if (n.op == Op::constant && n.quantizer) out.insert(n.origin.begin(), n.origin.end());
  }
  return out;
}

GridOrigin grid_of(const Graph& imported, const Graph& normalized, const std::string& tensor) {
  const std::set<std::string> quantizing = quantizing_nodes(imported);
  const ir::Grids grids = ir::find_grids(normalized);
  GridOrigin out;
  bool known = false;
  for (const NodeId id : normalized.order()) {
    for (const ValueId v : normalized.node(id).outputs) {
      if (normalized.value(v).name != tensor) continue;
      known = true;
      out.makers.insert(normalized.node(id).origin.begin(), normalized.node(id).origin.end());
      const ir::Quantizer* q = grids.get(v);
      if (q == nullptr) continue;
      std::set<ValueId> seen;
      std::set<std::string> from;
      sources(normalized, v, quantizing, seen, from);
      out.text += fmt::format("  grid {} from {}\n", brief(*q),
                              from.empty() ? std::string("a range (docs/implicit.md) or an input's binding") : listed(from));
      out.quantizing.merge(from);
    }
  }
  if (!out.text.empty()) return out;
  for (const NodeId id : imported.order()) {
    for (const ValueId v : imported.node(id).outputs) {
      if (imported.value(v).name != tensor) continue;
      known = true;
      out.makers.insert(imported.node(id).origin.begin(), imported.node(id).origin.end());
      std::set<ValueId> seen;
      std::set<std::string> pairs;
      pairs_behind(imported, v, seen, pairs);
      if (!pairs.empty()) out.text += fmt::format("  read through {}\n", listed(pairs));
      out.quantizing.merge(pairs);
    }
  }
  if (out.text.empty() && known) out.text = "  no Q/DQ pair and no range gives it a grid: it is read as float\n";
  return out;
}

std::string fate_of(const Graph& imported, const Graph& normalized, const std::vector<rewrite::RunReport>& reports,
                    const std::string& tensor) {
  const auto has = [&](const Graph& g, NodeId id) {
    const auto& outputs = g.node(id).outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return g.value(v).name == tensor; });
  };
  for (const NodeId id : normalized.order()) {
    if (has(normalized, id)) return "";
  }
  std::set<std::string> makers;
  for (const NodeId id : imported.order()) {
    if (has(imported, id)) makers.insert(imported.node(id).origin.begin(), imported.node(id).origin.end());
  }
  if (makers.empty()) return "";
  const rewrite::LogEntry* last = nullptr;
  for (const rewrite::RunReport& report : reports) {
    for (const rewrite::LogEntry& e : report.applied) {
      const bool own = e.node == tensor || makers.contains(e.node) || e.operand == tensor;
      if (own || (last == nullptr && concerns(e, makers))) last = &e;
    }
  }
  std::string out;
  if (last != nullptr) out = fmt::format("  removed by {}: {}\n", last->rule, equation_of(last->rule));
  std::set<std::string> now;
  for (const NodeId id : normalized.order()) {
    const Node& n = normalized.node(id);
    if (n.op == Op::constant || !std::any_of(n.origin.begin(), n.origin.end(), [&](const auto& o) { return makers.contains(o); }))
      continue;
    for (const ValueId v : n.outputs) {
      if (!normalized.value(v).name.empty()) now.insert(fmt::format("\"{}\" ({})", normalized.value(v).name, ir::name_of(n.op)));
    }
  }
  if (!now.empty()) out += fmt::format("  went into {}\n", listed(now));
  return out;
}

}  // namespace octavo::report
