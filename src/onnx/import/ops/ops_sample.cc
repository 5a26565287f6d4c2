// GridSample, AffineGrid, RoiAlign, DeformConv, Det, NonMaxSuppression.
#include <algorithm>
#include <array>
#include <limits>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/registry.h"
#include "onnx/import/window.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

Status grid_sample(NodeContext& n) {
  std::string mode = n.attr_text("mode", n.opset() < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  return n.result(n.emit(
      Op::grid_sample, {n.in(0), n.in(1)},
      {{"mode", mode}, {"padding_mode", n.attr_text("padding_mode", "zeros")}, {"align_corners", n.attr_int("align_corners", 0)}}));
}

/// theta [N,2,3] or [N,3,4] times the homogeneous coordinates of a constant grid.
Status affine_grid(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(const Ints size, n.constant_ints(1, "size"));
  const bool align = n.attr_int("align_corners", 0) != 0;
  const std::size_t spatial = size.size() - 2;
  if (size.size() < 4 || size.size() > 5) return n.bad("size has {} entries, needs 4 or 5", size.size());
  const auto dims = static_cast<std::int64_t>(spatial);
  if (n.shape(0) != Shape{size[0], dims, dims + 1})
    return n.bad("theta is {}, needs [{},{},{}]", ir::to_string(n.shape(0)), size[0], dims, dims + 1);
  const Shape extents(size.begin() + 2, size.end());
  OCTAVO_TRY(const std::int64_t points, checked_constant(extents, n.where()));
  Tensor grid(DType::f32, {dims + 1, points});  // x, y, (z), 1
  auto to = grid.mutable_data<float>();
  const auto count = static_cast<std::size_t>(points);
  for (std::size_t p = 0; p < count; ++p) {
    std::int64_t rest = static_cast<std::int64_t>(p);
    for (std::size_t k = 0; k < spatial; ++k) {  // innermost extent is x
      const std::int64_t extent = extents[spatial - 1 - k];
      const auto i = static_cast<double>(rest % extent), e = static_cast<double>(extent);
      rest /= extent;
      const double v = !align ? (2 * i + 1) / e - 1 : extent == 1 ? -1 : 2 * i / (e - 1) - 1;
      to[k * count + p] = static_cast<float>(v);
    }
    to[spatial * count + p] = 1;
  }
  Shape out{size[0]};
  out.insert(out.end(), extents.begin(), extents.end());
  out.push_back(dims);
  return c.finish(c.reshape(c.transpose(c.matmul(n.in(0), c.constant(std::move(grid))), {0, 2, 1}), out));
}

Status roi_align(NodeContext& n) {
  const std::string mode = n.attr_text("coordinate_transformation_mode", n.opset() < 16 ? "output_half_pixel" : "half_pixel");
  if (mode != "half_pixel" && mode != "output_half_pixel") return n.bad("coordinate_transformation_mode \"{}\" is unknown", mode);
  return n.result(n.emit(Op::roi_align, {n.in(0), n.in(1), n.in(2)},
                         {{"mode", n.attr_text("mode", "avg")},
                          {"output_height", n.attr_int("output_height", 1)},
                          {"output_width", n.attr_int("output_width", 1)},
                          {"sampling_ratio", n.attr_int("sampling_ratio", 0)},
                          {"spatial_scale", static_cast<double>(n.attr_float("spatial_scale", 1.0F))},
                          {"half_pixel", std::int64_t{mode == "half_pixel"}}}));
}

/// x, w, offset, bias, mask; the last two may be absent.
Status deform_conv(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 4, 4));
  OCTAVO_CHECK(n.need_rank(1, 4, 4));
  OCTAVO_CHECK(n.need_rank(2, 4, 4));
  const Shape w = n.shape(1), offset = n.shape(2);
  const Ints kernel = n.attr_ints("kernel_shape", {w[2], w[3]});
  if (kernel != Ints{w[2], w[3]}) return n.bad("kernel_shape {} but the weights are {}", ir::to_string(kernel), ir::to_string(w));
  const ValueId bias = n.has(3) ? n.in(3) : c.filled(DType::f32, {w[0]}, 0);
  const ValueId mask =
      n.has(4) ? n.in(4) : c.expand(c.filled(DType::f32, {1, 1, 1, 1}, 1), {offset[0], offset[1] / 2, offset[2], offset[3]});
  return c.finish(c.op(Op::deform_conv, {n.in(0), n.in(1), n.in(2), bias, mask},
                       {{"strides", n.attr_ints("strides", {1, 1})},
                        {"pads", n.attr_ints("pads", {0, 0, 0, 0})},
                        {"dilations", n.attr_ints("dilations", {1, 1})},
                        {"group", n.attr_int("group", 1)},
                        {"offset_group", n.attr_int("offset_group", 1)}}));
}

