// non_max_suppression: a block for each class of an image takes the box with the largest score, the first of equal ones, and drops what overlaps it, until
// nothing is left or enough are taken; then the rows of all classes are written one behind the other, and -1 behind them.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

constexpr const char* kNonMaxSuppressionFunctions = R"(
struct OctavoBox {
  float y0, x0, y1, x1;
};
OCTAVO_DEVICE OctavoBox octavo_box(const OctavoTensors& t, long long i) {
  const float a = octavo_x0(t, 4 * i), b = octavo_x0(t, 4 * i + 1), c = octavo_x0(t, 4 * i + 2), d = octavo_x0(t, 4 * i + 3);
  if (kCentre) return {b - d / 2.0f, a - c / 2.0f, b + d / 2.0f, a + c / 2.0f};
  return {octavo_lt(c, a, c, a), octavo_lt(d, b, d, b), octavo_lt(a, c, c, a), octavo_lt(b, d, d, b)};
}
OCTAVO_DEVICE bool octavo_overlap(const OctavoBox& p, const OctavoBox& q, float threshold) {
  const float h = octavo_lt(q.y1, p.y1, q.y1, p.y1) - octavo_lt(p.y0, q.y0, q.y0, p.y0);
  const float w = octavo_lt(q.x1, p.x1, q.x1, p.x1) - octavo_lt(p.x0, q.x0, q.x0, p.x0);
  if (h <= 0.0f || w <= 0.0f) return false;
  const float both = h * w, first = (p.y1 - p.y0) * (p.x1 - p.x0), second = (q.y1 - q.y0) * (q.x1 - q.x0);
  if (first <= 0.0f || second <= 0.0f) return false;
  return __fdiv_rn(both, first + second - both) > threshold;
}
)";

// Scratch memory: how many boxes each class has taken; which ones; a byte for each box of a class that is not 0 while it may be taken.
constexpr const char* kNonMaxSuppressionSelect = R"(
  __shared__ float scores[256];
  __shared__ int places[256];
  const int mine = octavo_thread();
  const long long line = octavo_block(), image = line / kClasses;
  int* const taken = (int*)t.w + kLines + line * kMost;
  unsigned char* const left = t.w + 4 * (kLines + kLines * kMost) + line * kBoxes;
  const float iou = octavo_x2(t, 0), least = octavo_x3(t, 0);
  for (int k = mine; k < kBoxes; k += 256) left[k] = octavo_x1(t, line * kBoxes + k) > least ? 1 : 0;
  int count = 0;
  for (; count < kMost; ++count) {
    float score = 0.0f;
    int place = -1;
    for (int k = mine; k < kBoxes; k += 256) {
      if (left[k] == 0) continue;
      const float v = octavo_x1(t, line * kBoxes + k);
      if (place < 0 || v > score) score = v, place = k;
    }
    scores[mine] = score, places[mine] = place;
    for (int half = 128; half > 0; half /= 2) {
      octavo_barrier();
      if (mine >= half) continue;
      const float v = scores[mine + half];
      const int p = places[mine + half];
      if (p < 0 || (place >= 0 && (v < score || (v == score && p > place)))) continue;
      scores[mine] = score = v, places[mine] = place = p;
    }
    octavo_barrier();
    const int best = places[0];
    octavo_barrier();
    if (best < 0) break;
    if (mine == 0) taken[count] = best;
    const OctavoBox box = octavo_box(t, image * kBoxes + best);
    for (int k = mine; k < kBoxes; k += 256) {
      if (left[k] != 0 && (k == best || octavo_overlap(octavo_box(t, image * kBoxes + k), box, iou))) left[k] = 0;
    }
  }
  if (mine == 0) ((int*)t.w)[line] = count;
)";

constexpr const char* kNonMaxSuppressionWrite = R"(
  long long first = 0, line = 0;
  while (line < kLines && i >= first + ((const int*)t.w)[line]) first += ((const int*)t.w)[line++];
  const bool there = line < kLines;
  octavo_put0(t, 3 * i, there ? line / kClasses : -1);
  octavo_put0(t, 3 * i + 1, there ? line % kClasses : -1);
  octavo_put0(t, 3 * i + 2, there ? (long long)((const int*)t.w)[kLines + line * kMost + (i - first)] : -1);
)";

class NonMaxSuppressionFamily final : public PlainFamily {
 public:
  NonMaxSuppressionFamily() : PlainFamily("non_max_suppression", {ir::Op::non_max_suppression}, 4) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    return std::vector<ir::Shape>{{s.anchor.as<ir::Suppression>().count, 3}};
  }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::Suppression>();
    const ir::Shape &boxes = s.anchor.inputs[0].dims, &scores = s.anchor.inputs[1].dims;
    if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
      return fail(ErrorKind::bad_engine,
                  fmt::format("non_max_suppression of {} with {}", ir::to_string(boxes), ir::to_string(scores)));
    for (const region::TensorRef& x : s.anchor.inputs) {
      if (!reads_floats(x) || ir::count(x.dims) == 0)
        return refuse("an input", fmt::format("{}{}", ir::name_of(x.dtype), ir::to_string(x.dims)), "floats");
    }
    const std::int64_t lines = scores[0] * scores[1], most = facts.count / lines;
    if (scores[2] >= (std::int64_t{1} << 30)) return refuse("boxes", scores[2], "less than 2^30");
    PlainText t;
    t.functions =
        fmt::format("constexpr bool kCentre = {};\nconstexpr long long kClasses = {}, kLines = {}, kBoxes = {}, kMost = {};\n",
                    facts.center_point_box, scores[1], lines, scores[2], most) +
        kNonMaxSuppressionFunctions;
    t.scratch_bytes = 4 * lines * (1 + most) + lines * scores[2];
    t.passes = {PlainPass{kNonMaxSuppressionSelect, lines * 256, 256, true}, PlainPass{kNonMaxSuppressionWrite, facts.count}};
    t.work = static_cast<double>(lines * most * scores[2]);
    t.chain = static_cast<double>(most * (scores[2] / 256 + 16));
    return t;
  }
};

}  // namespace

const Family& non_max_suppression_family() {
  static const NonMaxSuppressionFamily family;
  return family;
}

}  // namespace octavo::cuda
