// cpu.depthwise.u8s8.block.<isa>, cpu.depthwise.f32.block.<isa>: depthwise convolutions (one input and one output channel a group)
// on channel-last tensors: vectors over channels, exact 16-bit products of codes, only the taps inside the image (padding adds
// nothing).
#include <algorithm>

#include "cpu/constant.h"
#include "cpu/family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"
#include "cpu/window.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kLaneBlock = 64;  // weights rows are padded to whole vectors of any instruction set
std::int64_t padded(std::int64_t channels) {
  return (channels + kLaneBlock - 1) / kLaneBlock * kLaneBlock;
}

struct Setting {
  Image image = {};
  region::TensorRef x = {};
  Constant weights = {};
  std::vector<std::int32_t> weight_zero = {};
  BlockEpilogue epilogue = {};
  ir::Shape space = {};
  Parameters parameters = {};
  bool integer = true;
  Isa isa = Isa::portable;
  [[nodiscard]] std::int64_t channels() const { return space[1]; }
  [[nodiscard]] std::int64_t taps() const { return image.depth.kernel * image.height.kernel * image.width.kernel; }
  [[nodiscard]] std::int64_t rows() const { return image.batch * image.depth.out * image.height.out; }
  [[nodiscard]] int usual_tasks() const { return even_tasks(rows() * image.width.out * channels() * taps(), 65536, rows()); }
};

Result<Setting> setting_of(const Request& q) {
  const Stage& s = only(q.region);
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto& w = s.anchor.weights->dims;
  const ir::DType want = s.anchor.integer ? ir::DType::u8 : ir::DType::f32,
                  want_w = s.anchor.integer ? ir::DType::s8 : ir::DType::f32;
  if (x.dtype != want || s.anchor.weights->dtype != want_w) {
    return refuse("types of input and weights",
                  fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(s.anchor.weights->dtype)),
                  fmt::format("{} and {}", ir::name_of(want), ir::name_of(want_w)));
  }
  if (x.strides.size() < 2 || (x.strides[1] != 1 && x.dims[1] != 1)) {
    return refuse("channel stride of the input", x.strides.size() < 2 ? 0 : x.strides[1], "1");
  }
  Setting t{{}, x, Constant(*s.anchor.weights, q.plan), s.anchor.weight_zero, {}, s.space, q.parameters, s.anchor.integer, q.isa};
  OCTAVO_TRY(t.image, Image::of(s, {w.begin() + 2, w.end()}));
  OCTAVO_TRY(t.epilogue, block_epilogue(s, q.isa, static_cast<std::size_t>(t.image.w), static_cast<std::size_t>(t.image.c)));
  return t;
}

