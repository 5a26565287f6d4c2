// What a quantized model says of the layers that it leaves in float.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/model.h"

namespace octavo::cli {

/// The notes that an engine of this model keeps: quantize::kKeptFloat, when the model has it. Nothing for an engine file.
[[nodiscard]] Result<engine::Notes> kept_float_note(const ModelOptions& model);
/// A line for each such layer, of the model or of the notes of an engine; `node`: of this one alone. "" without any.
[[nodiscard]] Result<std::string> kept_float_text(const ModelOptions& model, const Loaded& loaded, const std::string& node);

}  // namespace octavo::cli
