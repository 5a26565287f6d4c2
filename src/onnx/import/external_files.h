// Which files a model's external data lies in.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>

#include "base/result.h"

namespace octavo::onnx {

/// The locations that tensors name, as the model spells them, wherever they are: initializers, attributes, branches, functions. Nothing is
/// opened. Errors: bad_model for what is no ONNX model.
[[nodiscard]] Result<std::set<std::string>> external_files(std::span<const std::byte> model);

}  // namespace octavo::onnx
