// Small values of the public interface: element types, quantizers from ranges, the version.
#include <fmt/format.h>

#include <cmath>

#include "api/convert.h"
#include "api/ranges.h"
#include "engine/version.h"
#include "octavo/octavo.h"

namespace octavo {

std::size_t size_of(DType type) {
  return ir::size_of(static_cast<ir::DType>(type));
}
std::string_view name_of(DType type) {
  return ir::name_of(static_cast<ir::DType>(type));
}
std::map<std::string, Quantization> read_calibration(const std::string& path) {
  std::map<std::string, Quantization> out;
  for (const auto& [tensor, q] : api::take(api::read_ranges(path))) out[tensor] = *api::to_public(std::optional(q));
  return out;
}

Quantization symmetric_range(double largest_magnitude) {
  if (!(largest_magnitude >= 0))
    api::raise(ErrorKind::usage, fmt::format("a largest magnitude is {}, must not be negative", largest_magnitude));
  return *api::to_public(std::optional(ir::symmetric(static_cast<float>(largest_magnitude / 127.0))));
}

Quantization range_between(double min, double max) {
  if (!(min <= max) || !std::isfinite(min) || !std::isfinite(max))
    api::raise(ErrorKind::usage, fmt::format("a range from {} to {}: needs two finite numbers in ascending order", min, max));
  if (min == 0 && max == 0) return symmetric_range(0);  // no usable range
  return *api::to_public(std::optional(ir::covering(min, max)));
}

std::string_view version() {
  return engine::kVersion;
}

}  // namespace octavo
