// deform_conv: a thread an element, with the reference's operations in their order, so the same bits.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kDeformConvBody = R"(
  const long long at = i % kArea, m = i / kArea % kOutputs, n = i / (kArea * kOutputs);
  float sum = octavo_x3(t, m);
  for (long long c = 0; c < kDepth; ++c) {
    const long long channel = m / (kOutputs / kGroups) * kDepth + c, plane = (n * kChannels + channel) * kHeight * kWidth;
    for (long long k = 0; k < kTaps; ++k) {
      const long long slot = (n * kOffsets + channel / (kChannels / kOffsets)) * kTaps + k;
      const float y = (float)(at / kColumns * kStride0 - kPad0 + k / kKernel1 * kDilation0) + octavo_x2(t, 2 * slot * kArea + at);
      const float x = (float)(at % kColumns * kStride1 - kPad1 + k % kKernel1 * kDilation1) + octavo_x2(t, (2 * slot + 1) * kArea + at);
      float v = 0.0f;  // linear between the four neighbours; those outside count as 0
      if (y > -1.0f && y < (float)kHeight && x > -1.0f && x < (float)kWidth) {
        const long long y0 = (long long)floorf(y), x0 = (long long)floorf(x);
        const float ly = y - (float)y0, lx = x - (float)x0;
        for (int q = 0; q < 4; ++q) {
          const long long r = y0 + q / 2, column = x0 + q % 2;
          if (r < 0 || r >= kHeight || column < 0 || column >= kWidth) continue;
          v = __fmaf_rn((q / 2 != 0 ? ly : 1.0f - ly) * (q % 2 != 0 ? lx : 1.0f - lx), octavo_x0(t, plane + r * kWidth + column), v);
        }
      }
      sum = __fmaf_rn(octavo_x1(t, (m * kDepth + c) * kTaps + k), v * octavo_x4(t, slot * kArea + at), sum);
    }
  }
  octavo_put0(t, i, sum);
)";

class DeformConvFamily final : public PlainFamily {
 public:
  DeformConvFamily() : PlainFamily("deform_conv", {ir::Op::deform_conv}, 5) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const auto& w = s.anchor.as<ir::Window>();
    const ir::Shape &x = s.anchor.inputs[0].dims, &k = s.anchor.inputs[1].dims, &offset = s.anchor.inputs[2].dims;
    const auto bad = [&] {
      return fail(ErrorKind::bad_engine,
                  fmt::format("deform_conv of {} with {} and {}", ir::to_string(x), ir::to_string(k), ir::to_string(offset)));
    };
    if (x.size() != 4 || k.size() != 4 || offset.size() != 4 || w.strides.size() != 2 || w.dilations.size() != 2 ||
        w.pads.size() != 4)
      return bad();
    ir::Shape y{x[0], k[0], offset[2], offset[3]};
    const std::int64_t taps = k[2] * k[3], area = y[2] * y[3];
    const bool fits = w.group > 0 && w.offset_group > 0 && k[1] * w.group == x[1] && k[0] % w.group == 0 &&
                      x[1] % w.offset_group == 0 && offset == ir::Shape{x[0], 2 * w.offset_group * taps, y[2], y[3]} &&
                      ir::count(s.anchor.inputs[3].dims) == k[0] &&
                      ir::count(s.anchor.inputs[4].dims) == x[0] * w.offset_group * taps * area;
    if (!fits) return bad();
    return std::vector<ir::Shape>{y};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& w = s.anchor.as<ir::Window>();
    const ir::Shape &x = s.anchor.inputs[0].dims, &k = s.anchor.inputs[1].dims;
    OCTAVO_TRY(const std::vector<ir::Shape> y, shapes(s));
    PlainText t;
    t.functions = fmt::format(
        "constexpr long long kChannels = {}, kHeight = {}, kWidth = {}, kOutputs = {}, kDepth = {}, kTaps = {}, kKernel1 = {}, "
        "kGroups = {}, "
        "kOffsets = {}, kArea = {}, kColumns = {}, kStride0 = {}, kStride1 = {}, kPad0 = {}, kPad1 = {}, kDilation0 = {}, "
        "kDilation1 = {};\n",
        x[1], x[2], x[3], k[0], k[1], k[2] * k[3], k[3], w.group, w.offset_group, y[0][2] * y[0][3], y[0][3], w.strides[0],
        w.strides[1], w.pads[0], w.pads[1], w.dilations[0], w.dilations[1]);
    t.passes = {PlainPass{kDeformConvBody, ir::count(y[0])}};
    t.work = 6.0 * static_cast<double>(ir::count(y[0])) * static_cast<double>(k[1] * k[2] * k[3]);
    t.chain = static_cast<double>(k[1] * k[2] * k[3]);
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(deform_conv, DeformConvFamily)

}  // namespace octavo::cuda
