// Placing split-halves:  concat(..., slice_a(x), slice_b(x), ...) ==> x stored inside the concatenation's buffer
//   Why    halves of a Split that are concatenated again (C2f, CSP) cost nothing.
//   Exact  bit for bit: elements keep their bits.
//   Needs  slices that together make up all of x, wanted side by side in their order.
//   Order  when memory is planned. No switch.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/layout/place.h"

namespace octavo::plan {

/// A slice of some source that a concat or an output wants in a place of its own.
struct SliceWish {
  Key slice;
  std::size_t wish = 0;     ///< which of the slice's wishes
  region::TensorRef whole;  ///< where all of the source would lie if this slice of it lay where it is wanted
  std::vector<std::int64_t> starts;
  ir::Shape dims;
};

struct JoinedSlices {
  region::TensorRef whole;                             ///< store the source here ...
  std::vector<std::pair<Key, std::size_t>> satisfied;  ///< ... and these wishes are fulfilled
};

class SliceWishes {
 public:
  void wish(Key source, SliceWish w) { wishes_[source].push_back(std::move(w)); }
  /// Groups of wishes that agree on where the source lies and cover all of it (`dims`). Takes the source's wishes.
  [[nodiscard]] std::vector<JoinedSlices> joined(Key source, const ir::Shape& dims);

 private:
  std::map<Key, std::vector<SliceWish>> wishes_;
};

}  // namespace octavo::plan
