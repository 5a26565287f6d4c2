// The counts that data decide, as outputs behind those of the model: regions behind them compute only so many elements (region/counted.h). Conditions are counts of 1 or 0.
#include <set>
#include <utility>

#include "ir/output_sizes.h"
#include "onnx/import/importer.h"

namespace octavo::onnx {

// Only counts that the model computes anyway. A condition that is "not" of another one is published as such, so that the planner finds both.
void Importer::publish_counts(std::map<ValueId, int>& counts) {
  ir::Graph& g = graph();
  std::vector<char> needed(static_cast<std::size_t>(g.value_capacity()), 0);
  std::vector<ValueId> open_values(g.outputs);
  while (!open_values.empty()) {
    const ValueId v = open_values.back();
    open_values.pop_back();
    if (v == ir::kNone || std::exchange(needed[static_cast<std::size_t>(v)], 1) != 0) continue;
    for (const ValueId in : g.producer(v).inputs) open_values.push_back(in);
  }
  std::map<ValueId, std::int64_t> numbers;
  for (ValueId v = 0; v < g.value_capacity(); ++v) {
    if (needed[static_cast<std::size_t>(v)] == 0) continue;
    for (const auto& [axis, count] : sizes_.extents(v)) {
      if (needed[static_cast<std::size_t>(count)] == 0 || g.is_constant(count)) continue;
      const auto number = static_cast<std::int64_t>(numbers.size());
      if (!numbers.emplace(count, number).second) continue;
      const auto [at, fresh] = counts.emplace(count, static_cast<int>(g.outputs.size()));
      if (fresh) {
        g.outputs.push_back(count);
        g.output_names.push_back(fmt::format("size that {} decides", sizes_.source(g, count)));
      }
      g.sizes.push_back(ir::counter_of(static_cast<int>(number), at->second));
    }
  }
  auto next = static_cast<int>(numbers.size());
  std::set<std::pair<ValueId, bool>> published;
  for (const Sizes::Condition& c : sizes_.conditions) {
    if (needed[static_cast<std::size_t>(c.value)] == 0 || g.is_constant(c.value)) continue;
    std::set<std::string> origin = g.producer(c.value).origin;
    if (origin.empty()) {  // an input
      for (const auto& [user, slot] : g.users(c.value)) origin.insert(g.node(user).origin.begin(), g.node(user).origin.end());
    }
    if (origin.empty()) continue;  // nothing is selected by it
    for (const bool holds : {true, false}) {
      if ((!holds && !c.both) || !published.emplace(c.value, holds).second) continue;
      const ValueId flag = holds ? c.value : ir::add_inferred(g, Op::logical_not, {c.value}, {}, origin);
      const ValueId count = ir::add_inferred(g, Op::cast, {flag}, {{"to", std::string(ir::name_of(DType::s64))}}, origin);
      g.sizes.push_back(ir::counter_of(next++, static_cast<int>(g.outputs.size())));
      g.outputs.push_back(count);
      const std::string& name = g.value(c.value).name;
      g.output_names.push_back(fmt::format("{}condition {}", holds ? "" : "not ",
                                           name.empty() ? fmt::format("{} of {}", published.size(), *origin.begin()) : name));
    }
  }
  for (ir::NodeId id = 0; id < g.node_capacity(); ++id) {  // until now they are the values' ids
    const auto said = g.node(id).attrs.find(ir::kCounted);
    if (said == g.node(id).attrs.end()) continue;
    Ints list = std::get<Ints>(said->second);
    for (std::int64_t& v : list) {
      const auto number = numbers.find(static_cast<ValueId>(v));
      v = number == numbers.end() ? -1 : number->second;
    }
    said->second = std::move(list);
  }
}

}  // namespace octavo::onnx
