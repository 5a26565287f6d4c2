// The counts that data decide, as outputs behind those of the model: regions behind them compute only so many elements (region/counted.h).
#include <utility>

#include "ir/output_sizes.h"
#include "onnx/import/importer.h"

namespace octavo::onnx {

// Only counts that the model computes anyway.
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
