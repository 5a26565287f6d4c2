// cpu.non_max_suppression.rows.<isa>: boxes by falling score, each that overlaps none of those taken before is taken. Vectors pass over scores that
// are too low, and compare one box with 16 that are taken, corners side by side. The reference's operations, so the same boxes.
#include <algorithm>
#include <bit>

#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr int kCorners = 4, kBoxRows = 5;  ///< of a box; with its area

struct NonMaxSuppressionSetting {
  std::vector<region::TensorRef> in = {}, stores = {};
  Isa isa = Isa::portable;
  std::int64_t batches = 0, boxes = 0, classes = 0, most = 0, rows = 0;
  bool centre = false;
};

Result<NonMaxSuppressionSetting> non_max_suppression_setting(const Stage& s, Isa isa) {
  const auto& in = s.anchor.inputs;
  for (const region::TensorRef& r : in) {
    if (r.dtype != ir::DType::f32) return refuse("type of an input", ir::name_of(r.dtype), "f32");
  }
  const ir::Shape &boxes = in[0].dims, &scores = in[1].dims;
  const auto& suppression = s.anchor.as<ir::Suppression>();
  const std::int64_t count = suppression.count;
  if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != kCorners || scores[0] != boxes[0] || scores[2] != boxes[1] ||
      ir::count(in[2].dims) != 1 || ir::count(in[3].dims) != 1 || count < 0)
    return fail(ErrorKind::bad_engine,
                fmt::format("non_max_suppression of {} and {}", ir::to_string(boxes), ir::to_string(scores)));
  NonMaxSuppressionSetting t{in, s.stores, isa, boxes[0], boxes[1], scores[1], 0, count, suppression.center_point_box};
  if (t.batches * t.classes > 0) t.most = count / (t.batches * t.classes);
  if (t.boxes >= std::int64_t{1} << 31) return refuse("boxes", t.boxes, "fewer than 2^31");
  for (const region::TensorRef& r : s.stores) {
    if (r.dtype != ir::DType::s64 || r.dims != ir::Shape{count, 3})
      return fail(ErrorKind::bad_engine,
                  fmt::format("non_max_suppression: a result is {} {}", ir::name_of(r.dtype), ir::to_string(r.dims)));
  }
  return t;
}

class SuppressKernel final : public Kernel {
 public:
  explicit SuppressKernel(NonMaxSuppressionSetting setting)
      : k_(row_kernels(setting.isa)), t_(std::move(setting)), score_step_(stride(t_.in[1], 2)) {
    step_ = (std::min(t_.most, t_.boxes) + kBoxes - 1) / kBoxes * kBoxes;
  }

  std::size_t scratch_bytes() const override {
    const auto boxes = static_cast<std::size_t>(t_.boxes);
    return line(boxes * 8) + line(boxes * 4) + line(static_cast<std::size_t>(kBoxRows * step_) * 4);
  }

