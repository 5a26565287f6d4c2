// Ranges for implicit quantization, from files.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/quantizer.h"

namespace octavo::api {

/// From a TensorRT calibration table ("TRT-..." and lines "tensor: bits of the scale") or a JSON object
/// in which a tensor has the largest magnitude a, or {"amax": a, ...}: s8 around 0, scale = fl(a / 127), divided in double;
///   [lo, hi] or {"min": lo, "max": hi, ...}: ir::covering(lo, hi), u8 with a zero point;
///   {"scale": s, "zero_point": z, "type": "u8" or "s8"}: just that (zero point 0 and u8 when absent).
/// Scales may be 0 or infinite: as tables say, such a tensor has no usable range. Errors: `bad_input` naming `name` and the line; `io`.
[[nodiscard]] Result<ir::Ranges> parse_ranges(std::string_view text, const std::string& name);
[[nodiscard]] Result<ir::Ranges> read_ranges(const std::string& path);

}  // namespace octavo::api
