// cpu.roi_align.<isa>: RoiAlign on float32. Each sample of a bin is a sum of four neighbours, which lie and weigh the same for every channel: vectors go along the
// channels where they are neighbours in memory, else along the bins of a region. Regions whose batch index is negative are zeros, without
// being sampled. The same operations in the same order as the reference evaluator's, so the same bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cpu/families/element_families.h"
#include "cpu/families/row_families.h"
#include "cpu/table.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using ir::DType;
using region::TensorRef;

constexpr std::int64_t kCorners = 4;  ///< neighbours of a sample, and numbers of a region
constexpr std::int64_t kMostBins = 4096, kMostColumns = 256, kMostChannels = 1 << 16, kMostSums = 1 << 22;

struct RoiAlignSetting {
  ir::RoiAlign roi = {};
  TensorRef x = {}, rois = {}, batches = {}, y = {};
  ir::Shape space = {};
  Isa isa = Isa::portable;
  std::optional<BlockEpilogue> epilogue = {};  ///< absent: the sums are stored as they are
};

Result<RoiAlignSetting> roi_align_setting(const Stage& s, Isa isa) {
  const auto& in = s.anchor.inputs;
  for (const std::size_t i : {0U, 1U}) {
    if (in[i].dtype != DType::f32 || in[i].quantizer) return refuse("type of an operand", ir::name_of(in[i].dtype), "f32");
  }
  if (in[2].dtype != DType::s64) return refuse("type of the batch indices", ir::name_of(in[2].dtype), "s64");
  if (s.program.outputs.empty()) return refuse("result", "no program", "float32");
  if (in[0].dims.size() != 4 || in[1].dims.size() != 2 || in[1].dims[1] != kCorners || in[2].dims.size() != 1 ||
      s.space.size() != 4 || s.space[0] != in[1].dims[0] || in[2].dims[0] != s.space[0] || s.space[1] != in[0].dims[1])
    return fail(ErrorKind::bad_engine, fmt::format("roi_align of {} gives {}", ir::to_string(in[0].dims), ir::to_string(s.space)));
  const auto& roi = s.anchor.as<ir::RoiAlign>();
  if (roi.mode != ir::RoiPooling::avg) return refuse("mode", "max", "avg");
  if (s.space[3] > kMostColumns || s.space[2] * s.space[3] > kMostBins || s.space[1] > kMostChannels ||
      s.space[1] * s.space[2] * s.space[3] > kMostSums)
    return refuse("elements of a region", ir::to_string(s.space), fmt::format("at most {}", kMostSums));
  if (ir::count(in[0].dims) == 0) return refuse("elements of the image", 0, "some");
  const std::int64_t reach = (in[0].dims[2] - 1) * in[0].strides[2] + (in[0].dims[3] - 1) * in[0].strides[3];
  if (reach > std::numeric_limits<std::int32_t>::max()) return refuse("elements of an image", reach, "below 2^31");
  RoiAlignSetting t{roi, in[0], in[1], in[2], s.stores[0], s.space, isa, {}};
  OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, 0, 3));
  const bool plain = t.epilogue->code().identity() && s.stores.size() == 1 && t.y.dtype == DType::f32;
  if (plain && t.epilogue->space().loads.empty()) t.epilogue.reset();
  return t;
}

