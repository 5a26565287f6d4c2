// What `doctor` lists and `build` warns of.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/inputs/model.h"
#include "onnx/diagnosis/diagnose.h"

namespace octavo::cli {

/// The model's diagnosis, with its --calibration table and a min-max table (or "") to compare that with. Errors: those of reading
/// the files.
[[nodiscard]] Result<onnx::Diagnosis> diagnose(const ModelOptions& model, const std::string& minmax = "");
/// The findings on stderr, a line each, a few of each rule. `failure`: the text that a failed build ends with; what it names is
/// left out.
void print_warnings(const onnx::Diagnosis& d, const std::string& failure = "");

}  // namespace octavo::cli
