// The public BuildOptions as the pipeline takes them.
#pragma once

#include <string>

#include "api/pipeline.h"
#include "octavo/octavo.h"

namespace octavo::api {

/// Everything but profiles (which only models with open dimensions have) and progress (whoever builds watches). `name`: how errors
/// call the model. Throws Exception: usage.
[[nodiscard]] PipelineOptions pipeline_of(const BuildOptions& options, const std::string& name);

}  // namespace octavo::api
