// grid_sample: every mode, padding and number of dimensions; a thread an element, with the reference's operations in their order, so the same bits.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kGridSampleFunctions = R"(
// The coordinate thrown back at lo and hi until it lies between them.
OCTAVO_DEVICE float octavo_reflected(float x, float lo, float hi) {
  const float range = hi - lo;
  if (range <= 0.0f) return lo;
  if (x >= lo && x <= hi) return x;
  const float over = x < lo ? lo - x : x - hi;
  const long long turns = (long long)__fdiv_rn(over, range);
  const float rest = over - (float)turns * range;
  return (x < lo) == (turns % 2 == 0) ? lo + rest : hi - rest;
}
// The element that is read for coordinate i of so many; -1: a zero.
OCTAVO_DEVICE long long octavo_source(long long i, long long extent, float lo, float hi) {
  if (i >= 0 && i < extent) return i;
  if (kPadding == 0) return -1;
  const long long at = kPadding == 1 ? i : (long long)octavo_reflected((float)i, lo, hi);
  return at < 0 ? 0 : at > extent - 1 ? extent - 1 : at;
}
OCTAVO_DEVICE float octavo_outer(float d) { return ((-0.75f * d - 5.0f * -0.75f) * d + 8.0f * -0.75f) * d - 4.0f * -0.75f; }
OCTAVO_DEVICE float octavo_inner(float d) { return ((-0.75f + 2.0f) * d - (-0.75f + 3.0f)) * d * d + 1.0f; }
OCTAVO_DEVICE void octavo_taps(float normal, long long extent, long long* at, float* weight) {
  const float length = (float)extent;
  float x = kAlign ? (normal + 1.0f) / 2.0f * (length - 1.0f) : ((normal + 1.0f) * length - 1.0f) / 2.0f;
  if (x != x) x = -1.0f;
  x = x < -1.0e9f ? -1.0e9f : x > 1.0e9f ? 1.0e9f : x;
  if (kTaps == 1) x = rintf(x);
  const float lo = kAlign ? 0.0f : -0.5f, hi = kAlign ? length - 1.0f : length - 0.5f;
  if (x < lo || x > hi) {
    if (kPadding == 1 && kTaps != 4) x = x < 0.0f ? 0.0f : x > length - 1.0f ? length - 1.0f : x;
    if (kPadding == 2) x = octavo_reflected(x, lo, hi);
  }
  if (kTaps == 1) {
    at[0] = octavo_source((long long)x, extent, lo, hi), weight[0] = 1.0f;
    return;
  }
  const long long base = (long long)floorf(x);
  const float part = x - (float)base;
  if (kTaps == 2) {
    weight[0] = 1.0f - part, weight[1] = part;
  } else {
    weight[0] = octavo_outer(part + 1.0f), weight[1] = octavo_inner(part), weight[2] = octavo_inner(1.0f - part);
    weight[3] = octavo_outer(2.0f - part);
  }
  for (int k = 0; k < kTaps; ++k) at[k] = octavo_source(base + k - (kTaps == 4 ? 1 : 0), extent, lo, hi);
}
)";

constexpr const char* kGridSampleBody = R"(
  const long long point = i % kPoints, channel = i / kPoints, image = channel / kChannels;
  long long at[kSpatial * kTaps];
  float weight[kSpatial * kTaps];
  // The grid's last axis has the innermost dimension first.
  for (int d = 0; d < kSpatial; ++d)
    octavo_taps(octavo_x1(t, (image * kPoints + point) * kSpatial + (kSpatial - 1 - d)), octavo_extent(d), at + d * kTaps, weight + d * kTaps);
  float sum = 0.0f;
  for (int tap = 0; tap < kAllTaps; ++tap) {
    long long from = 0;
    float w = 1.0f;
    for (int d = 0, part = kAllTaps / kTaps; d < kSpatial; ++d, part /= kTaps) {
      const int k = d * kTaps + tap / part % kTaps;
      from = from < 0 || at[k] < 0 ? -1 : from * octavo_extent(d) + at[k];
      w = w * weight[k];
    }
    if (from >= 0) sum = __fmaf_rn(octavo_x0(t, channel * kPlane + from), w, sum);
  }
  octavo_put0(t, i, sum);
)";

class GridSampleFamily final : public PlainFamily {
 public:
  GridSampleFamily() : PlainFamily("grid_sample", {ir::Op::grid_sample}, 2) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const ir::Shape &x = s.anchor.inputs[0].dims, &grid = s.anchor.inputs[1].dims;
    const std::size_t rank = x.size();
    if (rank < 3 || grid.size() != rank || grid.back() != static_cast<std::int64_t>(rank) - 2 || grid[0] != x[0])
      return fail(ErrorKind::bad_engine, fmt::format("grid_sample of {} with {}", ir::to_string(x), ir::to_string(grid)));
    ir::Shape y{x[0], x[1]};
    y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
    return std::vector<ir::Shape>{y};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::GridSample>();
    const ir::Shape& x = s.anchor.inputs[0].dims;
    OCTAVO_TRY(const std::vector<ir::Shape> y, shapes(s));
    const int taps = facts.mode == ir::Interpolation::nearest ? 1 : facts.mode == ir::Interpolation::linear ? 2 : 4;
    std::int64_t points = 1, plane = 1, all = 1;
    std::string extent = "OCTAVO_DEVICE long long octavo_extent(int d) { return ";
    for (std::size_t d = 2; d < x.size(); ++d) {
      points *= y[0][d], plane *= x[d], all *= taps;
      extent += d + 1 == x.size() ? fmt::format("{}ll; }}\n", x[d]) : fmt::format("d == {} ? {}ll : ", d - 2, x[d]);
    }
    if (all > 1024) return refuse("elements that a sample reads", all, "at most 1024");
    PlainText t;
    t.functions =
        fmt::format(
            "constexpr int kSpatial = {}, kTaps = {}, kAllTaps = {}, kPadding = {};\nconstexpr bool kAlign = {};\nconstexpr long "
            "long kPoints = {}, kChannels = {}, kPlane = {};\n{}",
            x.size() - 2, taps, all,
            facts.padding == ir::Outside::zeros    ? 0
            : facts.padding == ir::Outside::border ? 1
                                                   : 2,
            facts.align_corners, points, x[1], plane, extent) +
        kGridSampleFunctions;
    t.passes = {PlainPass{kGridSampleBody, ir::count(y[0])}};
    t.work = static_cast<double>(ir::count(y[0]) * all);
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(grid_sample, GridSampleFamily)

}  // namespace octavo::cuda
