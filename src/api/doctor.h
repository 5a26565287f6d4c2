// The diagnosis of a model file with its calibration tables.
#pragma once

#include <string>

#include "base/result.h"
#include "onnx/diagnosis/diagnose.h"

namespace octavo::api {

/// `calibration`, `minmax`: tables of ranges (ranges.h), or "". Errors: usage for a min-max table without another; those of reading
/// the tables.
[[nodiscard]] Result<onnx::DiagnoseOptions> diagnose_options(const std::string& calibration, const std::string& minmax);

}  // namespace octavo::api
