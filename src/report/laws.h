// What the laws and rules did to a part of a model, and which Q/DQ nodes gave a tensor its grid: for `explain` of a model (an
// engine file keeps neither its graph nor what happened to it).
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
/// What concerns these ONNX nodes; empty `nodes`: everything.
[[nodiscard]] LawLog laws_at(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes);

/// Every rule that was applied where one of these ONNX nodes took part, in order, with its equation; then what was refused there
/// and why. Empty `nodes`: all of them. One line says so when there were none.
[[nodiscard]] std::string law_log(const std::vector<rewrite::RunReport>& reports, const std::set<std::string>& nodes);

/// Names of the ONNX nodes that are QuantizeLinear or DequantizeLinear (or the like) in the graph as imported.
[[nodiscard]] std::set<std::string> quantizing_nodes(const ir::Graph& imported);

/// Where a tensor got its grid from.
struct GridOrigin {
  std::string text;  ///< "grid u8(0.02,0) from pool_q, pool_dq", a line each; empty: neither graph has a tensor of this name
  std::set<std::string> quantizing;  ///< the Q/DQ nodes that the text names
  std::set<std::string> makers;      ///< ONNX nodes that make the tensor
};
/// A tensor of the normalized graph: the Q/DQ nodes whose views reach it. One that only the imported graph has: the pairs behind
/// it. A tensor without any says so.
[[nodiscard]] GridOrigin grid_of(const ir::Graph& imported, const ir::Graph& normalized, const std::string& tensor);

/// What became of a tensor that the imported graph has and the normalized one has not: the last rule that was applied to the node
/// that made it, and the tensors that its ONNX nodes make now. Two lines at most; empty when the tensor is still there, or never
/// was.
[[nodiscard]] std::string fate_of(const ir::Graph& imported, const ir::Graph& normalized,
                                  const std::vector<rewrite::RunReport>& reports, const std::string& tensor);

}  // namespace octavo::report
