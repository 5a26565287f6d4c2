// The table of families, and what several of them share.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "cuda/family.h"

namespace octavo::cuda {

using region::Plan;
using region::Region;
using region::Stage;

// Static storage.
#define FAMILY(id) [[nodiscard]] const Family& id##_family();
#include "cuda/families/families.def"
[[nodiscard]] std::span<const Family* const> families();

/// The only stage of a region of one stage.
[[nodiscard]] inline const region::Stage& only(const region::Region& r) {
  return r.stages.front();
}
[[nodiscard]] inline bool is_single(const region::Region& r) {
  return r.stages.size() == 1 && !r.stages[0].stores.empty();
}

/// As region::aligned_stride, of dimensions that are open too, which may have more than the one element that they have here.
[[nodiscard]] inline std::int64_t stride_along(const region::TensorRef& t, std::size_t rank, std::size_t k) {
  const auto at = static_cast<std::ptrdiff_t>(k) - static_cast<std::ptrdiff_t>(rank - t.dims.size());
  if (at < 0) return 0;
  const auto d = static_cast<std::size_t>(at);
  return t.dims[d] == 1 && (t.open.dims >> d & 1) == 0 ? 0 : t.strides[d];
}

/// Is that stride open?
[[nodiscard]] inline bool open_along(const region::TensorRef& t, std::size_t rank, std::size_t k) {
  const auto at = static_cast<std::ptrdiff_t>(k) - static_cast<std::ptrdiff_t>(rank - t.dims.size());
  return at >= 0 && stride_along(t, rank, k) != 0 && (t.open.strides >> at & 1) != 0;
}

/// How many parts of `of` cover `v`.
[[nodiscard]] constexpr std::int64_t parts(std::int64_t v, std::int64_t of) {
  return (v + of - 1) / of;
}
[[nodiscard]] constexpr std::int64_t up(std::int64_t v, std::int64_t to) {
  return parts(v, to) * to;
}

/// Empty, or why the target lacks products of warps (mma.sync) or of warpgroups (wgmma).
/// Of bfloat16 or tf32; those of bytes and float16 are there on every GPU that is supported.
[[nodiscard]] Reasons why_no_wide_products(const Target& target);
[[nodiscard]] Reasons why_no_warpgroups(const Target& target);
/// Empty, or why so many blocks of a multiprocessor do not fit in its shared memory.
[[nodiscard]] Reasons why_not_shared(std::int64_t bytes, int blocks, const Target& target);

/// Every tensor of the region once through memory, and a launch.
[[nodiscard]] double seconds_of_a_pass(const region::Region& region);

template <class Tile>
void fastest_first(std::vector<Choice<Tile>>& choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
}
/// The fastest first, but choices that agree in `kind` with a faster one behind all others: a search that times the first few is to see different
/// tiles, and not one with more stages.
template <class Tile, class Kind>
void put_in_order(std::vector<Choice<Tile>>& choices, const Kind& kind) {
  fastest_first(choices);
  std::set<decltype(kind(choices[0].tile))> seen;
  std::stable_partition(choices.begin(), choices.end(), [&](const Choice<Tile>& c) { return seen.insert(kind(c.tile)).second; });
}

}  // namespace octavo::cuda
