// roi_align: a thread an element, with the reference's operations in their order, so the same bits. Regions of a batch index that there is not, or too large
// for any image, which are errors of the caller's data, give zeros.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kRoiAlignBody = R"(
  const long long column = i % kWidth, row = i / kWidth % kHeight, channel = i / (kWidth * kHeight) % kChannels;
  const long long roi = i / (kWidth * kHeight * kChannels), image = octavo_x2(t, roi);
  const float shift = kHalf ? 0.5f : 0.0f;
  const float left = octavo_x1(t, 4 * roi) * kScale - shift, top = octavo_x1(t, 4 * roi + 1) * kScale - shift;
  float width = octavo_x1(t, 4 * roi + 2) * kScale - shift - left, height = octavo_x1(t, 4 * roi + 3) * kScale - shift - top;
  if (!kHalf) width = octavo_lt(width, 1.0f, 1.0f, width), height = octavo_lt(height, 1.0f, 1.0f, height);
  const float bin_h = __fdiv_rn(height, (float)kHeight), bin_w = __fdiv_rn(width, (float)kWidth);
  if (image < 0 || image >= kImages || !(bin_h <= 65536.0f && bin_w <= 65536.0f)) {
    octavo_put0(t, i, 0.0f);
    return;
  }
  const long long rows = kRatio > 0 ? kRatio : (long long)ceilf(bin_h), columns = kRatio > 0 ? kRatio : (long long)ceilf(bin_w);
  const long long plane = (image * kChannels + channel) * kImageHeight * kImageWidth;
  float result = 0.0f;
  bool first = true;
  for (long long k = 0; k < rows * columns; ++k) {
    float y = top + ((float)row + __fdiv_rn((float)(k / columns) + 0.5f, (float)rows)) * bin_h;
    float x = left + ((float)column + __fdiv_rn((float)(k % columns) + 0.5f, (float)columns)) * bin_w;
    long long at[4] = {0, 0, 0, 0};
    float weight[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (y >= -1.0f && y <= (float)kImageHeight && x >= -1.0f && x <= (float)kImageWidth) {
      y = octavo_lt(y, 0.0f, 0.0f, y), x = octavo_lt(x, 0.0f, 0.0f, x);
      long long y0 = (long long)y, x0 = (long long)x, y1 = y0 + 1, x1 = x0 + 1;
      if (y0 >= kImageHeight - 1) y0 = y1 = kImageHeight - 1, y = (float)y0;
      if (x0 >= kImageWidth - 1) x0 = x1 = kImageWidth - 1, x = (float)x0;
      const float ly = y - (float)y0, lx = x - (float)x0, hy = 1.0f - ly, hx = 1.0f - lx;
      at[0] = y0 * kImageWidth + x0, at[1] = y0 * kImageWidth + x1, at[2] = y1 * kImageWidth + x0, at[3] = y1 * kImageWidth + x1;
      weight[0] = hy * hx, weight[1] = hy * lx, weight[2] = ly * hx, weight[3] = ly * lx;
    }
    for (int q = 0; q < 4; ++q) {
      const float tap = octavo_x0(t, plane + at[q]), part = weight[q] * tap;
      result = !kLargest ? __fmaf_rn(tap, weight[q], result) : first ? part : octavo_lt(result, part, part, result);
      first = false;
    }
  }
  if (!kLargest) result = __fdiv_rn(result, (float)(rows * columns > 1 ? rows * columns : 1));
  octavo_put0(t, i, result);
)";

class RoiAlignFamily final : public PlainFamily {
 public:
  RoiAlignFamily() : PlainFamily("roi_align", {ir::Op::roi_align}, 3) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::RoiAlign>();
    const ir::Shape &x = s.anchor.inputs[0].dims, &rois = s.anchor.inputs[1].dims, &images = s.anchor.inputs[2].dims;
    if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || images != ir::Shape{rois[0]} || facts.output_height < 1 ||
        facts.output_width < 1)
      return fail(ErrorKind::bad_engine, fmt::format("roi_align of {} in {}", ir::to_string(rois), ir::to_string(x)));
    return std::vector<ir::Shape>{{rois[0], x[1], facts.output_height, facts.output_width}};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::RoiAlign>();
    const ir::Shape& x = s.anchor.inputs[0].dims;
    OCTAVO_TRY(const std::vector<ir::Shape> y, shapes(s));
    if (ir::count(x) == 0) return refuse("elements of the image", 0, "some");
    PlainText t;
    t.functions = fmt::format(
        "constexpr bool kHalf = {}, kLargest = {};\nconstexpr long long kRatio = {}, kImages = {}, kChannels = {}, kImageHeight = "
        "{}, "
        "kImageWidth = {}, kHeight = {}, kWidth = {};\n#define kScale {}\n",
        facts.half_pixel, facts.mode == ir::RoiPooling::max, facts.sampling_ratio, x[0], x[1], x[2], x[3], facts.output_height,
        facts.output_width, float_text(static_cast<float>(facts.spatial_scale)));
    t.passes = {in_order({kRoiAlignBody, ir::count(y[0])})};
    const auto ratio = static_cast<double>(facts.sampling_ratio > 0 ? facts.sampling_ratio : 2);
    t.work = static_cast<double>(ir::count(y[0])) * 4 * ratio * ratio;
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(roi_align, RoiAlignFamily)

}  // namespace octavo::cuda
