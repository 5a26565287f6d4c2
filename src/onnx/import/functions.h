// Model-local functions, replaced by their bodies before anything else looks at the nodes.
#pragma once

#include "base/result.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {

/// Every node that calls a function of the model becomes the function's nodes, named "<call>/<node>", inner tensors likewise;
/// attributes that refer to those of the call are filled in. Calls in calls are resolved too. Errors: bad_model (recursion, calls
/// more than 32 functions deep, wrong number of operands, more than 20000 nodes and one for each 32 bytes of the model), unsupported (a function written for another opset of the default domain).
[[nodiscard]] Status inline_functions(pb::ModelProto& model);

}  // namespace octavo::onnx
