// Implicit quantization: ranges permit int8, and this pass decides where it is used: at the borders between regions, nowhere else.
//
// A value with a range may be read through a view of it: s8 around 0 from tables, or codes with a zero point. A view inside an epilogue would only add a rounding, so views
// are put on edges that leave a region: the data of convolutions and products (whose constant weights become int8 per output
// channel), operands of other regions' epilogues, pooling. Ranges travel forward through operators that move or select elements
// (a concatenation has the widest of its parts), relu and clip, and backwards through transpose and reshape.
// What has no range stays float, and its name is the reason. After this pass a network with permitted views is an ordinary one: the
// laws, the choices and the plan are those of the same network with Q/DQ on the same tensors.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "ir/graph.h"
#include "plan/candidates/magnitudes.h"
#include "plan/options.h"
#include "plan/precision/permit_pairs.h"

namespace octavo::plan {

struct PermitReport {
  std::map<std::string, Reason> why_float;  ///< ONNX node of an anchor -> why it stays float
  std::set<std::string> permitted;          ///< ONNX nodes of anchors that became int8
  std::set<std::string> demanded;           ///< ONNX nodes of anchors that the model's own Q/DQ make int8
  std::vector<std::string> unmatched;       ///< names of ranges that no tensor has
  std::vector<std::string> unusable;        ///< names of ranges that are 0 or not finite: no view can have that scale
  std::set<std::string> inner;              ///< ONNX nodes of anchors whose activation reads through a view (PermitChoices::inner)
  std::set<std::string> layers;             ///< names of the operators in `permitted`, one each, as PermitChoices takes them
  std::set<std::string> only_int8;  ///< of `layers`, those that can be no other allowed type: never in PermitChoices::keep_float
  /// Weighted operators and products of two matrices whose types allow bfloat16 (where int8 is not demanded), and those that compute in
  /// it with the reason.
  std::set<std::string> may_bfloat16;
  std::map<std::string, Reason> bfloat16;
  std::map<std::string, Reason> float16;      ///< ONNX nodes that compute in float16, with the reason
  std::map<std::string, Reason> not_float16;  ///< those that may, and cannot, with the reason
  std::set<std::string> kept_wide;            ///< ONNX nodes whose results a rule keeps float32
  std::set<std::string> others;               ///< other ONNX nodes (element-wise, pooling) that read through a permitted view
  int int8_layers = 0, demanded_layers = 0, float_layers = 0, bfloat16_layers = 0,
      float16_layers = 0;  ///< weighted operators, each counted once
  std::shared_ptr<const SampledMagnitudes>
      magnitudes;                    ///< what decided about float16 where nobody gave ranges; null: nothing was asked
  PermittedPairs pairs;              ///< of the model, where PlanOptions::permit_pairs asks for it
  std::vector<std::string> missing;  ///< tensors read by weighted operators without a range
};

/// Writes the ranges onto the values they name (Value::range). Call on the imported graph: later passes rename and merge values.
/// Fills PermitReport::unmatched and ::unusable.
[[nodiscard]] PermitReport set_ranges(ir::Graph& g, const ir::Ranges& ranges);

/// What the search may ask for, by ONNX node name of weighted operators.
struct PermitChoices {
  std::set<std::string> keep_float;  ///< these get no permitted view (PermitReport::others may be named too)
  /// The activation behind these reads their result through its range, though no region ends there: one more rounding, as Q/DQ
  /// between a convolution and its activation demands, for a table instead of arithmetic.
  std::set<std::string> inner;
  bool all_inner = false;  ///< all that can be
  std::set<std::string> bfloat16 =
      {};  ///< these (products of two matrices too) compute in bfloat16 where they are not int8, if it is allowed
  /// Tensors without a range that come near the end of float16 on a random input, with their magnitude (SampledMagnitudes::large): not float16 by permission.
  std::map<std::string, double> large = {};
  std::map<std::string, Reason> why = {};  ///< for nodes in `keep_float` that a plan keeps so; the others are only priced
};

/// Inserts the views. Normalization is not to be folded into the weights before: codes are made of the weights that the model
/// holds, as exporters of Q/DQ do. Errors: `usage` when a rule of options.precisions contradicts a demanded view or asks int8 of a
/// tensor without a range, or where float32 is not allowed and a weighted layer without a rule can be none of the allowed types.
[[nodiscard]] Result<PermitReport> permit(ir::Graph& g, const PlanOptions& options, const PermitChoices& choices = {});

}  // namespace octavo::plan
