#include "api/shapes.h"

namespace octavo::api {

bool ShapeRange::sound() const {
  if (min.size() != opt.size() || max.size() != opt.size()) return false;
  for (std::size_t k = 0; k < opt.size(); ++k) {
    if (min[k] < 0 || min[k] > opt[k] || opt[k] > max[k]) return false;
  }
  return true;
}

std::optional<std::size_t> ShapeRange::outside(const ir::Shape& shape) const {
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] < min[k] || shape[k] > max[k]) return k;
  }
  return std::nullopt;
}

}  // namespace octavo::api
