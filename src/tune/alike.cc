#include "tune/alike.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace octavo::tune {

std::string kind_of(const region::Region& region) {
  if (region.stages.size() != 1) return {};
  const region::Stage& s = region.stages.front();
  const region::Anchor& a = s.anchor;
  if (a.op != ir::Op::conv || !a.weights || a.weights->dims.size() < 2 || a.inputs.empty() || s.stores.empty()) return {};
  const auto& weights = a.weights->dims;
  const auto channels = static_cast<int>(std::floor(2 * std::log2(static_cast<double>(std::max<std::int64_t>(weights[1], 1)))));
  const auto& window = a.as<ir::Window>();
  return fmt::format("{} by {} to {}: {} of {} channels 2^(n/2), window {}, strides {}, dilations {}, groups {}",
                     ir::name_of(a.inputs[0].dtype), ir::name_of(a.weights->dtype), ir::name_of(s.stores[0].dtype),
                     fmt::join(s.space, "x"), channels, fmt::join(weights.begin() + 2, weights.end(), "x"),
                     fmt::join(window.strides, "x"), fmt::join(window.dilations, "x"), window.group);
}

}  // namespace octavo::tune
