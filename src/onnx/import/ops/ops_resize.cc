// Resize and Upsample. Nearest becomes explicit source index tables; linear and cubic keep scales, sizes and the coordinate mode.
#include <algorithm>
#include <array>
#include <cmath>

#include "onnx/import/compose.h"
#include "onnx/import/registry.h"
#include "onnx/import/resize_taps.h"
#include "onnx/import/sizes.h"
#include "onnx/model/tensor_proto.h"

namespace octavo::onnx {
namespace {

struct Request {
  std::string mode, coordinates, nearest;
  Shape out;                  ///< output extent of each dimension
  std::vector<float> scales;  ///< of each dimension
  std::vector<float> roi;     ///< starts, ends of each dimension; empty: the whole
  TapsRequest taps;
};

/// Coordinate of output i in the input, in f32 as ONNX Runtime computes it (the ONNX text leaves the precision open).
float source_coordinate(const std::string& mode, std::int64_t i, std::int64_t in, std::int64_t out, float scale) {
  const auto x = static_cast<float>(i), length_in = static_cast<float>(in), length_out = static_cast<float>(out);
  if (mode == "asymmetric") return x / scale;
  if (mode == "align_corners") return out == 1 ? 0.0F : x * (length_in - 1) / (length_out - 1);
  if (mode == "pytorch_half_pixel") return out > 1 ? (x + 0.5F) / scale - 0.5F : 0.0F;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5F) / scale;
  if (mode == "half_pixel_symmetric") {
    const float adjustment = length_out / (scale * length_in);
    const float offset = length_in / 2 * (1 - adjustment);
    return static_cast<float>(static_cast<double>(offset) + (static_cast<double>(x) + 0.5) / static_cast<double>(scale) - 0.5);
  }
  return (x + 0.5F) / scale - 0.5F;  // half_pixel
}

Status known_modes(NodeContext& n, const Request& r) {
  constexpr std::array<std::string_view, 7> kCoordinates{"half_pixel",           "pytorch_half_pixel", "asymmetric",
                                                         "tf_half_pixel_for_nn", "align_corners",      "half_pixel_symmetric",
                                                         "tf_crop_and_resize"};
  constexpr std::array<std::string_view, 5> kNearest{"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"};
  if (std::find(kCoordinates.begin(), kCoordinates.end(), r.coordinates) == kCoordinates.end()) {
    return n.bad("coordinate_transformation_mode \"{}\" is unknown", r.coordinates);
  }
  if (std::find(kNearest.begin(), kNearest.end(), r.nearest) == kNearest.end())
    return n.bad("nearest_mode \"{}\" is unknown", r.nearest);
  return {};
}

/// The variants that the IR has no operator for.
bool by_taps(NodeContext& n, const Request& r) {
  if (r.coordinates == "tf_crop_and_resize" || (r.taps.antialias && r.mode != "nearest")) return true;
  if (r.coordinates != "align_corners" || r.mode == "nearest") return false;
  for (std::size_t d = 0; d < r.out.size(); ++d) {
    if (r.scales[d] * static_cast<float>(n.shape(0)[d]) != static_cast<float>(r.out[d])) return true;
  }
  return false;
}

/// Modes that compute values, on integers: the values of the codes are resized in fp32 (exact for 8 bits), then become integers again. ONNX's text leaves
/// open how. ONNX Runtime cuts linear results off, and rounds those with antialias and cubic ones; so do we.
struct Whole {
  DType type;
  [[nodiscard]] bool is() const { return ir::is_int8(type) || type == DType::s32; }

