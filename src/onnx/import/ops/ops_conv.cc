// Conv, ConvTranspose, com.microsoft FusedConv.
#include <algorithm>
#include <array>

#include "onnx/import/lower.h"
#include "onnx/import/registry.h"
#include "onnx/import/window.h"

namespace octavo::onnx {
namespace {

constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;

/// Output extents that ConvTranspose is asked for (attribute output_shape or auto_pad), turned into pads and output_padding.
Status resolve_transposed(NodeContext& n, Window& w, Ints& extra, const Shape& extents, const std::string& mode) {
  const std::size_t spatial = extents.size();
  Ints wanted = n.attr_ints("output_shape");
  if (wanted.size() == spatial + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (wanted.empty() && same) {
    for (std::size_t k = 0; k < spatial; ++k) wanted.push_back(extents[k] * w.strides[k]);
  }
  if (wanted.empty()) return {};
  if (wanted.size() != spatial) return n.bad("output_shape has {} entries, needs {}", wanted.size(), spatial);
  for (std::size_t k = 0; k < spatial; ++k) {
    if (wanted[k] < 1 || wanted[k] > kMostExtent)
      return n.bad("output_shape {} has an entry outside 1..2^40", ir::to_string(wanted));
    const std::int64_t full = (extents[k] - 1) * w.strides[k] + extra[k] + (w.kernel[k] - 1) * w.dilations[k] + 1;
    const std::int64_t total = full - wanted[k];
    if (total >= 0) {
      w.pads[k] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.pads[k + spatial] = total - w.pads[k];
    } else {
      w.pads[k] = w.pads[k + spatial] = 0;
      extra[k] -= total;  // more than the full result: zeros (bias) at the end
    }
  }
  return {};
}

Result<ValueId> convolve(NodeContext& n, bool transposed, ValueId x, ValueId weight, ValueId bias, Attrs more = {}) {
  const Shape& data = n.shape_of(x);
  const Shape& filter = n.shape_of(weight);
  if (data.size() < 3 || data.size() > 8 || filter.size() != data.size()) {
    return n.bad("data {} and weights {}: both need one rank, from 3 to 8", ir::to_string(data), ir::to_string(filter));
  }
  const Shape extents(data.begin() + 2, data.end());
  const Ints kernel(filter.begin() + 2, filter.end());
  const std::string mode = n.attr_text("auto_pad", "NOTSET");
  OCTAVO_TRY(Window w, read_window(n, extents, kernel, false));
  Attrs attrs = std::move(more);
  attrs["group"] = n.attr_int("group", 1), attrs["strides"] = w.strides, attrs["dilations"] = w.dilations;
  if (transposed) {
    Ints extra = n.attr_ints("output_padding", Ints(extents.size(), 0));
    if (extra.empty()) extra.assign(extents.size(), 0);
    if (extra.size() != extents.size()) return n.bad("output_padding has {} entries, needs {}", extra.size(), extents.size());
    for (const std::int64_t e : extra) {
      if (e < 0 || e > kMostExtent) return n.bad("output_padding {} has an entry outside 0..2^40", ir::to_string(extra));
    }
    OCTAVO_CHECK(resolve_transposed(n, w, extra, extents, mode));
    attrs["output_padding"] = extra;
  }
  attrs["pads"] = w.pads;
  return n.emit(transposed ? Op::conv_transpose : Op::conv, {x, weight, bias}, std::move(attrs));
}

Status conv(NodeContext& n) {
  return n.result(convolve(n, false, n.in(0), n.in(1), n.in(2)));
}
Status conv_transpose(NodeContext& n) {
  return n.result(convolve(n, true, n.in(0), n.in(1), n.in(2)));
}

/// com.microsoft.FusedConv: activation(conv(x, w, b) + z).
Status fused_conv(NodeContext& n) {
  OCTAVO_CHECK(conv(n));
  ValueId y = n.out(0);
  if (n.has(3)) {
    OCTAVO_TRY(y, n.emit(Op::add, {y, n.in(3)}));
  }
  return n.result(lower_fused_activation(n, y, n.attr_text("activation", ""), n.attr_floats("activation_params")));
}

constexpr std::array kConvRows{
    OpRow{"Conv", "", 1, 0, 2, 3, conv},
    OpRow{"ConvTranspose", "", 1, 0, 2, 3, conv_transpose},
    OpRow{"FusedConv", kMicrosoft, 1, 0, 2, 4, fused_conv},
};

}  // namespace

Family conv_ops() {
  return kConvRows;
}

Result<ValueId> lower_fused_activation(NodeContext& n, ValueId y, const std::string& activation, const std::vector<float>& params) {
  const auto param = [&](std::size_t i, float fallback) { return static_cast<double>(i < params.size() ? params[i] : fallback); };
  if (activation.empty()) return y;
  if (activation == "Relu") return n.emit(Op::relu, {y});
  if (activation == "Sigmoid") return n.emit(Op::sigmoid, {y});
  if (activation == "Tanh") return n.emit(Op::tanh, {y});
  if (activation == "Softplus") return n.emit(Op::softplus, {y});
  if (activation == "Softsign") return n.emit(Op::softsign, {y});
  if (activation == "Elu") return n.emit(Op::elu, {y}, {{"alpha", param(0, 1.0F)}});
  if (activation == "LeakyRelu") return n.emit(Op::leaky_relu, {y}, {{"alpha", param(0, 0.01F)}});
  if (activation == "Clip") return n.emit(Op::clip, {y}, {{"min", param(0, 0)}, {"max", param(1, 0)}});
  if (activation == "HardSigmoid") return n.emit(Op::hard_sigmoid, {y}, {{"alpha", param(0, 0.2F)}, {"beta", param(1, 0.5F)}});
  return n.unsupported("fused activation \"{}\"; save the model without ONNX Runtime's graph optimizations", activation);
}

Result<ValueId> lower_conv(NodeContext& n, ValueId x, ValueId w, ValueId bias, Attrs more) {
  return convolve(n, false, x, w, bias, std::move(more));
}

}  // namespace octavo::onnx
