#include "cpu/joined.h"

#include <algorithm>

namespace octavo::cpu {

Joined joined(const ir::Shape& dims, const std::vector<ir::Shape>& strides) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[0][a] > strides[0][b]; });
  Joined out{{}, std::vector<ir::Shape>(strides.size())};
  for (const std::size_t d : order) {
    bool joins = !out.dims.empty();
    for (std::size_t i = 0; i < strides.size() && joins; ++i) joins = out.strides[i].back() == strides[i][d] * dims[d];
    if (!joins) out.dims.push_back(1);
    out.dims.back() *= dims[d];
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (joins) out.strides[i].pop_back();
      out.strides[i].push_back(strides[i][d]);
    }
  }
  return out;
}

}  // namespace octavo::cpu
