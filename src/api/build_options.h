// The public BuildOptions as the pipeline takes them.
#pragma once

#include <string>

#include "api/pipeline.h"
#include "octavo/octavo.h"

namespace octavo::api {

/// Everything but profiles (only models with open dimensions have them) and progress (the builder reports it). `name`: how errors
/// call the model. Throws Exception: usage.
[[nodiscard]] PipelineOptions pipeline_of(const BuildOptions& options, const std::string& name);

}  // namespace octavo::api
