// Bodies that are lowered several times: what If, Loop and Scan share.
#pragma once

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"

namespace octavo::onnx {

constexpr std::int64_t kMostNodes = 100000;  ///< of an unrolled loop

/// `steps`, or unsupported where as many copies of the body are too many.
[[nodiscard]] Result<std::int64_t> most_steps(NodeContext& n, const pb::GraphProto& body, std::int64_t steps);
/// a where the condition (bool[]) holds, else b, of one type and rank.
[[nodiscard]] Result<ValueId> selected(NodeContext& n, Compose& c, ValueId condition, ValueId a, ValueId b);
/// Loop.
[[nodiscard]] Status loop(NodeContext& n);

}  // namespace octavo::onnx
