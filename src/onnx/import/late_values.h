// Values known late: inputs of a model whose elements decide shapes (a Slice's starts, a Resize's sizes, TopK's k, axes, ...).
#pragma once

#include <map>
#include <set>
#include <string>

#include "onnx/import/import.h"

namespace octavo::onnx {

struct LateValues {
  /// By input name, in the file's types: they become constants. The graph keeps the input, which nothing reads.
  std::map<std::string, ir::Tensor> given;
  /// Out: inputs without which import failed, and with which it may succeed.
  std::set<std::string> needed;
};

/// As that of import.h, with inputs bound by their values.
[[nodiscard]] Result<Model> import_model(const Parsed& parsed, const ImportOptions& options, LateValues& late);

}  // namespace octavo::onnx