  Result<ValueId> floats(NodeContext& n, ValueId v) const {
    if (!is()) return v;
    if (type == DType::s32) return n.cast(v, DType::f32);
    return n.emit_quantizer(Op::dequantize, v, {.type = type, .scale = {1.0F}, .zero_point = {0}});
  }
  Result<ValueId> codes(NodeContext& n, ValueId v, bool rounds) const {
    if (!is()) return v;
    if (type == DType::s32) {
      if (rounds) {
        OCTAVO_TRY(v, n.emit(Op::round, {v}));
      }
      return n.cast(v, DType::s32);
    }
    if (!rounds && type == DType::u8) {
      OCTAVO_TRY(v, n.emit(Op::floor, {v}));
    } else if (!rounds) {  // towards 0
      Compose c(n);
      const ValueId low = c.op(Op::floor, {v}), high = c.op(Op::ceil, {v});
      OCTAVO_TRY(v, c.value(c.add(c.op(Op::max, {low, c.number(0, v)}), c.op(Op::min, {high, c.number(0, v)}))));
    }
    return n.emit_quantizer(Op::quantize, v, {.type = type, .scale = {1.0F}, .zero_point = {0}});
  }
};

Status check_resized_type(const NodeContext& n, const Request& r, const Whole& whole) {
  if (ir::is_float(n.type(0).dtype) || whole.is()) return {};
  return n.unsupported("mode \"{}\" on {}: float types, int8, uint8 and int32 are supported; cast around it", r.mode,
                       ir::name_of(n.type(0).dtype));
}

Status lower_by_taps(NodeContext& n, const Request& r) {
  if (r.coordinates == "align_corners" && !r.taps.antialias) {
    n.note(
        "align_corners with a scale that is not the quotient of the extents: as in ONNX's tests, the exact product of extent and "
        "scale counts; "
        "PyTorch and ONNX Runtime take the rounded extent. Export with sizes to have one meaning");
  }
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic")
    return n.bad("mode \"{}\" is not nearest, linear or cubic", r.mode);
  const Whole whole{n.type(0).dtype};
  if (!ir::is_float(n.type(0).dtype)) OCTAVO_CHECK(check_resized_type(n, r, whole));
  TapsRequest taps = r.taps;
  taps.mode = r.mode;
  taps.coordinates = r.coordinates;
  taps.nearest = r.nearest;
  const std::size_t rank = r.out.size();
  OCTAVO_TRY(ValueId x, whole.floats(n, n.in(0)));
  for (std::size_t d = rank; d-- > 0;) {
    TapsDim dim{n.shape_of(x)[d], r.out[d], static_cast<double>(r.scales[d])};
    if (!r.roi.empty()) dim.roi_start = static_cast<double>(r.roi[d]), dim.roi_end = static_cast<double>(r.roi[rank + d]);
    if (dim.in == dim.out && dim.scale == 1 && dim.roi_start == 0 && dim.roi_end == 1) continue;
    OCTAVO_TRY(x, resize_by_taps(n, x, static_cast<std::int64_t>(d), taps, dim));
  }
  return n.result(whole.codes(n, x, r.taps.antialias || r.mode == "cubic"));
}

Status lower(NodeContext& n, const Request& r, Attrs cubic) {
  OCTAVO_CHECK(known_modes(n, r));
  const Shape in = n.shape(0);
  OCTAVO_CHECK(checked_count(r.out, n.where()));
  bool same = true;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (in[d] < 1 || r.out[d] < 1) return n.bad("dimension {} goes from {} to {}; both must be at least 1", d, in[d], r.out[d]);
    same = same && in[d] == r.out[d];
  }
  const bool crops = r.coordinates == "tf_crop_and_resize";
  if (same && !crops) return n.result(n.in(0));  // even with scales that are not 1, as ONNX Runtime does
  if (by_taps(n, r)) return lower_by_taps(n, r);
  if (r.mode == "nearest") {
    Attrs attrs;
    for (std::size_t d = 0; d < in.size(); ++d) {
      if (in[d] == r.out[d] && r.scales[d] == 1.0F) continue;
      constexpr std::int64_t kMostIndices = std::int64_t{1} << 24;
      if (r.out[d] > kMostIndices) return n.unsupported("dimension {} is resized to {}, at most 2^24 are supported", d, r.out[d]);
      Ints table;
      for (std::int64_t i = 0; i < r.out[d]; ++i) {
        const float x = source_coordinate(r.coordinates, i, in[d], r.out[d], r.scales[d]);
        const float bounded = std::clamp(x, -1.0F, static_cast<float>(in[d]));  // keeps the conversion to an integer defined
        table.push_back(std::clamp<std::int64_t>(nearest_index(r.nearest, bounded, r.scales[d] < 1.0F), 0, in[d] - 1));
      }
      attrs["index" + std::to_string(d)] = std::move(table);
    }
    return n.result(n.emit(Op::resize_nearest, {n.in(0)}, std::move(attrs)));
  }
  if (r.mode != "linear" && r.mode != "cubic") return n.bad("mode \"{}\" is not nearest, linear or cubic", r.mode);
  const Whole whole{n.type(0).dtype};
  if (!ir::is_float(n.type(0).dtype)) OCTAVO_CHECK(check_resized_type(n, r, whole));
  Attrs attrs = r.mode == "cubic" ? std::move(cubic) : Attrs{};
  attrs["scales"] = std::vector<double>(r.scales.begin(), r.scales.end());
  attrs["sizes"] = r.out;
  attrs["coordinate_mode"] = r.coordinates;
  const bool cubic_mode = r.mode == "cubic";
  OCTAVO_TRY(const ValueId x, whole.floats(n, n.in(0)));
  OCTAVO_TRY(const ValueId y, n.emit(cubic_mode ? Op::resize_cubic : Op::resize_linear, {x}, std::move(attrs)));
  return n.result(whole.codes(n, y, cubic_mode));
}