class RoiAlignKernel final : public TaskedKernel {
 public:
  explicit RoiAlignKernel(RoiAlignSetting t) : k_(element_kernels(t.isa)), t_(std::move(t)) {
    bins_ = t_.space[2] * t_.space[3];
    beside_ = t_.x.strides[1] == 1 && t_.space[1] >= 8;
    tasks_ = even_tasks(t_.space[0], 1, t_.space[0]);
  }
  std::size_t scratch_bytes() const override {
    return (t_.epilogue ? line(t_.epilogue->scratch_bytes()) : 0) + line(static_cast<std::size_t>(kCorners * bins_) * 4) * 2 +
           line(static_cast<std::size_t>(bins_ * t_.space[1]) * 4);
  }
  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    std::byte* scratch = worker.scratch;
    if (t_.epilogue) t_.epilogue->prepare(scratch), scratch += line(t_.epilogue->scratch_bytes());
    const std::size_t row = line(static_cast<std::size_t>(kCorners * bins_) * 4);
    auto* at = reinterpret_cast<std::int32_t*>(scratch);
    auto* weight = reinterpret_cast<float*>(scratch + row);
    auto* sum = reinterpret_cast<float*>(scratch + 2 * row);
    const std::int64_t channels = t_.space[1];
    const auto* rois = reinterpret_cast<const float*>(memory.at(t_.rois));
    const auto* batches = reinterpret_cast<const std::int64_t*>(memory.at(t_.batches));
    const auto* x = reinterpret_cast<const float*>(memory.at(t_.x));
    for (std::int64_t r = t_.space[0] * task_begin / tasks_; r < t_.space[0] * task_end / tasks_; ++r) {
      std::fill_n(sum, bins_ * channels, 0.0F);
      const std::int64_t batch = std::min(batches[t_.space[0] == 1 ? 0 : r * t_.batches.strides[0]], t_.x.dims[0] - 1);
      float box[kCorners];
      for (std::int64_t k = 0; k < kCorners; ++k)
        box[k] = rois[(t_.space[0] == 1 ? 0 : r * t_.rois.strides[0]) + k * t_.rois.strides[1]];
      if (batch >= 0) sums(x + batch * (t_.x.dims[0] == 1 ? 0 : t_.x.strides[0]), box, at, weight, sum);
      for (std::int64_t c = 0; c < channels; ++c)
        store(memory, worker.scratch, r, c, beside_ ? sum + c : sum + c * bins_, beside_ ? channels : 1);
    }
  }

 private:
  /// Where the neighbours of a sample lie, and what they weigh: of all bins, [neighbour][bin].
  void find(const float* first, const float* bin, std::int64_t down, std::int64_t right, std::int64_t rows, std::int64_t columns,
            std::int32_t* at, float* weight) const {
    const std::int64_t height = t_.x.dims[2], width = t_.x.dims[3];
    for (std::int64_t i = 0; i < bins_; ++i) {
      float y =
          first[0] + (static_cast<float>(i / t_.space[3]) + (static_cast<float>(down) + 0.5F) / static_cast<float>(rows)) * bin[0];
      float x = first[1] +
                (static_cast<float>(i % t_.space[3]) + (static_cast<float>(right) + 0.5F) / static_cast<float>(columns)) * bin[1];
      if (!(y >= -1 && y <= static_cast<float>(height) && x >= -1 && x <= static_cast<float>(width))) {
        for (std::int64_t q = 0; q < kCorners; ++q) at[q * bins_ + i] = 0, weight[q * bins_ + i] = 0;
        continue;
      }
      y = std::max(y, 0.0F), x = std::max(x, 0.0F);
      std::int64_t y0 = static_cast<std::int64_t>(y), x0 = static_cast<std::int64_t>(x), y1 = y0 + 1, x1 = x0 + 1;
      if (y0 >= height - 1) y0 = y1 = height - 1, y = static_cast<float>(y0);
      if (x0 >= width - 1) x0 = x1 = width - 1, x = static_cast<float>(x0);
      const float ly = y - static_cast<float>(y0), lx = x - static_cast<float>(x0), hy = 1 - ly, hx = 1 - lx;
      const std::int64_t line_step = height == 1 ? 0 : t_.x.strides[2], step = width == 1 ? 0 : t_.x.strides[3];
      const std::int64_t place[kCorners] = {y0 * line_step + x0 * step, y0 * line_step + x1 * step, y1 * line_step + x0 * step,
                                            y1 * line_step + x1 * step};
      const float weights[kCorners] = {hy * hx, hy * lx, ly * hx, ly * lx};
      for (std::int64_t q = 0; q < kCorners; ++q) {
        at[q * bins_ + i] = static_cast<std::int32_t>(place[q]);
        weight[q * bins_ + i] = weights[q];
      }
    }
  }

  void sums(const float* image, const float* roi, std::int32_t* at, float* weight, float* sum) const {
    const auto scale = static_cast<float>(t_.roi.spatial_scale);
    const float shift = t_.roi.half_pixel ? 0.5F : 0.0F;
    const float left = roi[0] * scale - shift, top = roi[1] * scale - shift;
    float width = roi[2] * scale - shift - left, height = roi[3] * scale - shift - top;
    if (!t_.roi.half_pixel) width = std::max(width, 1.0F), height = std::max(height, 1.0F);
    const float bin[2] = {height / static_cast<float>(t_.space[2]), width / static_cast<float>(t_.space[3])},
                first[2] = {top, left};
    if (!(bin[0] <= 65536 && bin[1] <= 65536)) return;  // the caller's mistake
    const std::int64_t ratio = t_.roi.sampling_ratio, channels = t_.space[1];
    const std::int64_t rows = ratio > 0 ? ratio : static_cast<std::int64_t>(std::ceil(bin[0])),
                       columns = ratio > 0 ? ratio : static_cast<std::int64_t>(std::ceil(bin[1]));
    for (std::int64_t k = 0; k < rows * columns; ++k) {
      find(first, bin, k / columns, k % columns, rows, columns, at, weight);
      if (beside_) {
        for (std::int64_t i = 0; i < bins_; ++i) {
          for (std::int64_t q = 0; q < kCorners; ++q)
            k_.add_scaled(sum + i * channels, image + at[q * bins_ + i], weight[q * bins_ + i], channels);
        }
      } else {
        for (std::int64_t c = 0; c < channels; ++c) {
          for (std::int64_t q = 0; q < kCorners; ++q)
            k_.add_collected(sum + c * bins_, image + c * t_.x.strides[1], at + q * bins_, weight + q * bins_, bins_);
        }
      }
    }
    const auto samples = static_cast<float>(std::max<std::int64_t>(rows * columns, 1));
    for (std::int64_t i = 0; i < bins_ * channels; ++i) sum[i] /= samples;
  }

  /// The bins of one channel, sums[i * step].
  void store(const Memory& memory, std::byte* scratch, std::int64_t r, std::int64_t c, const float* sums, std::int64_t step) const {
    const std::int64_t width = t_.space[3];
    for (std::int64_t h = 0; h < t_.space[2]; ++h) {
      if (t_.epilogue) {
        Index origin{};
        origin[0] = r, origin[1] = c, origin[2] = h, origin[3] = 0;
        auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
        for (std::int64_t i = 0; i < width; ++i) acc[i] = sums[(h * width + i) * step];
        t_.epilogue->run(memory, scratch, origin, 1, static_cast<int>(width));
      } else {
        float* y = reinterpret_cast<float*>(memory.at(t_.y)) + r * t_.y.strides[0] + c * t_.y.strides[1] + h * t_.y.strides[2];
        for (std::int64_t i = 0; i < width; ++i) y[i * t_.y.strides[3]] = sums[(h * width + i) * step];
      }
    }
  }

  const ElementKernels& k_;
  RoiAlignSetting t_;
  std::int64_t bins_ = 1;
  bool beside_ = false;
};

class RoiAlignFamily final : public KernelFamily<RoiAlignSetting, RoiAlignKernel> {
 public:
  RoiAlignFamily() : KernelFamily({.name = "roi_align", .about = {{ir::Op::roi_align}, 3}}) {}
  Match<RoiAlignSetting> match(const Request& q) const override { return roi_align_setting(only(q.region), q.isa); }
  double cost(const RoiAlignSetting& t, Isa isa) const override {
    const auto elements = static_cast<double>(ir::count(t.space));
    const auto samples = static_cast<double>(std::max<std::int64_t>(1, t.roi.sampling_ratio * t.roi.sampling_ratio));
    return 0.5e-6 + elements * (2 + samples * 4 * 0.6 * slowdown(isa)) * kSecondsPerCycle;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(roi_align, RoiAlignFamily)

}  // namespace octavo::cpu
