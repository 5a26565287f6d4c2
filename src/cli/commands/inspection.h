// Where a quantized model loses accuracy on data, for people and for programs: what doctor, check and build print of --data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/pipeline.h"
#include "cli/inputs/data.h"
#include "cli/inputs/model.h"
#include "cli/progress.h"
#include "quantize/metrics/inspect.h"

namespace octavo::cli {

/// False: neither pairs nor ranges round anything, and there is nothing to look at on data.
[[nodiscard]] bool rounds(const ModelOptions& model, const api::Built& built);
/// Runs the model on the data with and without the roundings of its activations. Errors: those of quantize::inspect.
[[nodiscard]] Result<quantize::Inspection> inspect_on(const ModelOptions& model, const api::Built& built,
                                                      const quantize::Data& data, Progress& progress);
/// "signal to noise at the outputs ...: 24.1 dB", and of each output where there are several.
[[nodiscard]] std::string outputs_text(const quantize::Inspection& inspection, std::size_t samples);
/// Each rounded tensor, the layers that lose most, and where most is lost.
[[nodiscard]] std::string tensors_text(const quantize::Inspection& inspection, std::size_t samples);
/// "tensors", "layers" and "outputs", put into `out`.
void add_json(const quantize::Inspection& inspection, nlohmann::json& out);
/// A picture of it (SVG) into `file`.
[[nodiscard]] Status write_picture(const quantize::Inspection& inspection, const std::string& file);

}  // namespace octavo::cli
