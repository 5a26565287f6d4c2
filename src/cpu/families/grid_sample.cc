// cpu.grid_sample.<isa>: GridSample on float32, any mode, padding and number of dimensions. Where the taps of a block of points lie and what they weigh is
// computed once, then every channel is a sum over the taps: along the channels where they are neighbours in memory, else along the points. The
// same operations in the same order as the reference evaluator's, so the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>
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

constexpr std::int64_t kPoints = 256;               ///< of a block
constexpr std::int64_t kGridSampleGrain = 1 << 14;  ///< products of a task
constexpr std::size_t kMostSpatial = 6, kMostTaps = 64;

struct Sampler : ir::GridSample {
  using Mode = ir::Interpolation;
  using Padding = ir::Outside;

  static float reflected(float x, float lo, float hi) {
    const float range = hi - lo;
    if (range <= 0) return lo;
    if (x < lo || x > hi) {
      const float over = x < lo ? lo - x : x - hi;
      const float turns = std::trunc(over / range), rest = over - turns * range;
      const bool even = std::fmod(turns, 2.0F) == 0;
      return (x < lo) == even ? lo + rest : hi - rest;
    }
    return x;
  }
  [[nodiscard]] std::size_t taps() const { return mode == Mode::nearest ? 1 : mode == Mode::linear ? 2 : 4; }
  /// The sources of one coordinate (-1: a zero) and their weights.
  void at(float normal, std::int64_t extent, std::int64_t* source, float* weight) const {
    const auto length = static_cast<float>(extent);
    float x = align_corners ? (normal + 1) / 2 * (length - 1) : ((normal + 1) * length - 1) / 2;
    if (std::isnan(x)) x = -1;
    x = std::min(std::max(x, -1.0e9F), 1.0e9F);
    if (mode == Mode::nearest) x = std::nearbyint(x);
    const float lo = align_corners ? 0.0F : -0.5F, hi = align_corners ? length - 1 : length - 0.5F;
    if (x < lo || x > hi) {
      if (padding == Padding::border && mode != Mode::cubic) x = std::min(std::max(x, 0.0F), length - 1);
      if (padding == Padding::reflection) x = reflected(x, lo, hi);
    }
    const auto inside = [&](std::int64_t i) -> std::int64_t {
      if (i >= 0 && i < extent) return i;
      if (padding == Padding::zeros) return -1;
      if (padding == Padding::border) return std::clamp<std::int64_t>(i, 0, extent - 1);
      return std::clamp<std::int64_t>(static_cast<std::int64_t>(reflected(static_cast<float>(i), lo, hi)), 0, extent - 1);
    };
    if (mode == Mode::nearest) {
      source[0] = inside(static_cast<std::int64_t>(std::trunc(x))), weight[0] = 1.0F;
      return;
    }
    const auto base = static_cast<std::int64_t>(std::floor(x));
    const float t = x - static_cast<float>(base);
    if (mode == Mode::linear) {
      source[0] = inside(base), source[1] = inside(base + 1);
      weight[0] = 1 - t, weight[1] = t;
      return;
    }
    constexpr float kA = -0.75F;
    const auto outer = [](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
    const auto inner = [](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
    for (int i = 0; i < 4; ++i) source[i] = inside(base - 1 + i);
    weight[0] = outer(t + 1), weight[1] = inner(t), weight[2] = inner(1 - t), weight[3] = outer(2 - t);
  }
};

struct GridSampleSetting {
  Sampler sampler = {};
  TensorRef x = {}, grid = {}, y = {};
  ir::Shape space = {};
  Isa isa = Isa::portable;
  std::optional<BlockEpilogue> epilogue = {};  ///< absent: the sums are stored as they are
};

Result<GridSampleSetting> grid_sample_setting(const Stage& s, Isa isa) {
  const Sampler sampler{s.anchor.as<ir::GridSample>()};
  const TensorRef &x = s.anchor.inputs[0], &grid = s.anchor.inputs[1];
  for (const TensorRef* t : {&x, &grid}) {
    if (t->dtype != DType::f32 || t->quantizer) return refuse("type of an operand", ir::name_of(t->dtype), "f32");
  }
  if (s.program.outputs.empty()) return refuse("result", "no program", "float32");
  const std::size_t rank = s.space.size();
  if (rank < 3 || rank > kMostSpatial + 2 || x.dims.size() != rank || grid.dims.size() != rank)
    return refuse("dimensions", rank, "3 to 8, all the same");
  double taps = 1;
  for (std::size_t d = 2; d < rank; ++d) taps *= static_cast<double>(sampler.taps());
  if (taps > static_cast<double>(kMostTaps)) return refuse("taps", taps, fmt::format("at most {}", kMostTaps));
  if (s.space[1] > 4096) return refuse("channels", s.space[1], "at most 4096");
  std::int64_t reach = 0;
  for (std::size_t d = 2; d < rank; ++d) reach += (x.dims[d] - 1) * x.strides[d];
  if (reach > std::numeric_limits<std::int32_t>::max()) return refuse("elements of an image", reach, "below 2^31");
  GridSampleSetting t{sampler, x, grid, s.stores[0], s.space, isa, {}};
  OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, 0, rank - 1));
  const bool plain = t.epilogue->code().identity() && s.stores.size() == 1 && t.y.dtype == DType::f32;
  if (plain && t.epilogue->space().loads.empty()) t.epilogue.reset();
  return t;
}

