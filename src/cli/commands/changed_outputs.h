// --qdq permit: what becomes of the outputs when the model's Q/DQ pairs are permissions.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/inputs/model.h"
#include "quantize/data/data.h"

namespace octavo::cli {

/// How many pairs became ranges, which did not and why, and how far the outputs are from those of the model with every pair where it stands: measured
/// on at most 32 samples of `data`, or estimated on four seeded inputs where that is null. Builds the model once more, without timing anything.
[[nodiscard]] Result<std::string> changed_outputs(const ModelOptions& model, const Loaded& loaded, const quantize::Data* data);

}  // namespace octavo::cli
