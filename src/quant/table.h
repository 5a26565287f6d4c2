// Calibration tables, written. (Read: api/ranges.h.)
#pragma once

#include <map>
#include <string>

namespace octavo::quant {

/// TensorRT's text: "TRT-<header>", then "tensor: bits of the float32 scale" in hexadecimal, by name. `header` is
/// "100700-EntropyCalibration2" or the like: a version as digits and an algorithm, which TensorRT compares with its own.
[[nodiscard]] std::string table_text(const std::map<std::string, float>& scales, const std::string& header);
/// {tensor: largest magnitude} as JSON; 127 times the scale in double, so that the scale comes back to the last bit.
[[nodiscard]] std::string amax_json(const std::map<std::string, float>& scales);

}  // namespace octavo::quant
