// cpu.max_pool.block.<isa>, cpu.avg_pool.block.<isa>: pooling of codes (maximum, or exact integer sum) and floats, vectors over
// channels. A window is read as rows of taps inside the image; when the program hands the codes on unchanged, they go from register
// to store.
#include <algorithm>
#include <limits>

#include "cpu/family.h"
#include "cpu/table.h"
#include "cpu/window.h"
#include "region/counted_tasks.h"

namespace octavo::cpu {
namespace {

struct PoolSetting {
  Image image = {};
  region::TensorRef x = {};
  BlockEpilogue epilogue = {};
  bool max = true, include_pad = false;
  std::vector<std::int64_t> pads = {}, kernel = {};
  std::int64_t channels = 1;
  ir::Shape space = {};
  Isa isa = Isa::portable;
};

Result<PoolSetting> pool_setting(const Stage& s, Isa isa) {
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto& window = s.anchor.as<ir::Window>();
  PoolSetting t{{},         x,       {}, s.anchor.op == ir::Op::max_pool, window.count_include_pad, window.pads, window.kernel,
                s.space[1], s.space, isa};
  OCTAVO_TRY(t.image, Image::of(s, window.kernel));
  if (x.dtype != ir::DType::u8 && x.dtype != ir::DType::f32) return refuse("type of the input", ir::name_of(x.dtype), "u8 or f32");
  OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, static_cast<std::size_t>(t.image.w), static_cast<std::size_t>(t.image.c)));
  return t;
}

class PoolKernel final : public TaskedKernel, public region::CountedTasks {
 public:
  explicit PoolKernel(PoolSetting t)
      : table_(*kernel_table(t.isa)), im_(t.image), epilogue_(std::move(t.epilogue)), x_(std::move(t.x)) {
    max_ = t.max;
    include_pad_ = t.include_pad;
    codes_ = x_.dtype == ir::DType::u8;
    zero_ = x_.quantizer ? x_.quantizer->zero_point[0] : 0;
    const std::size_t spatial = t.pads.size() / 2;
    std::int64_t* const ends[] = {&end_pad_[0], &end_pad_[1], &end_pad_[2]};
    for (std::size_t k = 0; k < spatial && k < 3; ++k) *ends[3 - spatial + k] = t.pads[spatial + k];
    channels_ = t.channels;
    const StridedAccess& store = epilogue_.space().stores[0];
    direct_ = codes_ && max_ && epilogue_.code().identity() && store.elem == Elem::u8 &&
              (store.strides[static_cast<std::size_t>(im_.c)] == 1 || channels_ == 1);
    columns_shared_ = direct_ && im_.xc == 1 && im_.width.stride % im_.width.dilation == 0 &&
                      as_columns(im_.width.kernel, im_.width.stride / im_.width.dilation);
    rows_ = im_.batch * im_.depth.out * im_.height.out;
    const std::int64_t elements = rows_ * im_.width.out * channels_;
    for (std::int64_t o = 0; o < im_.width.out; ++o) {
      columns_.push_back(range_of(im_.width, o, end_pad_[2], include_pad_));
      whole_.push_back(columns_.back().last - columns_.back().first == im_.width.kernel ? 1 : 0);
    }
    for (std::size_t o = whole_.size(); o-- > 1;) {
      if (whole_[o - 1] != 0) whole_[o - 1] += whole_[o];
    }
    // One window over all of a small image: its channels are shared.
    if (rows_ == 1) pieces_ = std::max<std::int64_t>(1, channels_ / 256);
    const std::int64_t taps = im_.depth.kernel * im_.height.kernel * im_.width.kernel;
    tasks_ = std::max(even_tasks(elements, 8192, rows_ * pieces_), rows_ == 1 ? even_tasks(elements * taps, 24576, pieces_) : 1);
  }

