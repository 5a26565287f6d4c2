// Ranges for implicit quantization, from files.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo::api {

/// {tensor: scale}, from a TensorRT calibration table ("TRT-..." and lines "tensor: bits of the scale") or a JSON object
/// {tensor: amax} or {tensor: {"amax": amax, ...}} (scale = fl(amax / 127), divided in double). Scales may be 0 or infinite: as
/// tables say, such a tensor has no usable range. Errors: `bad_input` naming `name` and the line; `io`.
[[nodiscard]] Result<std::map<std::string, float>> parse_ranges(std::string_view text, const std::string& name);
[[nodiscard]] Result<std::map<std::string, float>> read_ranges(const std::string& path);

}  // namespace octavo::api
