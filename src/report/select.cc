#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "report/explain.h"

namespace octavo::report {
namespace {

using region::Region;

template <class Visit>
void for_each_ref(const Region& region, Visit visit) {
  for (const auto& stage : region.stages) {
    for (const auto& ref : stage.anchor.inputs) visit(ref);
    if (stage.anchor.weights) visit(*stage.anchor.weights);
    for (const auto& operand : stage.operands) visit(operand.ref);
    for (const auto& ref : stage.stores) visit(ref);
  }
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> nearest(const std::set<std::string>& names, std::string_view wanted) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const auto& name : names) {
    const bool inside = name.find(wanted) != std::string::npos;
    ranked.emplace_back(inside ? 0 : 1 + edit_distance(name, wanted), name);
  }
  std::ranges::sort(ranked);
  std::vector<std::string> out;
  for (const auto& [distance, name] : ranked) {
    if (out.size() < 3) out.push_back(fmt::format("\"{}\"", name));
  }
  return out;
}

Result<std::vector<std::size_t>> select(const region::Plan& plan, const Filter& filter) {
  std::set<std::string> regions, tensors, nodes;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& region = plan.regions[i];
    regions.insert(region.name);
    nodes.insert(region.onnx_nodes.begin(), region.onnx_nodes.end());
    bool has_tensor = filter.tensor.empty();
    for_each_ref(region, [&](const region::TensorRef& ref) {
      if (!ref.value.empty()) tensors.insert(ref.value);
      has_tensor = has_tensor || ref.value == filter.tensor;
    });
    const bool named = filter.region.empty() || region.name == filter.region || fmt::format("{}", i) == filter.region;
    if (named && has_tensor && (filter.node.empty() || region.onnx_nodes.contains(filter.node))) chosen.push_back(i);
  }
  if (!chosen.empty() || filter.empty()) return chosen;

  const auto missing = [&](std::string_view what, const std::string& wanted,
                           const std::set<std::string>& names) -> tl::unexpected<Error> {
    return fail(ErrorKind::usage,
                fmt::format("the plan of \"{}\" has no {} \"{}\"\n  nearest: {}\n  list all: octavo explain MODEL", plan.model_name,
                            what, wanted, fmt::join(nearest(names, wanted), ", ")));
  };
  if (!filter.node.empty() && !nodes.contains(filter.node)) return missing("ONNX node", filter.node, nodes);
  if (!filter.tensor.empty() && !tensors.contains(filter.tensor)) return missing("tensor", filter.tensor, tensors);
  if (!filter.region.empty() && !regions.contains(filter.region)) return missing("region", filter.region, regions);
  return fail(ErrorKind::usage, fmt::format("no region of \"{}\" meets all of --region, --tensor and --node", plan.model_name));
}

}  // namespace octavo::report
