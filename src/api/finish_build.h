// The part of a build behind import.
#pragma once

#include "api/pipeline.h"
#include "onnx/import/late_values.h"

namespace octavo::api {

/// make_plan -> Engine::create; the options have been checked. `late`: values that inputs are bound by.
[[nodiscard]] Result<Built> finish_build(onnx::Model model, const PipelineOptions& options, const onnx::LateValues& late);

}  // namespace octavo::api
