// What a quantized model says of the layers that it leaves in float.
#pragma once

#include <string>

#include "cli/inputs/model.h"

namespace octavo::cli {

/// The notes that an engine of this model keeps: quantize::kKeptFloat, when the model has it.
[[nodiscard]] engine::Notes kept_float_note(const api::Built& built);
/// A line for each such layer, of the model or of the notes of an engine; `node`: of this one alone. "" without any.
[[nodiscard]] std::string kept_float_text(const Loaded& loaded, const std::string& node);

}  // namespace octavo::cli
