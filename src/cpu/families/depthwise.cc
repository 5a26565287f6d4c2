// cpu.depthwise.u8s8.block.<isa>, cpu.depthwise.f32.block.<isa>: depthwise convolutions (one input and one output channel a group)
// on channel-last tensors: vectors over channels, exact 16-bit products of codes, only the taps inside the image (padding adds
// nothing). cpu.depthwise_transpose.*: the same of transposed convolutions, whose outputs take the taps of their phase.
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

struct DepthwiseSetting {
  Image image = {};
  region::TensorRef x = {};
  Constant weights = {};
  std::vector<std::int32_t> weight_zero = {};
  BlockEpilogue epilogue = {};
  ir::Shape space = {};
  Parameters parameters = {};
  bool integer = true;
  Isa isa = Isa::portable;
  std::vector<AxisPhase> d = {}, h = {}, w = {};
  [[nodiscard]] std::int64_t channels() const { return space[1]; }
  [[nodiscard]] std::int64_t taps() const { return image.depth.kernel * image.height.kernel * image.width.kernel; }
  [[nodiscard]] std::int64_t rows() const { return image.batch * image.depth.out * image.height.out; }
  [[nodiscard]] int usual_tasks() const { return even_tasks(rows() * image.width.out * channels() * taps(), 65536, rows()); }
};

Result<DepthwiseSetting> depthwise_setting(const Request& q) {
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
  DepthwiseSetting t{
      {}, x, Constant(*s.anchor.weights, q.plan), s.anchor.weight_zero, {}, s.space, q.parameters, s.anchor.integer, q.isa};
  OCTAVO_TRY(t.image, Image::of(s, {w.begin() + 2, w.end()}));
  t.d = t.image.depth.phases(), t.h = t.image.height.phases(), t.w = t.image.width.phases();
  OCTAVO_TRY(t.epilogue, block_epilogue(s, q.isa, static_cast<std::size_t>(t.image.w), static_cast<std::size_t>(t.image.c)));
  return t;
}

class DepthwiseKernel final : public TaskedKernel {
 public:
  DepthwiseKernel(DepthwiseSetting t, const std::byte* weights)
      : table_(*kernel_table(t.isa)),
        im_(t.image),
        d_(t.d),
        h_(t.h),
        w_(t.w),
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