class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(Setting t, const std::byte* weights)
      : table_(*kernel_table(t.isa)),
        im_(t.image),
        epilogue_(std::move(t.epilogue)),
        x_(t.x),
        weights_(weights),
        codes_(t.integer) {
    zx_ = x_.quantizer ? x_.quantizer->zero_point[0] : 0;
    channels_ = t.channels();
    padded_ = padded(channels_);
    rows_ = t.rows();
    tasks_ = static_cast<int>(number(t.parameters, kRowTiles, rows_));
    if (tasks_ == 0) tasks_ = t.usual_tasks();
    pixels_ = number(t.parameters, kPixels, kBlock);
    ahead_ = number(t.parameters, kPrefetch, im_.height.in);
  }

  int tasks() const override { return tasks_; }
  std::size_t scratch_bytes() const override { return tap_bytes() + epilogue_bytes(); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    for (std::int64_t r = rows_ * task_begin / tasks_; r < rows_ * task_end / tasks_; ++r) {
      const std::int64_t rest = r / im_.height.out;
      run_row(memory, worker.scratch, rest / im_.depth.out, rest % im_.depth.out, r % im_.height.out);
    }
  }

 private:
  [[nodiscard]] std::int64_t taps() const { return im_.depth.kernel * im_.height.kernel * im_.width.kernel; }
  [[nodiscard]] std::size_t epilogue_bytes() const { return (epilogue_.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t tap_bytes() const {
    return static_cast<std::size_t>(taps()) * (sizeof(std::int64_t) + sizeof(std::int32_t));
  }

  void run_row(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t od, std::int64_t oh) const {
    auto* offsets = reinterpret_cast<std::int64_t*>(scratch + epilogue_bytes());
    auto* index = reinterpret_cast<std::int32_t*>(offsets + taps());
    const Window &d = im_.depth, &h = im_.height, &w = im_.width;
    const std::int64_t id = od * d.stride - d.pad, ih = oh * h.stride - h.pad;
    const std::byte* x = memory.at(x_) + n * im_.xn + id * im_.xd + ih * im_.xh;
    Index origin{};
    origin[static_cast<std::size_t>(im_.n)] = n;
    if (im_.d >= 0) origin[static_cast<std::size_t>(im_.d)] = od;
    if (im_.h >= 0) origin[static_cast<std::size_t>(im_.h)] = oh;
    // Outputs [inner_begin, inner_end) have every column of the window inside.
    const std::int64_t reach = (w.kernel - 1) * w.dilation;
    const std::int64_t inner_begin = (w.pad + w.stride - 1) / w.stride, inner_end = (w.in - 1 - reach + w.pad) / w.stride + 1;
    const std::int64_t cols = std::min<std::int64_t>(channels_, kBlock), most = kBlock / cols,
                       pixels = pixels_ > 0 ? std::min(pixels_, most) : most;
    if (ahead_ > 0) fetch_rows(x + (h.kernel - 1) * h.dilation * im_.xh, ih + (h.kernel - 1) * h.dilation);
    bool whole = false;
    int count = 0;
    for (std::int64_t first = 0; first < w.out; first += pixels) {
      const auto block = static_cast<int>(std::min(pixels, w.out - first));
      for (std::int64_t c = 0; c < channels_; c += cols) {
        DepthwiseTile t;
        t.cols = static_cast<int>(std::min(cols, channels_ - c));
        t.w = weights_ + c * (codes_ ? 2 : 4);
        t.w_stride = padded_;
        t.zx = zx_;
        t.taps = offsets;
        t.w_index = index;
        for (int p = 0; p < block; ++p) {
          const std::int64_t ow = first + p, iw = ow * w.stride - w.pad;
          const bool inside = ow >= inner_begin && ow < inner_end && w.in > reach;
          if (!inside || !whole) {  // the list of the last whole window stays valid
            count = list_taps(id, ih, iw, offsets, index);
            whole = inside;
          }
          t.tap_count = count;
          t.x = x + iw * im_.xw + c * im_.xc;
          t.acc = BlockEpilogue::acc(scratch) + static_cast<std::ptrdiff_t>(p) * t.cols;
          if (codes_) {
            table_.depthwise_u8(t);
          } else {
            table_.depthwise_f32(t);
          }
        }
        origin[static_cast<std::size_t>(im_.w)] = first;
        origin[static_cast<std::size_t>(im_.c)] = c;
        epilogue_.run(memory, scratch, origin, block, t.cols);
      }
    }
  }

  /// The rows behind the one at x, which has this index.
  void fetch_rows(const std::byte* x, std::int64_t row) const {
    const std::int64_t bytes = std::max<std::int64_t>(im_.width.in * im_.xw, 0);
    for (std::int64_t i = 1; i <= ahead_; ++i) {
      if (row + i < 0 || row + i >= im_.height.in) continue;
      for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(x + i * im_.xh + at, 0, 3);
    }
  }

  int list_taps(std::int64_t id, std::int64_t ih, std::int64_t iw, std::int64_t* offsets, std::int32_t* index) const {
    const Window &d = im_.depth, &h = im_.height, &w = im_.width;
    int count = 0;
    std::int32_t at = 0;
    for (std::int64_t kd = 0; kd < d.kernel; ++kd) {
      const std::int64_t z = id + kd * d.dilation;
      for (std::int64_t kh = 0; kh < h.kernel; ++kh) {
        const std::int64_t y = ih + kh * h.dilation;
        for (std::int64_t kw = 0; kw < w.kernel; ++kw, ++at) {
          const std::int64_t v = iw + kw * w.dilation;
          if (z < 0 || z >= d.in || y < 0 || y >= h.in || v < 0 || v >= w.in) continue;
          offsets[count] = kd * d.dilation * im_.xd + kh * h.dilation * im_.xh + kw * w.dilation * im_.xw;
          index[count++] = at;
        }
      }
    }
    return count;
  }

  const KernelTable& table_;
  Image im_;
  BlockEpilogue epilogue_;
  region::TensorRef x_;
  const std::byte* weights_;
  bool codes_;
  std::int32_t zx_ = 0;
  std::int64_t channels_ = 1, padded_ = 1, rows_ = 1;
  std::int64_t pixels_ = 0, ahead_ = 0;  ///< the most pixels of a tile (0: as many as fit); rows that are fetched ahead
  int tasks_ = 1;
};

template <class To, class From>
Result<std::vector<ir::Tensor>> packed(const Setting& t, ir::DType type) {
  OCTAVO_TRY(const From* from, t.weights.data<From>("weights"));
  const std::int64_t row = padded(t.channels()), taps = t.taps();
  ir::Tensor out(type, {taps, row});
  To* to = out.mutable_data<To>().data();
  for (std::int64_t c = 0; c < t.channels(); ++c) {
    const std::int32_t z = weight_zero_of(t.weight_zero, c);
    for (std::int64_t k = 0; k < taps; ++k) to[k * row + c] = static_cast<To>(from[c * taps + k] - static_cast<To>(z));
  }
  return std::vector<ir::Tensor>{out};
}

constexpr std::array kParameters{kRowTiles, kPixels, kPrefetch};

class DepthwiseFamily final : public FamilyOf<Setting> {
 public:
  explicit DepthwiseFamily(bool integer)
      : FamilyOf({.name = integer ? "depthwise.u8s8.block" : "depthwise.f32.block", .parameters = kParameters}),
        integer_(integer) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    if (!is_one(r, ir::Op::conv) || a.integer != integer_ || !a.weights || a.inputs.empty() || only(r).space.size() < 3)
      return false;
    const std::int64_t group = a.as<ir::Window>().group;
    return group > 1 && a.inputs[0].dims.size() > 1 && a.inputs[0].dims[1] == group && only(r).space[1] == group &&
           a.weights->dims.size() > 2;
  }
  Match<Setting> match(const Request& q) const override { return setting_of(q); }
  double cost(const Setting& t, Isa isa) const override {
    const auto outputs = static_cast<double>(ir::count(t.space));
    return (outputs * static_cast<double>(t.taps()) * 0.15 + outputs * 2.0) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<std::int64_t> packed_bytes(const Setting& t) const override {
    return {t.taps() * padded(t.channels()) * (integer_ ? 2 : 4)};
  }
  Result<std::vector<ir::Tensor>> pack(const Setting& t) const override {
    return integer_ ? packed<std::int16_t, std::int8_t>(t, ir::DType::s16) : packed<float, float>(t, ir::DType::f32);
  }
  std::optional<std::string> layout(const Setting& t) const override {
    return fmt::format("{} taps, {} of {}", t.taps(), t.channels(), padded(t.channels()));
  }
  Result<std::unique_ptr<Kernel>> load(Setting t, Packed packed) const override {
    return std::make_unique<DepthwiseKernel>(std::move(t), packed[0].data());
  }
  std::vector<Parameters> variants(const Setting& t) const override {
    std::vector<Parameters> out;
    const std::int64_t most = kBlock / std::min<std::int64_t>(t.channels(), kBlock), usual = t.usual_tasks();
    for (const std::int64_t n : {usual / 2, usual * 2}) {
      if (n >= 1 && n <= t.rows()) add(out, kRowTiles, n);
    }
    for (const std::int64_t n : {most / 2, most / 4}) {
      if (n >= 1) add(out, kPixels, n);
    }
    for (const std::int64_t n : {1, 4}) add(out, kPrefetch, n);
    return out;
  }

 private:
  bool integer_;
};

}  // namespace

Families depthwise_families() {
  return families_of<DepthwiseFamily>(std::array{true, false});
}

}  // namespace octavo::cpu