Status set_scales(NodeContext& n, Request& r, const Ints& axes, const std::vector<float>& scales) {
  if (scales.size() != axes.size()) return n.bad("{} scales for {} dimensions", scales.size(), axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<std::size_t>(axes[i]);
    if (!(scales[i] > 0) || !std::isfinite(scales[i])) return n.bad("scale {} of dimension {} must be positive", scales[i], d);
    const float extent = scales[i] * static_cast<float>(n.shape(0)[d]);
    if (extent > 1e12F) return n.bad("scale {} of dimension {} makes it too large", scales[i], d);
    r.scales[d] = scales[i];
    r.out[d] = static_cast<std::int64_t>(extent);
  }
  return {};
}

/// keep_aspect_ratio_policy: one scale for all named dimensions, sizes rounded half up.
Status set_sizes(NodeContext& n, Request& r, const Ints& axes, const Ints& sizes, const std::string& policy) {
  if (sizes.size() != axes.size()) return n.bad("{} sizes for {} dimensions", sizes.size(), axes.size());
  float common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<std::size_t>(axes[i]);
    if (sizes[i] < 1 || sizes[i] > (std::int64_t{1} << 40)) return n.bad("size {} of dimension {} is impossible", sizes[i], d);
    r.out[d] = sizes[i];
    r.scales[d] = static_cast<float>(sizes[i]) / static_cast<float>(n.shape(0)[d]);
    common = i == 0 ? r.scales[d] : policy == "not_larger" ? std::min(common, r.scales[d]) : std::max(common, r.scales[d]);
  }
  if (policy == "stretch") return {};
  if (policy != "not_larger" && policy != "not_smaller") return n.bad("keep_aspect_ratio_policy \"{}\" is unknown", policy);
  for (const std::int64_t axis : axes) {
    const auto d = static_cast<std::size_t>(axis);
    r.scales[d] = common;
    r.out[d] = static_cast<std::int64_t>(std::round(common * static_cast<float>(n.shape(0)[d])));
  }
  return {};
}

Result<std::vector<float>> scale_list(NodeContext& n, std::size_t i) {
  const Tensor* t = n.constant(i);
  if (!t)
    return n.unsupported(
        "scales \"{}\" are computed at run time; give sizes in the model (they may follow from data, with --max-elements {}=N), or "
        "fix "
        "the input shapes",
        n.input_name(i), n.proto().output_size() > 0 ? n.proto().output(0) : n.name());
  if (!ir::is_float(t->dtype())) return n.bad("scales are {}, need floats", ir::to_string(t->type()));
  std::vector<float> out;
  for (std::int64_t k = 0; k < t->size(); ++k) out.push_back(static_cast<float>(t->at(k)));
  return out;
}

Request blank(NodeContext& n) {
  Request r;
  r.out = n.shape(0);
  r.scales.assign(r.out.size(), 1.0F);
  return r;
}

