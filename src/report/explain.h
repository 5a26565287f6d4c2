// The plan as text and as JSON: the regions with their ONNX nodes, precisions, tactics and reasons.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/family.h"
#include "region/region.h"

namespace octavo::report {

struct LawLog;  // report/laws.h

/// Which regions to show. Empty: all. A region is shown if it meets every field that is set.
struct Filter {
  std::string region{};  ///< its name, or its number as printed
  std::string tensor{};  ///< a tensor that it reads or stores
  std::string node{};    ///< an ONNX node that it stands for
  [[nodiscard]] bool empty() const { return region.empty() && tensor.empty() && node.empty(); }
};

/// Indices of the regions that the filter admits. Fails with `usage` when there is none, naming the nearest names.
[[nodiscard]] Result<std::vector<std::size_t>> select(const region::Plan& plan, const Filter& filter);

/// One line for each region (number, precision, tactic, ONNX nodes, reason), and the totals. "conv1 + relu1 (+4)": four more nodes, mostly Q/DQ,
/// are part of it; `details` lists them.
[[nodiscard]] std::string table(const region::Plan& plan);
/// What the parameters of a tactic mean, those of its parts apart (region::Provider::parameters_of).
using Meanings = std::function<std::vector<region::ParameterRow>(const region::Tactic&)>;
/// Everything about the given regions: nodes, tensors with types and scales, programs, costs, the parameters of the tactic with their
/// meaning, and each alternative with its refusal.
[[nodiscard]] std::string details(const region::Plan& plan, const std::vector<std::size_t>& regions, const Meanings& meanings);
/// The same as JSON, with the totals; keys sorted, the same text for the same plan. `plan_hash`: the engine's (its plan has no
/// constants left to hash). `laws`: the applied rules; null if they were not kept (engine files). `built_by`: as report::document.
[[nodiscard]] std::string to_json(const region::Plan& plan, const std::string& plan_hash, const std::vector<std::size_t>& regions,
                                  const LawLog* laws = nullptr, const std::string& built_by = {});
/// A quantizer: in full if it has few entries, otherwise the range of its scales.
[[nodiscard]] std::string brief(const ir::Quantizer& q);
/// The totals in two lines.
[[nodiscard]] std::string summary(const region::Plan& plan);

}  // namespace octavo::report
