// Builds of models whose shapes depend on the values of inputs (onnx/import/late_values.h).
#pragma once

#include "api/pipeline.h"
#include "onnx/import/late_values.h"

namespace octavo::api {

/// As those of pipeline.h; bindings of inputs that `late` gives say their values (region/bound_value.h).
[[nodiscard]] Result<Built> build_file(const std::string& path, const PipelineOptions& options, onnx::LateValues& late);
[[nodiscard]] Result<Built> build_bytes(std::span<const std::byte> model, const PipelineOptions& options, const std::string& folder,
                                        onnx::LateValues& late);

}  // namespace octavo::api
