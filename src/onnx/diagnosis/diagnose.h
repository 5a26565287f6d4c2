// Doubtful numbers of a model, which `octavo doctor` lists and a build warns of. The diagnosis reads the file itself, so that models
// that import refuses are diagnosed too (docs/doctor.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "onnx/model/parsed.h"

namespace octavo::onnx {

struct Finding {
  enum class Severity { warning, error };  ///< error: import refuses the model for it
  Severity severity = Severity::warning;
  std::string rule;                ///< "scale", "bias-overflow", ... (docs/doctor.md)
  std::string tensor;              ///< the ONNX tensor it is about
  std::vector<std::string> nodes;  ///< ONNX nodes that read it, as import names them
  std::string text;                ///< the fact with its numbers, and the way out; without the tensor's name in front
};
/// "error [scale] tensor "s" (conv1): is 0; ..."
[[nodiscard]] std::string to_string(const Finding& f);

/// One ONNX node of the top-level graph, functions inlined, in the file's order.
struct NodeName {
  std::string name, op;  ///< as import names it: the node's name, or "Type_index"
};

struct Diagnosis {
  std::vector<Finding> findings;  ///< errors first, then in the order of the nodes
  std::vector<NodeName> nodes;
};

struct DiagnoseOptions {
  ir::Ranges ranges;      ///< of a calibration table
  std::string algorithm;  ///< the table's: "EntropyCalibration2", or "" for JSON
  ir::Ranges minmax;      ///< a second table of the same model, made by MinMax: to compare with; may be empty
};

/// Scales that are not positive, not finite or denormal; scales that do not fit their axis; int32 biases and accumulators that
/// overflow; biases shared by operators of different scale; weights outside of the range of their codes; scales along an axis that
/// looks wrong; and of a table: unusable, saturating, and entropy ranges that are min-max. Nodes that no output needs are left out;
/// so are the insides of branches (If, Loop). Never throws, whatever the model is. Errors: bad_model.
[[nodiscard]] Result<Diagnosis> diagnose(const Parsed& model, const DiagnoseOptions& options = {});

}  // namespace octavo::onnx
