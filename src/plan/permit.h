// Implicit quantization: ranges permit int8, and this pass decides where it is used: at the borders between regions, nowhere else.
//
// A value with a range may be read through an s8 view of its scale. A view inside an epilogue would only add a rounding, so views
// are put on edges that leave a region: the data of convolutions and products (whose constant weights become int8 per output
// channel), operands of other regions' epilogues, pooling. Ranges travel forward through operators that move or select elements.
// What has no range stays float, and its name is the reason. After this pass a network with permitted views is an ordinary one: the
// laws, the questions and the plan are those of the same network with Q/DQ on the same tensors.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"

namespace octavo::plan {

struct PermitReport {
  std::map<std::string, std::string> why_float;  ///< ONNX node of an anchor -> why it stays float
  std::set<std::string> permitted;               ///< ONNX nodes of anchors that became int8
  std::vector<std::string> unmatched;            ///< names of ranges that no tensor has
  std::vector<std::string> missing;              ///< tensors read by weighted operators without a range
};

/// Writes the ranges onto the values they name (Value::range). Call on the imported graph: later passes rename and merge values.
[[nodiscard]] std::vector<std::string> set_ranges(ir::Graph& g, const std::map<std::string, float>& ranges);

/// Inserts the views. `keep_float`: ONNX node names of weighted operators that are to stay float (asked by the search). Errors:
/// `usage` when a rule of options.precisions contradicts a demanded view or asks int8 of a tensor without a range.
[[nodiscard]] Result<PermitReport> permit(ir::Graph& g, const PlanOptions& options, const std::set<std::string>& keep_float = {});

}  // namespace octavo::plan
