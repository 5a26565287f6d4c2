// Which files a model's external data lies in.
#pragma once

#include <set>
#include <string>

#include "onnx/model/parsed.h"

namespace octavo::onnx {

/// The locations that tensors name, as the model spells them, wherever they are: initializers, attributes, branches, functions. Nothing is
/// opened.
[[nodiscard]] std::set<std::string> external_files(const Parsed& model);

}  // namespace octavo::onnx
