#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/nearest.h"
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

}  // namespace

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
