// cpu.depthwise.u8s8.block.<isa>, cpu.depthwise.f32.block.<isa>: depthwise convolutions (one input and one output channel a group)
// on channel-last tensors: vectors over channels, exact 16-bit products of codes, only the taps inside the image (padding adds
// nothing).
#include <algorithm>

#include "cpu/family.h"
#include "cpu/old_family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"
#include "cpu/window.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kLaneBlock = 64;  // weights rows are padded to whole vectors of any instruction set
std::int64_t padded(std::int64_t channels) {
  return (channels + kLaneBlock - 1) / kLaneBlock * kLaneBlock;
}

struct Parts {
  Image image;
  Epilogue epilogue;
};

Result<Parts> parts_of(const Stage& s, Isa isa) {
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
  Parts p;
  OCTAVO_TRY(p.image, Image::of(s, {w.begin() + 2, w.end()}));
  OCTAVO_TRY(Space space, Space::of(s));
  std::vector<Elem> loads;
  for (const Access& a : space.loads) loads.push_back(a.elem);
  OCTAVO_TRY(Code code, Code::compile(s.program, loads));
  OCTAVO_TRY(p.epilogue, Epilogue::make(*kernel_table(isa), std::move(code), std::move(space), p.image.w, p.image.c));
  return p;
}

class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(const KernelTable& table, Parts p, const Stage& s, const Tactic& tactic, const std::byte* weights)
      : table_(table),
        im_(p.image),
        epilogue_(std::move(p.epilogue)),
        x_(s.anchor.inputs[0]),
        weights_(weights),
        codes_(s.anchor.integer) {
    zx_ = x_.quantizer ? x_.quantizer->zero_point[0] : 0;
    channels_ = s.space[1];
    padded_ = padded(channels_);
    rows_ = im_.batch * im_.depth.out * im_.height.out;
    tasks_ = static_cast<int>(number(tactic.parameters, kRowTiles, rows_));
    if (tasks_ == 0) tasks_ = usual_tasks(im_, s);
    pixels_ = number(tactic.parameters, kPixels, kBlock);
    ahead_ = number(tactic.parameters, kPrefetch, im_.height.in);
  }
  static int usual_tasks(const Image& im, const Stage& s) {
    const std::int64_t rows = im.batch * im.depth.out * im.height.out;
    return even_tasks(rows * im.width.out * s.space[1] * im.depth.kernel * im.height.kernel * im.width.kernel, 65536, rows);
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
          t.acc = Epilogue::acc(scratch) + static_cast<std::ptrdiff_t>(p) * t.cols;
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
  Epilogue epilogue_;
  region::TensorRef x_;
  const std::byte* weights_;
  bool codes_;
  std::int32_t zx_ = 0;
  std::int64_t channels_ = 1, padded_ = 1, rows_ = 1;
  std::int64_t pixels_ = 0, ahead_ = 0;  ///< the most pixels of a tile (0: as many as fit); rows that are fetched ahead
  int tasks_ = 1;
};

class DepthwiseFamily final : public OldFamily {
 public:
  explicit DepthwiseFamily(bool integer) : integer_(integer) {}
  std::string_view name() const override { return integer_ ? "depthwise.u8s8.block" : "depthwise.f32.block"; }
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    if (r.stages.size() != 1 || a.op != ir::Op::conv || a.integer != integer_ || !a.weights || a.inputs.empty() ||
        only(r).space.size() < 3)
      return false;
    const std::int64_t group = a.as<ir::Window>().group;
    return group > 1 && a.inputs[0].dims.size() > 1 && a.inputs[0].dims[1] == group && only(r).space[1] == group &&
           a.weights->dims.size() > 2;
  }
  Reasons why_not(const Region& r, const Plan&) const override {
    const auto p = parts_of(only(r), Isa::portable);
    return refusal_of(p);
  }
  double cost(const Region& r, const Plan&, Isa isa) const override {
    const auto& w = only(r).anchor.weights->dims;
    const auto outputs = static_cast<double>(ir::count(only(r).space));
    return (outputs * static_cast<double>(ir::count(w)) / static_cast<double>(w[0]) * 0.15 + outputs * 2.0) * slowdown(isa) *
               kSecondsPerCycle +
           0.5e-6;
  }
  Result<std::vector<ir::Tensor>> pack(const Region& r, const Plan& plan, Isa) const override {
    const Stage& s = only(r);
    const region::TensorRef& w = *s.anchor.weights;
    const std::int64_t channels = w.dims[0], taps = ir::count(w.dims) / channels;
    const std::int64_t row = padded(channels);
    const std::byte* bytes = plan.buffers[static_cast<std::size_t>(w.buffer)].data.bytes().data() + w.offset;
    const auto& zero = s.anchor.weight_zero;
    ir::Tensor out(integer_ ? ir::DType::s16 : ir::DType::f32, {taps, row});
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int32_t z = zero.empty() ? 0 : zero[static_cast<std::size_t>(c) % zero.size()];
      for (std::int64_t k = 0; k < taps; ++k) {
        const auto to = static_cast<std::size_t>(k * row + c);
        const std::int64_t from = c * taps + k;
        if (integer_) {
          out.mutable_data<std::int16_t>()[to] = static_cast<std::int16_t>(reinterpret_cast<const std::int8_t*>(bytes)[from] - z);
        } else {
          out.mutable_data<float>()[to] = reinterpret_cast<const float*>(bytes)[from];
        }
      }
    }
    return std::vector<ir::Tensor>{out};
  }
  Result<std::vector<std::int64_t>> packed_bytes(const Region& r, const Plan&, Isa) const override {
    const auto& w = only(r).anchor.weights->dims;
    return std::vector<std::int64_t>{ir::count(w) / w[0] * padded(w[0]) * (integer_ ? 2 : 4)};
  }
  Result<std::unique_ptr<Kernel>> instantiate(const Region& r, const Plan&, Isa isa, OldPacked packed) const override {
    OCTAVO_TRY(Parts p, parts_of(only(r), isa));
    return std::make_unique<DepthwiseKernel>(*kernel_table(isa), std::move(p), only(r), r.tactic, packed[0]);
  }

  std::vector<Parameters> parameter_sets(const Region& r, const Plan&, Isa isa) const override {
    std::vector<Parameters> out;
    const auto p = parts_of(only(r), isa);
    if (!p) return out;
    const Image& im = p->image;
    const std::int64_t rows = im.batch * im.depth.out * im.height.out,
                       most = kBlock / std::min<std::int64_t>(only(r).space[1], kBlock);
    const std::int64_t usual = DepthwiseKernel::usual_tasks(im, only(r));
    for (const std::int64_t n : {usual / 2, usual * 2}) {
      if (n >= 1 && n <= rows) add(out, kRowTiles, n);
    }
    for (const std::int64_t n : {most / 2, most / 4}) {
      if (n >= 1) add(out, kPixels, n);
    }
    for (const std::int64_t n : {1, 4}) add(out, kPrefetch, n);
    return out;
  }
  std::span<const ParameterRow> parameter_rows() const override {
    static constexpr std::array kParameters{kRowTiles, kPixels, kPrefetch};
    return kParameters;
  }

 private:
  bool integer_;
};

}  // namespace

const Family& depthwise_family() {
  static const Adapted<DepthwiseFamily> family(true);
  return family;
}
const Family& depthwise_f32_family() {
  static const Adapted<DepthwiseFamily> family(false);
  return family;
}

}  // namespace octavo::cpu
