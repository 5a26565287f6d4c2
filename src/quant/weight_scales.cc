#include "quant/weight_scales.h"

#include <algorithm>
#include <cmath>

namespace octavo::quant {
namespace {

bool reproduces(const std::vector<float>& w, float s) {
  return std::all_of(w.begin(), w.end(), [s](float x) {
    const float q = std::nearbyint(x / s);
    return std::abs(q) <= 127 && q * s == x;
  });
}

float scale_of(const std::vector<float>& w) {
  float most = 1e-9F;
  for (const float x : w) most = std::max(most, std::abs(x));
  const float s = most / 127.0F;
  float up = s, down = s;
  for (int ulp = 0; ulp <= 2; ++ulp) {
    if (reproduces(w, up)) return up;
    if (reproduces(w, down)) return down;
    up = std::nextafter(up, INFINITY);
    down = std::nextafter(down, 0.0F);
  }
  return s;
}

}  // namespace

std::vector<float> weight_scales(const ir::Tensor& w, int axis) {
  const auto values = w.data<float>();
  if (axis < 0) return {scale_of({values.begin(), values.end()})};
  const auto channels = w.shape()[static_cast<std::size_t>(axis)];
  const auto step = ir::dense_strides(w.shape())[static_cast<std::size_t>(axis)];
  std::vector<std::vector<float>> of(static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < values.size(); ++i)
    of[static_cast<std::size_t>(static_cast<std::int64_t>(i) / step % channels)].push_back(values[i]);
  std::vector<float> scales;
  for (const auto& channel : of) scales.push_back(scale_of(channel));
  return scales;
}

int weight_axis(ir::Op op, std::int64_t group) {
  if (op == ir::Op::conv) return 0;
  return op == ir::Op::conv_transpose && group > 1 ? -1 : 1;
}

ir::Quantizer weight_quantizer(const ir::Graph& g, const ir::Node& n) {
  ir::Quantizer q;
  q.type = ir::DType::s8;
  q.axis = weight_axis(n.op, ir::get_int(n.attrs, "group", 1));
  q.scale = weight_scales(g.payload(n.inputs[1]), q.axis);
  q.zero_point.assign(q.scale.size(), 0);
  return q;
}

}  // namespace octavo::quant
