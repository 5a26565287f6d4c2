// A file of an older opset as one of opset 13, which has scales for each channel.
#pragma once

#include "base/result.h"
#include "onnx/edit/edit.h"

namespace octavo::onnx {

/// Attributes that became inputs between opsets 9 and 13 are rewritten (Clip, Pad, Slice, Squeeze, Unsqueeze, ReduceSum, Split, Dropout);
/// a file of opset 13 or newer stays as it is. Errors: `unsupported` below opset 9, and for operators whose meaning changed (Softmax
/// without an axis of the last dimension, Upsample, Resize of opset 10, Scatter), naming the node and the way out.
[[nodiscard]] Status raise_opset(Editor& model);

}  // namespace octavo::onnx