class GridSampleKernel final : public TaskedKernel {
 public:
  explicit GridSampleKernel(GridSampleSetting t)
      : k_(element_kernels(t.isa)),
        sampler_(t.sampler),
        x_(std::move(t.x)),
        grid_(std::move(t.grid)),
        y_(std::move(t.y)),
        space_(std::move(t.space)),
        epilogue_(std::move(t.epilogue)) {
    spatial_ = space_.size() - 2;
    for (std::size_t d = 0; d < spatial_; ++d) taps_ *= sampler_.taps();
    for (std::size_t d = 2; d < space_.size(); ++d) points_ *= space_[d];
    blocks_ = (points_ + kPoints - 1) / kPoints;
    beside_ = x_.strides[1] == 1 && space_[1] >= 8;
    if (ir::count(space_) == 0) blocks_ = 0;
    tasks_ = even_tasks(ir::count(space_) * static_cast<std::int64_t>(taps_), kGridSampleGrain, space_[0] * blocks_);
  }
  std::size_t scratch_bytes() const override {
    return (epilogue_ ? line(epilogue_->scratch_bytes()) : 0) + taps_ * kPoints * 8 + line(static_cast<std::size_t>(sums()) * 4);
  }
  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    std::byte* scratch = worker.scratch;
    if (epilogue_) epilogue_->prepare(scratch), scratch += line(epilogue_->scratch_bytes());
    auto* at = reinterpret_cast<std::int32_t*>(scratch);
    auto* weight = reinterpret_cast<float*>(scratch + taps_ * kPoints * 4);
    auto* sum = weight + taps_ * kPoints;
    const std::int64_t units = space_[0] * blocks_, channels = space_[1];
    const float* const x = reinterpret_cast<const float*>(memory.at(x_));
    for (std::int64_t u = units * task_begin / tasks_; u < units * task_end / tasks_; ++u) {
      const std::int64_t n = u / blocks_, first = u % blocks_ * kPoints, points = std::min(kPoints, points_ - first);
      find(memory, n, first, points, at, weight);
      std::int64_t to[kPoints];
      if (!epilogue_) find_stores(first, points, to);
      const float* image = x + n * x_.strides[0];
      if (beside_) {  // sums[point][channel]
        for (std::int64_t p = 0; p < points; ++p) {
          float* row = sum + p * channels;
          std::fill_n(row, channels, 0.0F);
          for (std::size_t t = 0; t < taps_; ++t) {
            const std::int32_t from = at[static_cast<std::int64_t>(t) * kPoints + p];
            if (from >= 0) k_.add_scaled(row, image + from, weight[static_cast<std::int64_t>(t) * kPoints + p], channels);
          }
        }
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        if (!beside_) {
          std::fill_n(sum, points, 0.0F);
          for (std::size_t t = 0; t < taps_; ++t) {
            const std::int64_t tap = static_cast<std::int64_t>(t) * kPoints;
            k_.add_collected(sum, image + c * x_.strides[1], at + tap, weight + tap, points);
          }
        }
        store(memory, worker.scratch, n, c, first, points, beside_ ? sum + c : sum, beside_ ? channels : 1, to);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t sums() const { return beside_ ? kPoints * space_[1] : kPoints; }

  /// Elements of an image (-1: a zero) and weights, [tap][point].
  void find(const Memory& memory, std::int64_t n, std::int64_t first, std::int64_t points, std::int32_t* at, float* weight) const {
    const float* grid = reinterpret_cast<const float*>(memory.at(grid_)) + n * grid_.strides[0];
    const std::size_t each = sampler_.taps();
    for (std::int64_t p = 0; p < points; ++p) {
      std::int64_t rest = first + p, from = 0;
      for (std::size_t d = spatial_; d-- > 0;) from += rest % space_[d + 2] * grid_.strides[d + 1], rest /= space_[d + 2];
      std::int64_t place[kMostTaps] = {0};
      float weights[kMostTaps] = {1.0F};
      std::size_t have = 1;
      for (std::size_t d = 0; d < spatial_; ++d) {  // the grid's last axis is x first: the innermost dimension
        std::int64_t source[4];
        float part[4];
        const float normal = grid[from + static_cast<std::int64_t>(spatial_ - 1 - d) * grid_.strides.back()];
        sampler_.at(normal, x_.dims[d + 2], source, part);
        for (std::size_t i = have; i-- > 0;) {
          const std::int64_t so_far = place[i];
          const float w = weights[i];
          for (std::size_t j = each; j-- > 0;) {
            place[i * each + j] = so_far < 0 || source[j] < 0 ? -1 : so_far + source[j] * x_.strides[d + 2];
            weights[i * each + j] = w * part[j];
          }
        }
        have *= each;
      }
      for (std::size_t t = 0; t < taps_; ++t) {
        at[static_cast<std::int64_t>(t) * kPoints + p] = static_cast<std::int32_t>(place[t]);
        weight[static_cast<std::int64_t>(t) * kPoints + p] = weights[t];
      }
    }
  }

  /// Where the results of points from `first` on lie in a channel of the result, in elements.
  void find_stores(std::int64_t first, std::int64_t points, std::int64_t* to) const {
    for (std::int64_t p = 0; p < points; ++p) {
      std::int64_t rest = first + p;
      to[p] = 0;
      for (std::size_t d = space_.size(); d-- > 2;) to[p] += rest % space_[d] * y_.strides[d], rest /= space_[d];
    }
  }

  /// sums[i * step] of points from `first` on: each to its place, or a row of the last dimension at a time through the program.
  void store(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t c, std::int64_t first, std::int64_t points,
             const float* sums, std::int64_t step, const std::int64_t* to) const {
    if (!epilogue_) {
      float* y = reinterpret_cast<float*>(memory.at(y_)) + n * y_.strides[0] + c * y_.strides[1];
      for (std::int64_t p = 0; p < points; ++p) y[to[p]] = sums[p * step];
      return;
    }
    const std::int64_t width = space_.back();
    for (std::int64_t p = 0; p < points;) {
      const std::int64_t column = (first + p) % width, some = std::min(points - p, width - column);
      Index origin{};
      origin[0] = n, origin[1] = c;
      std::int64_t rest = (first + p) / width;
      for (std::size_t d = space_.size() - 1; d-- > 2;) origin[d] = rest % space_[d], rest /= space_[d];
      origin[space_.size() - 1] = column;
      auto* acc = reinterpret_cast<float*>(BlockEpilogue::acc(scratch));
      for (std::int64_t i = 0; i < some; ++i) acc[i] = sums[(p + i) * step];
      epilogue_->run(memory, scratch, origin, 1, static_cast<int>(some));
      p += some;
    }
  }

  const ElementKernels& k_;
  Sampler sampler_;
  TensorRef x_, grid_, y_;
  ir::Shape space_;
  std::optional<BlockEpilogue> epilogue_;
  std::size_t spatial_ = 2, taps_ = 1;
  std::int64_t points_ = 1, blocks_ = 0;
  bool beside_ = false;
};

class GridSampleFamily final : public KernelFamily<GridSampleSetting, GridSampleKernel> {
 public:
  GridSampleFamily() : KernelFamily({.name = "grid_sample", .about = {{ir::Op::grid_sample}, 2}}) {}
  Match<GridSampleSetting> match(const Request& q) const override { return grid_sample_setting(only(q.region), q.isa); }
  double cost(const GridSampleSetting& t, Isa isa) const override {
    const auto elements = static_cast<double>(ir::count(t.space));
    double taps = 1, points = elements / static_cast<double>(std::max<std::int64_t>(1, t.space[1]));
    for (std::size_t d = 2; d < t.space.size(); ++d) taps *= static_cast<double>(t.sampler.taps());
    return 0.5e-6 + (elements * taps * 0.6 * slowdown(isa) + points * (60 + 4 * taps)) * kSecondsPerCycle;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(grid_sample, GridSampleFamily)

}  // namespace octavo::cpu