Ints all_axes(NodeContext& n) {
  Ints axes;
  for (std::int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  return axes;
}

/// Upsample 7 (attribute scales) and 9 (input scales), Resize 10: asymmetric coordinates.
Status upsample(NodeContext& n) {
  Request r = blank(n);
  r.mode = n.attr_text("mode", "nearest");
  r.coordinates = "asymmetric";
  const bool resize = n.proto().op_type() == "Resize";
  r.nearest = resize ? "simple" : "floor";
  if (r.mode == "bilinear") r.mode = "linear";
  std::vector<float> scales;
  if (n.opset() < 9) {
    scales = n.attr_floats("scales");
  } else {
    if (!n.has(1)) return n.bad("scales are missing");
    OCTAVO_TRY(scales, scale_list(n, 1));
  }
  OCTAVO_CHECK(set_scales(n, r, all_axes(n), scales));
  return lower(n, r, {{"cubic_coeff_a", -0.75}});
}

/// Opset 11 on: roi (for tf_crop_and_resize alone), scales, sizes.
Status resize(NodeContext& n) {
  Request r = blank(n);
  r.mode = n.attr_text("mode", "nearest");
  r.coordinates = n.attr_text("coordinate_transformation_mode", "half_pixel");
  r.nearest = n.attr_text("nearest_mode", "round_prefer_floor");
  r.taps.extrapolation = n.attr_float("extrapolation_value", 0.0F);
  r.taps.antialias = n.attr_int("antialias", 0) != 0;
  const std::string policy = n.attr_text("keep_aspect_ratio_policy", "stretch");
  Attrs cubic{{"cubic_coeff_a", static_cast<double>(n.attr_float("cubic_coeff_a", -0.75F))},
              {"exclude_outside", n.attr_int("exclude_outside", 0)}};
  r.taps.cubic = static_cast<double>(n.attr_float("cubic_coeff_a", -0.75F));
  r.taps.exclude_outside = n.attr_int("exclude_outside", 0) != 0;
  Ints axes = n.attr_ints("axes");
  if (axes.empty()) axes = all_axes(n);
  for (std::int64_t& a : axes) {
    OCTAVO_TRY(a, n.axis(a, n.rank(0)));
  }
  if (r.coordinates == "tf_crop_and_resize") {
    if (!n.has(1)) return n.bad("tf_crop_and_resize needs a region (roi)");
    OCTAVO_TRY(const std::vector<float> roi, scale_list(n, 1));
    if (roi.size() != 2 * axes.size()) return n.bad("roi has {} entries for {} dimensions", roi.size(), axes.size());
    r.roi.assign(2 * r.out.size(), 0.0F);
    std::fill(r.roi.begin() + static_cast<std::ptrdiff_t>(r.out.size()), r.roi.end(), 1.0F);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto d = static_cast<std::size_t>(axes[i]);
      r.roi[d] = roi[i];
      r.roi[r.out.size() + d] = roi[axes.size() + i];
      if (!std::isfinite(roi[i]) || !std::isfinite(roi[axes.size() + i])) return n.bad("roi is not finite");
    }
  }
  const bool by_sizes = n.has(3) && (!n.constant(3) || n.constant(3)->size() > 0);
  if (by_sizes) {
    if (!n.constant(3) && sized_by_data(n, {3})) return sized_resize(n, axes);
    OCTAVO_TRY(const Ints sizes, n.constant_ints(3, "sizes"));
    OCTAVO_CHECK(set_sizes(n, r, axes, sizes, policy));
  } else if (n.has(2)) {
    OCTAVO_TRY(const std::vector<float> scales, scale_list(n, 2));
    OCTAVO_CHECK(set_scales(n, r, axes, scales));
  } else {
    return n.bad("neither scales nor sizes are given");
  }
  return lower(n, r, std::move(cubic));
}

constexpr std::array kResizeRows{
    OpRow{"Upsample", "", 7, 9, 1, 2, upsample},
    OpRow{"Resize", "", 10, 10, 2, 2, upsample},
    OpRow{"Resize", "", 11, 0, 1, 4, resize},
};

}  // namespace

Family resize_ops() {
  return kResizeRows;
}

}  // namespace octavo::onnx
