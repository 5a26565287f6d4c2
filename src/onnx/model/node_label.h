// What a node without a name is called in messages, plans and inlined functions.
#pragma once

#include <fmt/format.h>

#include <string>

#include "onnx/model/schema.h"

namespace octavo::onnx {

/// The node's name, or its operator and its place among the nodes around it: "Conv_3". Two nodes may have the same one.
[[nodiscard]] inline std::string node_label(const pb::NodeProto& node, int index) {
  return node.name().empty() ? fmt::format("{}_{}", node.op_type(), index) : node.name();
}

}  // namespace octavo::onnx
