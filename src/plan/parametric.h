// One plan for a range of shapes: every extent in it (dimensions, strides, offsets, sizes of buffers) is a polynomial of the open dimensions.
//
// The polynomials are found from plans that were made for some points of the range, and hold at all of them; everything else in these plans must be
// equal. A value is a sum of at most two terms c * n^a * m^b with integer c. Constants may have other contents at each point where they are the
// beginnings of the longest of them, as rows of a table of positions are.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::plan {

/// Values of the open dimensions, in one order.
using Point = std::vector<std::int64_t>;

class Parametric {
 public:
  /// `plans`: without tactics (plan::outline), parallel to `points`. Errors: `unsupported`, the first thing that is no such function of the dimensions.
  [[nodiscard]] static Result<Parametric> fit(const std::vector<Point>& points, const std::vector<region::Plan>& plans);

  /// Gives a plan with the same regions, which may have tactics and further buffers by now, the extents of a point. Memory is to be planned anew.
  /// False: a value would be negative or too large.
  [[nodiscard]] bool set(region::Plan& plan, const Point& point) const;
  /// Are these the plan's extents at the point? The plan for `set` has to be asked first.
  [[nodiscard]] bool agrees(const region::Plan& plan, const Point& point) const;
  /// Marks which extents depend on the point (region::OpenExtents). The plan for `set`.
  void mark(region::Plan& plan) const;
  /// Does an extent of the region depend on the point?
  [[nodiscard]] bool varies(std::size_t region) const { return varies_[region] != 0; }
  /// Constants whose length depends on the point: the longest contents that there were.
  [[nodiscard]] const std::map<region::BufferId, ir::Tensor>& growing() const { return growing_; }

  /// For engine files; the contents of `growing` go into `data`, one behind the other.
  [[nodiscard]] nlohmann::json to_json(std::vector<std::byte>& data) const;
  /// Trusts nothing; `agrees` has to be asked before `set`. `dimensions`: of points. Errors: bad_engine, for what to_json does not write.
  [[nodiscard]] static Result<Parametric> from_json(const nlohmann::json& j, std::span<const std::byte> data,
                                                    std::size_t dimensions);

 private:
  struct Term {
    std::int64_t factor = 0;
    std::vector<int> powers;  ///< of each dimension
  };
  using Sum = std::vector<Term>;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> at(const Point& point) const;
  [[nodiscard]] bool constant(std::uint32_t sum) const;

  std::vector<std::uint32_t> which_;  ///< by extent, in the order of each_extent: index into sums_
  std::vector<Sum> sums_;
  std::vector<char> varies_;
  std::map<region::BufferId, ir::Tensor> growing_;
  std::size_t buffers_ = 0;  ///< of a plan without tactics
};

}  // namespace octavo::plan