  std::size_t scratch_bytes() const override { return tap_bytes() + epilogue_bytes(); }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    for (std::int64_t r = rows_ * task_begin / tasks_; r < rows_ * task_end / tasks_; ++r) {
      const std::int64_t rest = r / im_.height.out;
      run_row(memory, worker.scratch, rest / im_.depth.out, rest % im_.depth.out, r % im_.height.out);
    }
  }

 private:
  /// The taps of outputs of one width phase: offsets from the input pixel at the phase's step, and their weights.
  struct Taps {
    std::int64_t* offsets;
    std::int32_t* index;
    int count = 0;
    bool whole =
        false;  ///< the list of an output with every column of its window inside, which the next such output takes as it is
  };
  [[nodiscard]] std::int64_t taps() const { return im_.depth.kernel * im_.height.kernel * im_.width.kernel; }
  [[nodiscard]] std::size_t epilogue_bytes() const { return (epilogue_.scratch_bytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t list_bytes() const {
    return static_cast<std::size_t>(taps()) * (sizeof(std::int64_t) + sizeof(std::int32_t));
  }
  [[nodiscard]] std::size_t tap_bytes() const { return w_.size() * ((list_bytes() + 7) / 8 * 8 + sizeof(Taps)); }

  void run_row(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t od, std::int64_t oh) const {
    const auto phases = static_cast<std::int64_t>(w_.size());
    auto* lists = reinterpret_cast<Taps*>(scratch + epilogue_bytes());
    auto* at = reinterpret_cast<std::byte*>(lists + phases);
    for (std::int64_t i = 0; i < phases; ++i, at += (list_bytes() + 7) / 8 * 8) {
      auto* offsets = reinterpret_cast<std::int64_t*>(at);
      lists[i] = {offsets, reinterpret_cast<std::int32_t*>(offsets + taps())};
    }
    const AxisPhase &d = phase(d_, od), &h = phase(h_, oh);
    const std::int64_t id = od / d.step * d.in_step, ih = oh / h.step * h.in_step;
    const std::byte* x = memory.at(x_) + n * im_.xn + id * im_.xd + ih * im_.xh;
    Index origin{};
    origin[static_cast<std::size_t>(im_.n)] = n;
    if (im_.d >= 0) origin[static_cast<std::size_t>(im_.d)] = od;
    if (im_.h >= 0) origin[static_cast<std::size_t>(im_.h)] = oh;
    const std::int64_t cols = std::min<std::int64_t>(channels_, kBlock), most = kBlock / cols,
                       pixels = pixels_ > 0 ? std::min(pixels_, most) : most;
    if (ahead_ > 0 && !h.taps.empty()) fetch_rows(x + h.taps.back().shift * im_.xh, ih + h.taps.back().shift);
    for (std::int64_t first = 0; first < im_.width.out; first += pixels) {
      const auto block = static_cast<int>(std::min(pixels, im_.width.out - first));
      for (std::int64_t c = 0; c < channels_; c += cols) {
        DepthwiseTile t;
        t.cols = static_cast<int>(std::min(cols, channels_ - c));
        t.w = weights_ + c * (codes_ ? 2 : 4);
        t.w_stride = padded_;
        t.zx = zx_;
        for (int p = 0; p < block; ++p) {
          const std::int64_t ow = first + p;
          const AxisPhase& w = phase(w_, ow);
          const std::int64_t iw = ow / w.step * w.in_step;
          const bool inside = w.taps.empty() || (iw + w.taps.front().shift >= 0 && iw + w.taps.back().shift < im_.width.in);
          Taps& list = lists[ow % phases];
          if (!inside || !list.whole) {
            list_taps(list, d, h, w, id, ih, iw);
            list.whole = inside;
          }
          t.taps = list.offsets;
          t.w_index = list.index;
          t.tap_count = list.count;
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

  /// The phase of an output: every output has one, as phases are at most as many as outputs.
  static const AxisPhase& phase(const std::vector<AxisPhase>& phases, std::int64_t out) {
    return phases[static_cast<std::size_t>(out) % phases.size()];
  }

  /// The rows behind the one at x, which has this index.
  void fetch_rows(const std::byte* x, std::int64_t row) const {
    const std::int64_t bytes = std::max<std::int64_t>(im_.width.in * im_.xw, 0);
    for (std::int64_t i = 1; i <= ahead_; ++i) {
      if (row + i < 0 || row + i >= im_.height.in) continue;
      for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(x + i * im_.xh + at, 0, 3);
    }
  }

  void list_taps(Taps& list, const AxisPhase& d, const AxisPhase& h, const AxisPhase& w, std::int64_t id, std::int64_t ih,
                 std::int64_t iw) const {
    list.count = 0;
    for (const Tap& kd : d.taps) {
      if (id + kd.shift < 0 || id + kd.shift >= im_.depth.in) continue;
      for (const Tap& kh : h.taps) {
        if (ih + kh.shift < 0 || ih + kh.shift >= im_.height.in) continue;
        for (const Tap& kw : w.taps) {
          if (iw + kw.shift < 0 || iw + kw.shift >= im_.width.in) continue;
          list.offsets[list.count] = kd.shift * im_.xd + kh.shift * im_.xh + kw.shift * im_.xw;
          list.index[list.count++] = static_cast<std::int32_t>((kd.k * im_.height.kernel + kh.k) * im_.width.kernel + kw.k);
        }
      }
    }
  }

  const KernelTable& table_;
  Image im_;
  std::vector<AxisPhase> d_, h_, w_;
  BlockEpilogue epilogue_;
  region::TensorRef x_;
  const std::byte* weights_;
  bool codes_;
  std::int32_t zx_ = 0;
  std::int64_t channels_ = 1, padded_ = 1, rows_ = 1;
  std::int64_t pixels_ = 0, ahead_ = 0;  ///< the most pixels of a tile (0: as many as fit); rows that are fetched ahead
};

template <class To, class From>
Result<std::vector<ir::Tensor>> packed(const DepthwiseSetting& t, ir::DType type) {
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

constexpr std::array kDepthwiseParameters{kRowTiles, kPixels, kPrefetch};

struct DepthwiseKind {
  const char* name;
  ir::Op op;
  bool integer;
};
constexpr std::array kDepthwiseKinds{DepthwiseKind{"depthwise.u8s8.block", ir::Op::conv, true},
                                     DepthwiseKind{"depthwise.f32.block", ir::Op::conv, false},
                                     DepthwiseKind{"depthwise_transpose.u8s8.block", ir::Op::conv_transpose, true},
                                     DepthwiseKind{"depthwise_transpose.f32.block", ir::Op::conv_transpose, false}};

class DepthwiseFamily final : public FamilyOf<DepthwiseSetting> {
 public:
  explicit DepthwiseFamily(const DepthwiseKind& kind)
      : FamilyOf({.name = kind.name, .parameters = kDepthwiseParameters}), kind_(kind) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    if (!is_one(r, kind_.op) || a.integer != kind_.integer || !a.weights || a.inputs.empty() || only(r).space.size() < 3)
      return false;
    const std::int64_t group = a.as<ir::Window>().group;
    return group > 1 && a.inputs[0].dims.size() > 1 && a.inputs[0].dims[1] == group && only(r).space[1] == group &&
           a.weights->dims.size() > 2;
  }
  Match<DepthwiseSetting> match(const Request& q) const override { return depthwise_setting(q); }
  double cost(const DepthwiseSetting& t, Isa isa) const override {
    const auto outputs = static_cast<double>(ir::count(t.space));
    return (outputs * static_cast<double>(t.taps()) * 0.15 + outputs * 2.0) * slowdown(isa) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<std::int64_t> packed_bytes(const DepthwiseSetting& t) const override {
    return {t.taps() * padded(t.channels()) * (kind_.integer ? 2 : 4)};
  }
  Result<std::vector<ir::Tensor>> pack(const DepthwiseSetting& t) const override {
    return kind_.integer ? packed<std::int16_t, std::int8_t>(t, ir::DType::s16) : packed<float, float>(t, ir::DType::f32);
  }
  std::optional<std::string> layout(const DepthwiseSetting& t) const override {
    return fmt::format("{} taps, {} of {}", t.taps(), t.channels(), padded(t.channels()));
  }
  Result<std::unique_ptr<Kernel>> load(DepthwiseSetting t, Packed packed) const override {
    return std::make_unique<DepthwiseKernel>(std::move(t), packed[0].data());
  }
  std::vector<Parameters> variants(const DepthwiseSetting& t) const override {
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
  DepthwiseKind kind_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(depthwise, DepthwiseFamily, kDepthwiseKinds)

}  // namespace octavo::cpu