  void run(const Memory& memory, int, int, const Worker& worker) const override {
    auto* const queue = reinterpret_cast<std::uint64_t*>(worker.scratch);
    auto* const line_scores = reinterpret_cast<float*>(worker.scratch + line(static_cast<std::size_t>(t_.boxes) * 8));
    auto* const taken =
        reinterpret_cast<float*>(reinterpret_cast<std::byte*>(line_scores) + line(static_cast<std::size_t>(t_.boxes) * 4));
    const float iou = *reinterpret_cast<const float*>(memory.at(t_.in[2])),
                least = *reinterpret_cast<const float*>(memory.at(t_.in[3]));
    std::int64_t rows = 0;
    for (std::int64_t n = 0; n < t_.batches; ++n) {
      const auto* boxes = reinterpret_cast<const float*>(memory.at(t_.in[0])) + n * stride(t_.in[0], 0);
      for (std::int64_t c = 0; c < t_.classes; ++c) {
        const auto* scores =
            reinterpret_cast<const float*>(memory.at(t_.in[1])) + n * stride(t_.in[1], 0) + c * stride(t_.in[1], 1);
        if (score_step_ != 1) {
          for (std::int64_t i = 0; i < t_.boxes; ++i) line_scores[i] = scores[i * score_step_];
          scores = line_scores;
        }
        std::uint64_t* end = queue;
        for (std::int64_t i = 0; (i = k_.next_greater_float(scores, i, t_.boxes, least)) < t_.boxes; ++i)
          *end++ = packed(scores[i], i);
        std::make_heap(queue, end);
        std::fill_n(taken, kBoxRows * step_, 0.0F);
        for (std::int64_t kept = 0; kept < t_.most && end != queue;) {
          std::pop_heap(queue, end);
          const std::int64_t i = 0xffffffffU - static_cast<std::uint32_t>(*--end);
          float box[kCorners];
          corners(boxes + i * stride(t_.in[0], 1), box);
          if (k_.overlaps({taken, step_}, kept, box, iou)) continue;
          for (int k = 0; k < kCorners; ++k) taken[k * step_ + kept] = box[k];
          taken[kCorners * step_ + kept] = (box[2] - box[0]) * (box[3] - box[1]);
          ++kept;
          store(memory, rows++, n, c, i);
        }
      }
    }
    for (; rows < t_.rows; ++rows) store(memory, rows, -1, -1, -1);
  }

 private:
  static std::int64_t stride(const region::TensorRef& r, std::size_t d) { return r.dims[d] == 1 ? 1 : r.strides[d]; }

  /// Greater where the score is, and where the box comes earlier among equal ones. A score is no NaN here.
  static std::uint64_t packed(float score, std::int64_t at) {
    const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
    const std::uint32_t key = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
    return std::uint64_t{key} << 32 | (0xffffffffU - static_cast<std::uint32_t>(at));
  }

  void corners(const float* at, float* box) const {
    const std::int64_t step = stride(t_.in[0], 2);
    const float c[kCorners] = {at[0], at[step], at[2 * step], at[3 * step]};
    if (t_.centre) {
      box[0] = c[1] - c[3] / 2, box[1] = c[0] - c[2] / 2, box[2] = c[1] + c[3] / 2, box[3] = c[0] + c[2] / 2;
    } else {
      box[0] = std::min(c[0], c[2]), box[1] = std::min(c[1], c[3]), box[2] = std::max(c[0], c[2]), box[3] = std::max(c[1], c[3]);
    }
  }

  void store(const Memory& memory, std::int64_t row, std::int64_t n, std::int64_t c, std::int64_t i) const {
    for (const region::TensorRef& r : t_.stores) {
      auto* const to = reinterpret_cast<std::int64_t*>(memory.at(r)) + row * stride(r, 0);
      const std::int64_t step = stride(r, 1);
      to[0] = n, to[step] = c, to[2 * step] = i;
    }
  }

  const RowKernels& k_;
  NonMaxSuppressionSetting t_;
  std::int64_t score_step_ = 1, step_ = 0;
};

class SuppressFamily final : public KernelFamily<NonMaxSuppressionSetting, SuppressKernel> {
 public:
  SuppressFamily()
      : KernelFamily({.name = "non_max_suppression.rows", .about = {{ir::Op::non_max_suppression}, 4, Results::raw}}) {}
  Match<NonMaxSuppressionSetting> match(const Request& q) const override {
    return non_max_suppression_setting(only(q.region), q.isa);
  }
  double cost(const NonMaxSuppressionSetting& t, Isa isa) const override {
    const auto scores = static_cast<double>(ir::count(t.in[1].dims)), taken = static_cast<double>(t.rows);
    constexpr double kUsual = 100;  // boxes that one is compared with: without a limit most of them are suppressed
    const double others = std::min(static_cast<double>(t.most), kUsual);
    return (scores * slowdown(isa) + taken * (50.0 + others * slowdown(isa))) * kSecondsPerCycle + 0.3e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(non_max_suppression, SuppressFamily)

}  // namespace octavo::cpu
