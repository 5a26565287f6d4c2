// Calibration tables, written. (Read: api/ranges.h.)
#pragma once

#include <map>
#include <string>

#include "ir/quantizer.h"

namespace octavo::quant {

/// TensorRT's text: "TRT-<header>", then "tensor: bits of the float32 scale" in hexadecimal, by name. `header` is
/// "100700-EntropyCalibration2" or the like: a version as digits and an algorithm, which TensorRT compares with its own.
[[nodiscard]] std::string table_text(const std::map<std::string, float>& scales, const std::string& header);
/// {tensor: range} as JSON: the largest magnitude of s8 around 0, 127 times the scale; otherwise [least, largest]. In double, so that scale and
/// zero point come back to the last bit.
[[nodiscard]] std::string ranges_json(const ir::Ranges& ranges);

}  // namespace octavo::quant