  std::int64_t first_element(int task, int dim, std::int64_t extent) const override {
    return dim == 0 && im_.batch == extent && pieces_ == 1 ? extent * task / tasks_ : 0;
  }
  std::size_t scratch_bytes() const override {
    const std::int64_t rows = im_.depth.kernel * im_.height.kernel;  // row offsets, then all taps of a whole window
    return (epilogue_.scratch_bytes() + 63) / 64 * 64 + static_cast<std::size_t>(rows + rows * im_.width.kernel) * 8;
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    auto* taps = reinterpret_cast<std::int64_t*>(worker.scratch + (epilogue_.scratch_bytes() + 63) / 64 * 64);
    const std::int64_t units = rows_ * pieces_, first = units * task_begin / tasks_, until = units * task_end / tasks_;
    if (pieces_ > 1) {  // a single row; pieces end where 64 channels do
      const auto edge = [&](std::int64_t unit) { return unit == pieces_ ? channels_ : channels_ / 64 * unit / pieces_ * 64; };
      return run_row(memory, worker.scratch, taps, 0, 0, 0, edge(first), edge(until));
    }
    for (std::int64_t r = first; r < until; ++r) {
      const std::int64_t oh = r % im_.height.out, rest = r / im_.height.out;
      run_row(memory, worker.scratch, taps, rest / im_.depth.out, rest % im_.depth.out, oh, 0, channels_);
    }
  }

 private:
  // Kernel positions [first, last) of output o that lie inside the input, and how many count for an average.
  struct Range {
    std::int64_t first, last, counted;
  };
  static Range range_of(const WindowAxis& w, std::int64_t o, std::int64_t end_pad, bool include_pad) {
    const std::int64_t origin = o * w.stride - w.pad;
    const std::int64_t first = origin >= 0 ? 0 : (-origin + w.dilation - 1) / w.dilation;
    const auto below = [&](std::int64_t limit) {  // positions whose input index is below `limit`
      return std::clamp<std::int64_t>((limit - origin + w.dilation - 1) / w.dilation, 0, w.kernel);
    };
    const std::int64_t last = origin >= w.in ? 0 : below(w.in);
    const std::int64_t padded = below(w.in + end_pad);
    return {std::min(first, last), last, include_pad ? padded : std::max<std::int64_t>(0, last - first)};
  }

