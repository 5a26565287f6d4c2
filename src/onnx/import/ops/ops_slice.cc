// Slice and Split: both become `slice` nodes with resolved bounds.
#include <algorithm>
#include <array>

#include "onnx/import/importer.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// Bounds of one dimension by numpy's rules: out-of-range values clamp, a negative step runs down to an end of -1.
Status bind_range(NodeContext& n, std::int64_t extent, std::int64_t& start, std::int64_t& end, std::int64_t step) {
  if (step == 0) return n.bad("a step is 0");
  const auto from_end = [&](std::int64_t v) { return v < 0 && v >= -extent ? v + extent : v; };
  start = from_end(start);
  end = from_end(end);
  if (step > 0) {
    start = std::clamp<std::int64_t>(start, 0, extent);
    end = std::clamp<std::int64_t>(end, 0, extent);
  } else {
    start = std::clamp<std::int64_t>(start, 0, std::max<std::int64_t>(0, extent - 1));
    end = std::clamp<std::int64_t>(end, -1, extent);
  }
  if (step > 0 ? start >= end : start <= end || extent == 0) start = end = 0;  // empty
  return {};
}

/// starts, ends, axes: attributes up to opset 9; with steps: inputs from 10.
Status slice(NodeContext& n) {
  if (sized_by_data(n, {1, 2})) return sized_slice(n);
  Ints starts, ends, axes, steps;
  if (n.opset() < 10) {
    starts = n.attr_ints("starts");
    ends = n.attr_ints("ends");
    axes = n.attr_ints("axes");
  } else {
    if (!n.has(1) || !n.has(2)) return n.bad("starts and ends are required");
    OCTAVO_TRY(starts, n.constant_ints(1, "starts"));
    OCTAVO_TRY(ends, n.constant_ints(2, "ends"));
    if (n.has(3)) {
      OCTAVO_TRY(axes, n.constant_ints(3, "axes"));
    }
    if (n.has(4)) {
      OCTAVO_TRY(steps, n.constant_ints(4, "steps"));
    }
  }
  if (axes.empty()) {
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return n.bad("{} starts, {} ends, {} axes, {} steps: the numbers must agree", starts.size(), ends.size(), axes.size(),
                 steps.size());
  }
  const Shape& x = n.shape(0);
  Ints all_starts(x.size(), 0), all_ends = x, all_steps(x.size(), 1);
  std::vector<char> seen(x.size(), 0);
  bool whole = true;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    OCTAVO_TRY(const std::int64_t axis, n.axis(axes[i], n.rank(0)));
    const auto a = static_cast<std::size_t>(axis);
    if (seen[a]++) return n.bad("axis {} is named twice", axis);
    OCTAVO_CHECK(bind_range(n, x[a], starts[i], ends[i], steps[i]));
    all_starts[a] = starts[i];
    all_ends[a] = ends[i];
    all_steps[a] = std::clamp(steps[i], -(std::int64_t{1} << 41), std::int64_t{1} << 41);
    whole = whole && starts[i] == 0 && ends[i] == x[a] && steps[i] == 1;
  }
  if (whole) return n.result(n.in(0));
  return n.result(n.emit(Op::slice, {n.in(0)}, {{"starts", all_starts}, {"ends", all_ends}, {"steps", all_steps}}));
}

/// Sizes: attribute up to opset 12, input from 13, num_outputs from 18; else equal parts.
Status split(NodeContext& n) {
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 0), n.rank(0)));
  const auto a = static_cast<std::size_t>(axis);
  const std::int64_t extent = n.shape(0)[a];
  if (sized_operands(n) && n.importer().sizes().open(n.in(0), a))
    return n.unsupported("it splits dimension {}, whose size data decide; use Slice", axis);
  const auto parts = static_cast<std::int64_t>(n.output_count());
  Ints sizes;
  if (n.opset() < 13) sizes = n.attr_ints("split");
  if (n.opset() >= 13 && n.has(1)) {
    OCTAVO_TRY(sizes, n.constant_ints(1, "split sizes"));
  }
  if (sizes.empty()) {
    const std::int64_t count = n.opset() >= 18 ? n.attr_int("num_outputs", parts) : parts;
    if (count != parts || count < 1) return n.bad("num_outputs is {}, but the node has {} outputs", count, parts);
    if (n.opset() < 18 && extent % count != 0)
      return n.bad("dimension {} of {} does not split into {} equal parts", axis, extent, count);
    const std::int64_t each = (extent + count - 1) / count;
    for (std::int64_t i = 0; i < count; ++i) sizes.push_back(std::clamp<std::int64_t>(extent - i * each, 0, each));
  }
  if (static_cast<std::int64_t>(sizes.size()) != parts) return n.bad("{} split sizes for {} outputs", sizes.size(), parts);
  std::int64_t at = 0;
  const Shape x = n.shape(0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > extent - at)
      return n.bad("split sizes {} do not fit dimension {} of {}", ir::to_string(sizes), axis, extent);
    Ints starts(x.size(), 0), ends = x;
    const Ints steps(x.size(), 1);
    starts[a] = at;
    ends[a] = at += sizes[i];
    if (sizes[i] == extent) {
      n.set(i, n.in(0));
    } else if (n.wants(i)) {
      OCTAVO_TRY(const ValueId part, n.emit(Op::slice, {n.in(0)}, {{"starts", starts}, {"ends", ends}, {"steps", steps}}));
      n.set(i, part);
    }
  }
  if (at != extent) return n.bad("split sizes {} do not cover dimension {} of {}", ir::to_string(sizes), axis, extent);
  return {};
}

constexpr std::array kSliceRows{
    OpRow{"Slice", "", 1, 0, 1, 5, slice},
    OpRow{"Split", "", 2, 0, 1, 2, split},
};

}  // namespace

Family slice_ops() {
  return kSliceRows;
}

}  // namespace octavo::onnx
