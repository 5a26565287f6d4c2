// The laws and rules that were applied to a part of a model, and the Q/DQ nodes that gave a tensor its grid: for `explain` of a model (an
// engine file keeps neither its graph nor the applied rules).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "rewrite/rule.h"

namespace octavo::report {

struct LawLog {
  struct Applied {
    std::string rule, equation;
    std::string op, quantizer, operand_op, operand;  ///< where, as rewrite::LogEntry says
    std::set<std::string> onnx_nodes;
  };
  struct Refused {
    std::string rule, node;
    Reason reason;
  };
  std::vector<Applied> applied;  ///< in order
  std::vector<Refused> refused;  ///< each once, although a later pass asks again
};
/// "view u8(0.02,0) of relu \"y\"": where a rule was applied.
[[nodiscard]] std::string place_of(const LawLog::Applied& applied);
/// The part of the log about these ONNX nodes; empty `nodes`: everything.
[[nodiscard]] LawLog laws_at(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes);

/// Every rule that was applied to one of these ONNX nodes, in order, with its equation; then the rules that were refused there
/// and why. Empty `nodes`: all of them. If there were none, one line that says so.
[[nodiscard]] std::string law_log(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes);

/// Names of the ONNX nodes that are QuantizeLinear or DequantizeLinear (or the like) in the graph as imported.
[[nodiscard]] std::set<std::string> quantizing_nodes(const ir::Graph& imported);

/// Where a tensor got its grid from.
struct GridOrigin {
  std::string text;  ///< "grid u8(0.02,0) from pool_q, pool_dq", a line each; empty: neither graph has a tensor of this name
  std::set<std::string> quantizing;  ///< the Q/DQ nodes that the text names
  std::set<std::string> makers;      ///< ONNX nodes that make the tensor
};
/// For a tensor of the normalized graph: the Q/DQ nodes whose views reach it. For a tensor that only the imported graph has: the pairs behind
/// it. The text says if there are none.
[[nodiscard]] GridOrigin grid_of(const ir::Graph& imported, const ir::Graph& normalized, const std::string& tensor);

/// For a tensor that the imported graph has and the normalized graph does not have: the last rule that was applied to the node
/// that made it, and the tensors that its ONNX nodes make now. At most two lines; empty if the tensor still exists, or never
/// existed.
[[nodiscard]] std::string fate_of(const ir::Graph& imported, const ir::Graph& normalized,
                                  const std::vector<rewrite::RunReport>& reports, const std::string& tensor);

}  // namespace octavo::report
