// A parsed model inside of this module: the message, and its large constants beside it.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/tensor.h"
#include "onnx/model/parsed.h"
#include "onnx/model/schema.h"

namespace octavo::onnx {

/// Large constants by the name of their initializer in the main graph, in the type that the file declares. Their bytes are not in the
/// message, which is cheap to copy then; import and edits share them.
using Constants = std::unordered_map<std::string, ir::Tensor>;

struct ParsedParts {
  pb::ModelProto model;
  Constants constants;
  std::string name, folder;
};

/// Bytes from which on a constant is a large one.
inline constexpr std::size_t kLargeConstant = 1024;

/// Moves the raw bytes of large initializers from the message into tensors. Those that are damaged, packed, stored in another way, or
/// defined twice stay where they are.
void take_out(pb::ModelProto& model, Constants& constants);
/// The file of a message with its constants: the bytes that it was parsed from, as far as nothing was changed. Errors: io, for more than a
/// message holds.
[[nodiscard]] Result<std::vector<std::byte>> bytes_of(const pb::ModelProto& model, const Constants& constants);

}  // namespace octavo::onnx