Status det(NodeContext& n) {
  return n.result(n.emit(Op::det, {n.in(0)}));
}

/// Rows of -1 follow the selected ones, as many as may be selected in all: they say how many there are.
Status non_max_suppression(NodeContext& n) {
  Compose c(n);
  OCTAVO_CHECK(n.need_rank(0, 3, 3));
  OCTAVO_CHECK(n.need_rank(1, 3, 3));
  Sizes& sizes = n.importer().sizes();
  const Shape scores = n.shape(1);
  const std::int64_t lines = scores[0] * scores[1];
  std::int64_t most = 0;
  std::optional<Number> fewer;  // rows of the only line are in the order in which they are taken: the first ones are kept
  if (n.has(2)) {
    const auto bounded = n.constant(2) == nullptr && lines == 1 ? sizes.elements(n, n.in(2)) : std::nullopt;
    if (bounded && bounded->size() == 1) {
      fewer = bounded->front();
      most = fewer->room();
    } else {
      OCTAVO_TRY(most, n.constant_integer(2, "max_output_boxes_per_class"));
      most = std::max<std::int64_t>(most, 0);
    }
  }
  const std::int64_t count = lines * std::min(most, scores[2]);
  const ValueId iou = n.has(3) ? n.in(3) : c.filled(DType::f32, {}, 0);
  const ValueId least = n.has(4) ? n.in(4) : c.filled(DType::f32, {}, -std::numeric_limits<double>::infinity());
  const ValueId rows = c.op(Op::non_max_suppression, {n.in(0), n.in(1), iou, least},
                            {{"center_point_box", n.attr_int("center_point_box", 0)}, {"count", count}});
  OCTAVO_CHECK(c.status());
  if (count == 0) return c.finish(rows);
  ValueId selected = ir::kNone;
  {
    const Sizes::Plain plain(sizes);
    const bool exact = count < (std::int64_t{1} << 24);  // sums of float32
    const ValueId flags = c.cast(c.negated(c.less(c.slice(rows, 1, 0, 1), c.integers({}, {0}))), exact ? DType::f32 : DType::s64);
    selected = c.cast(c.reduce(Op::reduce_sum, flags, {0, 1}, false), DType::s64);
    OCTAVO_CHECK(c.status());
  }
  Number size = sizes.count(selected, 0, static_cast<double>(count));
  if (fewer) size = sizes.min(n, size, sizes.max(n, *fewer, Sizes::number(0)));
  return n.result(sizes.sized(n, rows, 0, size));
}

constexpr std::array kSampleRows{
    OpRow{"GridSample", "", 16, 0, 2, 2, grid_sample},
    OpRow{"AffineGrid", "", 20, 0, 2, 2, affine_grid},
    OpRow{"RoiAlign", "", 10, 0, 3, 3, roi_align},
    OpRow{"DeformConv", "", 19, 0, 3, 5, deform_conv},
    OpRow{"Det", "", 11, 0, 1, 1, det},
    OpRow{"NonMaxSuppression", "", 10, 0, 2, 5, non_max_suppression},
};

}  // namespace

Family sample_ops() {
  return kSampleRows;
}

}  // namespace octavo::onnx
