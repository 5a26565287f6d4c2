#include "plan/layout/slices.h"

#include <algorithm>
#include <optional>

namespace octavo::plan {
namespace {

// Cut along one dimension, without a gap.
bool covers(const std::vector<SliceWish>& parts, const ir::Shape& dims) {
  std::optional<std::size_t> axis;
  for (const SliceWish& p : parts) {
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (p.dims[d] == dims[d]) continue;
      if (axis && *axis != d) return false;
      axis = d;
    }
  }
  if (!axis) return true;  // whole copies of the source
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const SliceWish& p : parts) ranges.emplace_back(p.starts[*axis], p.starts[*axis] + p.dims[*axis]);
  std::sort(ranges.begin(), ranges.end());
  std::int64_t reached = 0;
  for (const auto& [from, to] : ranges) {
    if (from > reached) return false;
    reached = std::max(reached, to);
  }
  return reached == dims[*axis];
}

}  // namespace

std::vector<JoinedSlices> SliceWishes::joined(Key source, const ir::Shape& dims) {
  std::vector<JoinedSlices> out;
  const auto found = wishes_.find(source);
  if (found == wishes_.end()) return out;
  std::vector<SliceWish> left = std::move(found->second);
  wishes_.erase(found);
  while (!left.empty()) {
    const region::TensorRef whole = left.front().whole;
    const auto elsewhere = std::stable_partition(left.begin(), left.end(), [&](const SliceWish& w) {
      return w.whole.buffer == whole.buffer && w.whole.offset == whole.offset && w.whole.strides == whole.strides;
    });
    const std::vector<SliceWish> same(left.begin(), elsewhere);
    left.erase(left.begin(), elsewhere);
    if (!covers(same, dims)) continue;
    JoinedSlices joined{whole, {}};
    for (const SliceWish& w : same) joined.satisfied.emplace_back(w.slice, w.wish);
    out.push_back(std::move(joined));
  }
  return out;
}

}  // namespace octavo::plan