  void run_row(const Memory& memory, std::byte* scratch, std::int64_t* taps, std::int64_t n, std::int64_t od, std::int64_t oh,
               std::int64_t first_channel, std::int64_t end_channel) const {
    const Range d = range_of(im_.depth, od, end_pad_[0], include_pad_), h = range_of(im_.height, oh, end_pad_[1], include_pad_);
    int rows = 0;
    for (std::int64_t kd = d.first; kd < d.last; ++kd) {
      for (std::int64_t kh = h.first; kh < h.last; ++kh)
        taps[rows++] = kd * im_.depth.dilation * im_.xd + kh * im_.height.dilation * im_.xh;
    }
    const std::byte* x = memory.at(x_) + n * im_.xn + (od * im_.depth.stride - im_.depth.pad) * im_.xd +
                         (oh * im_.height.stride - im_.height.pad) * im_.xh;
    Index origin{};
    origin[static_cast<std::size_t>(im_.n)] = n;
    if (im_.d >= 0) origin[static_cast<std::size_t>(im_.d)] = od;
    if (im_.h >= 0) origin[static_cast<std::size_t>(im_.h)] = oh;
    ReduceTile t;
    t.kind = max_ ? Reduce::max : Reduce::sum;
    t.elem = codes_ ? Elem::u8 : Elem::f32;
    t.outer = taps;
    t.inner_step = im_.width.dilation * im_.xw;
    t.col = im_.xc;
    t.zero = zero_;
    t.bytes = direct_;
    const StridedAccess& store = epilogue_.space().stores[0];
    std::byte* to = nullptr;
    if (direct_) {
      to = memory.base[static_cast<std::size_t>(store.buffer)] + store.offset;
      for (std::size_t k = 0; k < store.strides.size(); ++k) to += origin[k] * store.strides[k];
    }
    std::int64_t* const all = taps + im_.depth.kernel * im_.height.kernel;
    int all_count = 0;
    for (int r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < im_.width.kernel; ++k) all[all_count++] = taps[r] + k * t.inner_step;
    }
    const std::int64_t channels = end_channel - first_channel, cols = direct_ ? channels : std::min<std::int64_t>(channels, kBlock);
    const std::int64_t pixels = direct_ ? im_.width.out : kBlock / cols;
    for (std::int64_t w = 0; w < im_.width.out; w += pixels) {
      const auto count = static_cast<int>(std::min(pixels, im_.width.out - w));
      for (std::int64_t c = first_channel; c < end_channel; c += cols) {
        t.cols = static_cast<int>(std::min(cols, end_channel - c));
        t.base_step = im_.width.stride * im_.xw;
        t.acc_step = direct_ ? store.strides[static_cast<std::size_t>(im_.w)] : t.cols * 4;
        const auto acc_at = [&](int p) {
          return direct_ ? static_cast<void*>(to + c + (w + p) * t.acc_step)
                         : static_cast<void*>(BlockEpilogue::acc(scratch) + static_cast<std::ptrdiff_t>(p) * t.cols);
        };
        for (int p = 0; p < count;) {
          const Range& k = columns_[static_cast<std::size_t>(w + p)];
          const int neighbours = whole_[static_cast<std::size_t>(w + p)];  // with whole windows go together
          const bool whole = neighbours > 0;
          t.pixels = std::clamp(neighbours, 1, count - p);
          t.base =
              x + ((w + p) * im_.width.stride - im_.width.pad + (whole ? 0 : k.first * im_.width.dilation)) * im_.xw + c * im_.xc;
          const bool listed = whole && !(columns_shared_ && t.pixels > 1);
          t.outer = listed ? all : taps;
          t.outer_count = listed ? all_count : rows;
          t.inner_count = listed ? 1 : static_cast<int>(k.last - k.first);
          t.acc = acc_at(p);
          one(t, d.counted * h.counted * k.counted);
          p += t.pixels;
        }
        if (direct_) continue;
        origin[static_cast<std::size_t>(im_.w)] = w;
        origin[static_cast<std::size_t>(im_.c)] = c;
        epilogue_.run(memory, scratch, origin, count, t.cols);
      }
    }
  }

  void one(const ReduceTile& t, std::int64_t counted) const {
    if (t.outer_count > 0 && t.inner_count > 0) table_.reduce(t);
    if (t.outer_count > 0 && t.inner_count > 0 && (codes_ || max_)) return;
    for (int p = 0; p < t.pixels; ++p) {
      void* acc = static_cast<std::byte*>(t.acc) + p * t.acc_step;
      auto* floats = static_cast<float*>(acc);
      if (t.outer_count > 0 && t.inner_count > 0) {
        for (int c = 0; c < t.cols; ++c) floats[c] /= static_cast<float>(counted);
      } else if (t.bytes) {  // a window wholly in the padding
        std::fill_n(static_cast<std::uint8_t*>(acc), t.cols, std::uint8_t{0});
      } else if (codes_) {
        std::fill_n(static_cast<std::int32_t*>(acc), t.cols, 0);
      } else {
        std::fill_n(floats, t.cols, max_ ? -std::numeric_limits<float>::infinity() : 0.0F);
      }
    }
  }

  const KernelTable& table_;
  Image im_;
  BlockEpilogue epilogue_;
  region::TensorRef x_;
  bool max_ = true, include_pad_ = false, codes_ = true, direct_ = false;
  bool columns_shared_ = false;  ///< whole windows go to the kernel as rows, not as taps
  std::int32_t zero_ = 0;
  std::int64_t end_pad_[3] = {0, 0, 0};
  std::int64_t channels_ = 1, rows_ = 1, pieces_ = 1;  ///< pieces: of the channels of a single row
  std::vector<Range> columns_;                         // of each output column
  std::vector<int> whole_;                             // from each on, how many without padding follow each other
};

class PoolFamily final : public KernelFamily<PoolSetting, PoolKernel> {
 public:
  explicit PoolFamily(ir::Op op)
      : KernelFamily(
            {.name = op == ir::Op::max_pool ? "max_pool.block" : "avg_pool.block", .about = {{op}, 1, Results::programmed}}) {}
  Match<PoolSetting> match(const Request& q) const override { return pool_setting(only(q.region), q.isa); }
  double cost(const PoolSetting& t, Isa isa) const override {
    const auto results = static_cast<double>(ir::count(t.space));
    double reads = results;
    for (const auto k : t.kernel) reads *= static_cast<double>(k);
    return (reads * (t.x.strides[1] == 1 ? 0.08 : 2.0) + results * 0.5) * slowdown(isa) * kSecondsPerCycle + 0.3e-6;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(pool, PoolFamily, std::array{ir::Op::max_pool, ir::Op::avg_pool})

}  // namespace octavo::cpu
