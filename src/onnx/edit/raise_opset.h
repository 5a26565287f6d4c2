// Converts a file of an older opset to opset 13, which has scales for each channel.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace octavo::onnx {

class Editor;

/// The first opset whose QuantizeLinear has scales for each channel.
inline constexpr std::int64_t kOpsetOfPairs = 13;

/// Every node computes what it did. Attributes that became inputs between opsets 7 and 13 are rewritten (Clip, Pad, Slice, Squeeze, Unsqueeze,
/// ReduceSum, Split, Dropout, TopK), Upsample and Resize of opset 10 are Resize with coordinates from the origin, Scatter is ScatterElements, and
/// Softmax, LogSoftmax and Hardmax over several dimensions get a Flatten and a Reshape; a file of opset 13 or newer stays as it is. Errors: `unsupported` below
/// opset 7, for models with subgraphs (If, Loop, Scan), and for nodes that later opsets cannot express; the error names the node and what to do.
[[nodiscard]] Status raise_opset(Editor& model);

}  // namespace octavo::onnx
