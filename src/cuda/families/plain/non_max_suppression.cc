// non_max_suppression: a block for each class of an image takes the box with the largest score, the first of equal ones, and drops what overlaps it, until
// nothing is left or enough are taken; then the rows of all classes are written one behind the other, and -1 behind them. A thread holds a bit for each of
// its boxes that may still be taken; while it drops boxes, it finds the best one of those that stay.
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
// The best of all lanes: the largest score, and the lower place of equal ones; a place below 0 is none.
OCTAVO_DEVICE void octavo_best_of_warp(float& score, int& place) {
  OCTAVO_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const float v = __int_as_float(octavo_shuffle_xor(__float_as_int(score), mask));
    const int p = octavo_shuffle_xor(place, mask);
    if (p < 0 || (place >= 0 && (v < score || (v == score && p > place)))) continue;
    score = v, place = p;
  }
}
)";

// Scratch memory: how many boxes each class has taken; which ones.
constexpr const char* kNonMaxSuppressionSelect = R"(
  __shared__ int scores[64], places[64];
  const int mine = octavo_thread(), lane = mine % 32;
  const long long line = octavo_block(), image = line / kClasses;
  int* const taken = (int*)t.w + kLines + line * kMost;
  const float iou = octavo_x2(t, 0), least = octavo_x3(t, 0);
  unsigned left[kWords];
  float score = 0.0f;
  int place = -1, count = 0;
  OCTAVO_UNROLL
  for (int word = 0; word < kWords; ++word) {
    left[word] = 0;
    for (int r = 0; r < 32; ++r) {
      const int k = (32 * word + r) * kBlock + mine;
      if (k >= kBoxes) break;
      const float v = octavo_x1(t, line * kBoxes + k);
      if (!(v > least)) continue;
      left[word] |= 1u << r;
      if (place < 0 || v > score) score = v, place = k;
    }
  }
  for (; count < kMost; ++count) {
    // Of the warp, then of the warps, in one half of the shared memory while slower warps may still read the other one.
    const int half = count % 2 * 32;
    octavo_best_of_warp(score, place);
    if (lane == 0) scores[half + mine / 32] = __float_as_int(score), places[half + mine / 32] = place;
    octavo_barrier();
    float best_score = __int_as_float(scores[half + lane % (kBlock / 32)]);
    int best = places[half + lane % (kBlock / 32)];
    octavo_best_of_warp(best_score, best);
    if (best < 0) break;
    if (mine == 0) taken[count] = best;
    const OctavoBox box = octavo_box(t, image * kBoxes + best);
    place = -1;
    OCTAVO_UNROLL
    for (int word = 0; word < kWords; ++word) {
      if (left[word] == 0) continue;
      for (int r = 0; r < 32; ++r) {
        if ((left[word] >> r & 1u) == 0) continue;
        const int k = (32 * word + r) * kBlock + mine;
        if (k == best || octavo_overlap(octavo_box(t, image * kBoxes + k), box, iou)) {
          left[word] &= ~(1u << r);
          continue;
        }
        const float v = octavo_x1(t, line * kBoxes + k);
        if (place < 0 || v > score) score = v, place = k;
      }
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
    int block = 32;
    while (block < 1024 && block < scores[2]) block *= 2;
    t.functions =
        fmt::format(
            "constexpr bool kCentre = {};\nconstexpr long long kClasses = {}, kLines = {}, kBoxes = {}, kMost = {};\nconstexpr int "
            "kBlock = {}, kWords = {};\n",
            facts.center_point_box, scores[1], lines, scores[2], most, block, parts(scores[2], 32 * block)) +
        kNonMaxSuppressionFunctions;
    t.scratch_bytes = 4 * lines * (1 + most);
    t.passes = {PlainPass{kNonMaxSuppressionSelect, lines * block, block, true}, PlainPass{kNonMaxSuppressionWrite, facts.count}};
    t.work = static_cast<double>(lines * most * scores[2]);
    t.chain = static_cast<double>(most * (scores[2] / block + 16));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(non_max_suppression, NonMaxSuppressionFamily)

}  // namespace octavo::cuda
