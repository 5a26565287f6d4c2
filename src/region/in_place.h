// Results that take the place of an operand: the sum of a residual block over the branch that nothing reads again. Lines that were
// read are written, and no others come into the caches.
#pragma once

#include <algorithm>

#include "region/region.h"

namespace octavo::region {

/// Are the elements of both in the same places of their buffers?
[[nodiscard]] inline bool same_places(const TensorRef& a, const TensorRef& b) {
  if (a.offset != b.offset || a.dims != b.dims || ir::size_of(a.dtype) != ir::size_of(b.dtype)) return false;
  for (std::size_t k = 0; k < a.dims.size(); ++k) {
    if (a.dims[k] > 1 && a.strides[k] != b.strides[k]) return false;
  }
  return true;
}

/// May buffer `to`, which this region stores, be the same bytes as buffer `from`, an operand that nothing reads later? Both tensors
/// have their elements in the same places.
[[nodiscard]] inline bool in_place(const Region& r, BufferId from, BufferId to) {
  if (r.stages.size() != 1 || !r.tactic.stores_in_place) return false;
  const Stage& s = r.stages.front();
  const auto names = [&](const TensorRef& t) { return t.buffer == from || t.buffer == to; };
  if (std::any_of(s.anchor.inputs.begin(), s.anchor.inputs.end(), names)) return false;
  const TensorRef* store = nullptr;
  for (const TensorRef& t : s.stores) {
    if (!names(t)) continue;
    if (store != nullptr || t.buffer != to) return false;
    store = &t;
  }
  if (store == nullptr) return false;
  bool read = false;
  for (const Operand& o : s.operands) {
    if (!names(o.ref)) continue;
    if (o.ref.buffer != from || !same_places(o.ref, *store) ||
        std::any_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d != 1; }))
      return false;
    read = true;
  }
  return read;
}

}  // namespace octavo::region
