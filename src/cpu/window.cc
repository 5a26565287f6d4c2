#include "cpu/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "region/refusal.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {

std::vector<AxisPhase> WindowAxis::phases() const {
  std::vector<AxisPhase> list;
  const std::int64_t n = transposed ? std::min(stride, out) : 1;
  for (std::int64_t p = 0; p < n; ++p) {
    AxisPhase phase;
    phase.first = p;
    phase.step = transposed ? stride : 1;
    phase.in_step = transposed ? 1 : stride;
    phase.count = (out - p + phase.step - 1) / phase.step;
    for (std::int64_t k = 0; k < kernel; ++k) {
      if (!transposed) {
        phase.taps.push_back({k, k * dilation - pad});
      } else if ((p + pad - k * dilation) % stride == 0) {
        phase.taps.push_back({k, (p + pad - k * dilation) / stride});
      }
    }
    std::sort(phase.taps.begin(), phase.taps.end(), [](const Tap& a, const Tap& b) { return a.shift < b.shift; });
    list.push_back(std::move(phase));
  }
  return list;
}

Result<Image> Image::of(const region::Stage& stage, const std::vector<std::int64_t>& kernel) {
  const region::Anchor& a = stage.anchor;
  const std::size_t rank = stage.space.size();
  const region::TensorRef& x = a.inputs[0];
  if (rank < 3 || rank > 5 || x.dims.size() != rank || kernel.size() != rank - 2) {
    return region::refuse("window",
                          fmt::format("{} over {} to {}", ir::to_string(kernel), ir::to_string(x.dims), ir::to_string(stage.space)),
                          "1 to 3 spatial dimensions");
  }
  const std::size_t spatial = rank - 2;
  const auto& window = a.as<ir::Window>();
  Image im;
  im.n = 0;
  im.c = 1;
  im.batch = stage.space[0];
  const auto size = element_bytes(x);
  im.xn = x.strides[0] * size;
  im.xc = x.strides[1] * size;
  WindowAxis* const windows[] = {&im.depth, &im.height, &im.width};
  int* const dims[] = {&im.d, &im.h, &im.w};
  std::int64_t* const steps[] = {&im.xd, &im.xh, &im.xw};
  for (std::size_t k = 0; k < spatial; ++k) {
    const std::size_t slot = 3 - spatial + k;
    *windows[slot] = {x.dims[2 + k],
                      stage.space[2 + k],
                      kernel[k],
                      window.strides[k],
                      window.dilations[k],
                      window.pads[k],
                      a.op == ir::Op::conv_transpose};
    *dims[slot] = static_cast<int>(2 + k);
    *steps[slot] = x.strides[2 + k] * size;
  }
  const auto single = [](const WindowAxis& one) { return one.in == 1 && one.out == 1 && one.kernel == 1 && one.pad == 0; };
  if (im.batch > 1 && single(im.depth) && single(im.height) && single(im.width)) {
    std::swap(im.n, im.w);
    std::swap(im.xn, im.xw);
    im.width.in = im.width.out = im.batch;
    im.width.stride = 1;
    im.width.transposed = false;
    im.batch = 1;
  }
  return im;
}

}  // namespace octavo::cpu
