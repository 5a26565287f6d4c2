// cpu.conv.u8s8.block.<isa> and cpu.conv.f32.block.<isa>: convolutions and transposed convolutions of any kernel, stride, dilation,
// padding, groups. A task is a row tile of output rows of one image. Its input rows are copied once into a padded strip (int16 codes
// minus the zero point, so padding is 0; or floats); then tiles of pixels x channels accumulate in registers and the epilogue runs
// over each tile. These are the kernels for processors without VNNI and for whatever the generated kernels refuse.
// One kernel, past 400 lines: setting, packing, tasks and loop share their cuts of the work.
#include <algorithm>
#include <cstring>

#include "cpu/constant.h"
#include "cpu/family.h"
#include "cpu/parameters.h"
#include "cpu/table.h"
#include "cpu/window.h"

namespace octavo::cpu {
namespace {

// How the weights are laid out and walked, the same at pack and at load, and what else kernels need.
struct BlockConvSetting {
  region::TensorRef x = {};
  Constant weights = {};
  std::vector<std::int32_t> weight_zero = {};
  BlockEpilogue epilogue = {};
  Parameters parameters = {};
  Isa isa = Isa::portable;
  bool integer = true, transposed = false;
  double macs = 0, outputs = 0;
  Image image = {};
  std::int64_t group = 1, cg = 1, og = 1;  // channels of a group: in, out
  std::int64_t cp = 1;                     // strip elements a pixel (int8: even)
  std::int64_t lanes = 16, blocks = 1;     // output channels of a tile, tiles of a group
  std::vector<AxisPhase> d = {}, h = {}, w = {};
  [[nodiscard]] std::int64_t taps() const { return image.depth.kernel * image.height.kernel * image.width.kernel; }
  [[nodiscard]] std::int64_t block_elements() const { return taps() * cp * lanes; }
};

Result<BlockConvSetting> block_conv_setting(const Request& q) {
  const Stage& s = only(q.region);
  const region::Anchor& a = s.anchor;
  const ir::Shape& weights = a.weights->dims;
  const ir::DType want = a.integer ? ir::DType::u8 : ir::DType::f32, want_w = a.integer ? ir::DType::s8 : ir::DType::f32;
  if (a.inputs[0].dtype != want || a.weights->dtype != want_w) {
    return refuse("types of input and weights",
                  fmt::format("{} and {}", ir::name_of(a.inputs[0].dtype), ir::name_of(a.weights->dtype)),
                  fmt::format("{} and {}", ir::name_of(want), ir::name_of(want_w)));
  }
  if (weights.size() < 3) return refuse("shape of the weights", ir::to_string(weights), "that of a convolution's");
  if (a.weights->strides != ir::dense_strides(weights)) return refuse("weights", "strided", "dense");
  BlockConvSetting l{a.inputs[0], Constant(*a.weights, q.plan), a.weight_zero, {}, q.parameters, q.isa, a.integer};
  OCTAVO_TRY(l.image, Image::of(s, {weights.begin() + 2, weights.end()}));
  l.group = a.as<ir::Window>().group;
  const std::int64_t c = l.x.dims[1], o = s.space[1];
  if (l.group < 1 || c % l.group != 0 || o % l.group != 0) {
    return fail(ErrorKind::bad_engine, fmt::format("{} groups do not divide {} input and {} output channels", l.group, c, o));
  }
  l.cg = c / l.group;
  l.og = o / l.group;
  l.transposed = a.op == ir::Op::conv_transpose;
  if (weights[0] != (l.transposed ? c : o) || weights[1] != (l.transposed ? l.og : l.cg)) {
    return fail(ErrorKind::bad_engine, fmt::format("weights {} do not fit {} input and {} output channels in {} groups",
                                                   ir::to_string(weights), c, o, l.group));
  }
  l.cp = l.integer ? (l.cg + 1) / 2 * 2 : l.cg;
  l.lanes = kernel_table(q.isa)->conv_channels;
  l.blocks = (l.og + l.lanes - 1) / l.lanes;
  l.d = l.image.depth.phases();
  l.h = l.image.height.phases();
  l.w = l.image.width.phases();
  l.outputs = static_cast<double>(ir::count(s.space));
  l.macs = (l.transposed ? static_cast<double>(ir::count(l.x.dims)) : l.outputs) * static_cast<double>(ir::count(weights)) /
           static_cast<double>(l.transposed ? c : o);
  OCTAVO_TRY(l.epilogue, block_epilogue(s, q.isa, static_cast<std::size_t>(l.image.w), static_cast<std::size_t>(l.image.c)));
  return l;
}

// Order of packed weights: group, channel block, phases d h w, taps d h w, input channel (int8: pairs), channel of the block.
template <class T, class From>
Result<std::vector<ir::Tensor>> packed_weights(const BlockConvSetting& l, ir::DType type) {
  OCTAVO_TRY(const From* from, l.weights.data<From>("weights"));
  ir::Tensor out(type, {l.group, l.blocks, l.block_elements()});
  T* to = out.mutable_data<T>().data();
  const bool transposed = l.transposed;
  const std::int64_t pair = l.integer ? 2 : 1;
  const Image& im = l.image;
  const std::int64_t kernel = l.taps();
  for (std::int64_t g = 0; g < l.group; ++g) {
    for (std::int64_t b = 0; b < l.blocks; ++b) {
      for (const AxisPhase& pd : l.d) {
        for (const AxisPhase& ph : l.h) {
          for (const AxisPhase& pw : l.w) {
            for (const Tap& td : pd.taps) {
              for (const Tap& th : ph.taps) {
                for (const Tap& tw : pw.taps) {
                  const std::int64_t k = (td.k * im.height.kernel + th.k) * im.width.kernel + tw.k;
                  for (std::int64_t c = 0; c < l.cg; ++c) {
                    for (std::int64_t lane = 0; lane < std::min(l.lanes, l.og - b * l.lanes); ++lane) {
                      const std::int64_t o = b * l.lanes + lane;
                      const std::int64_t row = transposed ? (g * l.cg + c) * l.og + o : (g * l.og + o) * l.cg + c;
                      const std::int32_t z = weight_zero_of(l.weight_zero, g * l.og + o);
                      to[c / pair * pair * l.lanes + lane * pair + c % pair] =
                          static_cast<T>(static_cast<T>(from[row * kernel + k]) - static_cast<T>(z));
                    }
                  }
                  to += l.cp * l.lanes;
                }
              }
            }
          }
        }
      }
    }
  }
  return std::vector<ir::Tensor>{out};
}

// One (depth, height, width) phase: its taps as runs of the strip, and where its weights begin.
struct Part {
  std::size_t d, h, w;
  std::vector<TapRun> runs;  // offsets from strip row in_step * j - row_min, pixel 0
  std::int64_t weight = 0;   // elements from the block's start
};

/// How the work is cut, and how many blocks ahead weights are fetched (0: not at all).
struct Cut {
  std::int64_t row_tiles = 1, rows_per_tile = 1, splits = 1, pixels = 1, ahead = 0;
};

class ConvKernel final : public Kernel {
 public:
  ConvKernel(BlockConvSetting setting, const std::byte* weights) : ConvKernel(std::move(setting)) {
    weights_ = weights;
    choose_cut(l_.parameters);
    make_parts();
  }
  /// What searches change.
  static Cut cut_of(const BlockConvSetting& setting) {
    ConvKernel k(setting);
    k.choose_cut({});
    return k.cut_;
  }

 private:
  explicit ConvKernel(BlockConvSetting setting)
      : table_(*kernel_table(setting.isa)), l_(std::move(setting)), epilogue_(l_.epilogue), integer_(l_.integer), x_(l_.x) {
    zx_ = x_.quantizer ? x_.quantizer->zero_point[0] : 0;
    element_ = integer_ ? 2 : 4;
    const auto range = [](const std::vector<AxisPhase>& phases, std::int64_t& lo, std::int64_t& hi) {
      bool any = false;
      for (const AxisPhase& p : phases) {
        for (const Tap& t : p.taps) {
          const std::int64_t last = (p.count - 1) * p.in_step + t.shift;
          lo = any ? std::min(lo, t.shift) : t.shift;
          hi = any ? std::max(hi, last) : last;
          any = true;
        }
      }
    };
    std::int64_t w_max = 0;
    range(l_.w, w_min_, w_max);
    strip_w_ = w_max - w_min_ + 1;
    for (const AxisPhase& p : l_.d) slices_ = std::max(slices_, static_cast<std::int64_t>(p.taps.size()));
  }

 public:
  int tasks() const override { return static_cast<int>(l_.image.batch * l_.image.depth.out * cut_.row_tiles * cut_.splits); }
  std::size_t scratch_bytes() const override {
    const std::size_t strip = static_cast<std::size_t>(slices_ * strip_h_ * strip_w_ * l_.cp * element_);
    return (epilogue_.scratch_bytes() + 63) / 64 * 64 + strip + 64;
  }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    for (std::int64_t t = task_begin; t < task_end; ++t) {
      std::int64_t rest = t;
      const std::int64_t split = rest % cut_.splits;
      rest /= cut_.splits;
      const std::int64_t row_tile = rest % cut_.row_tiles;
      rest /= cut_.row_tiles;
      run_row_tile(memory, worker.scratch, rest / l_.image.depth.out, rest % l_.image.depth.out, row_tile, split);
    }
  }

 private:
  void choose_cut(const Parameters& parameters) {
    const std::int64_t rows = l_.image.height.out, given = number(parameters, kRowTiles, rows);
    std::int64_t& each = cut_.rows_per_tile;
    each =
        given > 0 ? (rows + given - 1) / given : std::clamp<std::int64_t>((rows + 15) / 16, std::min<std::int64_t>(4, rows), rows);
    while (true) {
      strip_h_ = 1;
      for (std::int64_t b = 0; b * each < rows; ++b) {
        std::int64_t lo = 0, hi = 0;
        strip_range(b, lo, hi);
        strip_h_ = std::max(strip_h_, hi - lo + 1);
      }
      if (given > 0 || each == 1 || slices_ * strip_h_ * strip_w_ * l_.cp * element_ <= standard_machine().l2_bytes / 2) break;
      each = (each + 1) / 2;
    }
    cut_.row_tiles = (rows + each - 1) / each;
    const std::int64_t pieces = l_.image.batch * l_.image.depth.out * cut_.row_tiles, blocks = l_.group * l_.blocks;
    const std::int64_t splits = number(parameters, kSplits, blocks), pixels = number(parameters, kPixels, table_.conv_pixels);
    cut_.splits = splits > 0 ? splits : std::clamp<std::int64_t>(8 / pieces, 1, blocks);
    cut_.pixels = pixels > 0 ? pixels : table_.conv_pixels;
    cut_.ahead = number(parameters, kPrefetch, blocks);
  }

  // Rows j of a phase whose outputs lie in the row tile.
  static void rows_of(const AxisPhase& p, std::int64_t begin, std::int64_t end, std::int64_t& j0, std::int64_t& j1) {
    j0 = std::max<std::int64_t>(0, (begin - p.first + p.step - 1) / p.step);
    j1 = end <= p.first ? 0 : std::min(p.count, (end - p.first + p.step - 1) / p.step);
  }
  void strip_range(std::int64_t row_tile, std::int64_t& lo, std::int64_t& hi) const {
    const std::int64_t begin = row_tile * cut_.rows_per_tile, end = std::min(begin + cut_.rows_per_tile, l_.image.height.out);
    bool any = false;
    for (const AxisPhase& p : l_.h) {
      std::int64_t j0, j1;
      rows_of(p, begin, end, j0, j1);
      if (j0 >= j1 || p.taps.empty()) continue;
      const std::int64_t first = j0 * p.in_step + p.taps.front().shift, last = (j1 - 1) * p.in_step + p.taps.back().shift;
      lo = any ? std::min(lo, first) : first;
      hi = any ? std::max(hi, last) : last;
      any = true;
    }
  }

  void make_parts() {
    std::int64_t weight = 0;
    for (std::size_t d = 0; d < l_.d.size(); ++d) {
      for (std::size_t h = 0; h < l_.h.size(); ++h) {
        for (std::size_t w = 0; w < l_.w.size(); ++w) {
          Part part{d, h, w, {}, weight};
          for (std::size_t slice = 0; slice < l_.d[d].taps.size(); ++slice) {
            for (const Tap& th : l_.h[h].taps) {
              for (const Tap& tw : l_.w[w].taps) {
                const std::int64_t offset =
                    ((static_cast<std::int64_t>(slice) * strip_h_ + th.shift) * strip_w_ + tw.shift - w_min_) * l_.cp;
                weight += l_.cp * l_.lanes;
                if (!part.runs.empty() && part.runs.back().offset + part.runs.back().length == offset) {
                  part.runs.back().length += static_cast<std::int32_t>(l_.cp);
                } else {
                  part.runs.push_back({offset, static_cast<std::int32_t>(l_.cp)});
                }
              }
            }
          }
          parts_.push_back(std::move(part));
        }
      }
    }
  }

  void fill_row(std::byte* to, const std::byte* from) const {
    const Image& im = l_.image;
    const std::int64_t begin = std::max<std::int64_t>(0, w_min_), end = std::min(im.width.in, w_min_ + strip_w_);
    const auto pixel = [&](std::int64_t w) { return to + (w - w_min_) * l_.cp * element_; };
    const std::byte* const row_end = to + strip_w_ * l_.cp * element_;
    std::memset(to, 0, static_cast<std::size_t>((begin < end ? pixel(begin) : row_end) - to));
    if (begin >= end) return;
    std::memset(pixel(end), 0, static_cast<std::size_t>(row_end - pixel(end)));
    const std::int64_t size = integer_ ? 1 : 4;
    if (im.xc == size && l_.cp == l_.cg && im.xw == l_.cg * size) {
      return fill_channels(pixel(begin), from + begin * im.xw, (end - begin) * l_.cg);
    }
    for (std::int64_t w = begin; w < end; ++w) {
      std::byte* const p = pixel(w);
      const std::byte* const x = from + w * im.xw;
      if (im.xc == size || l_.cg == 1) {
        fill_channels(p, x, l_.cg);
      } else {
        for (std::int64_t c = 0; c < l_.cg; ++c) fill_channels(p + c * element_, x + c * im.xc, 1);
      }
      if (l_.cp != l_.cg) std::memset(p + l_.cg * element_, 0, static_cast<std::size_t>(element_));
    }
  }
  void fill_channels(std::byte* to, const std::byte* from, std::int64_t n) const {
    if (!integer_) {
      std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
    } else if (n < 8) {
      for (std::int64_t i = 0; i < n; ++i) {
        reinterpret_cast<std::int16_t*>(to)[i] = static_cast<std::int16_t>(std::to_integer<std::int32_t>(from[i]) - zx_);
      }
    } else {
      table_.widen(reinterpret_cast<std::int16_t*>(to), reinterpret_cast<const std::uint8_t*>(from), n, zx_);
    }
  }

  void run_row_tile(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t od, std::int64_t row_tile,
                    std::int64_t split) const {
    const Image& im = l_.image;
    std::byte* strip = scratch + (epilogue_.scratch_bytes() + 63) / 64 * 64;
    std::int64_t row_min = 0, row_max = -1;
    strip_range(row_tile, row_min, row_max);
    const auto phase_d = static_cast<std::size_t>(od % static_cast<std::int64_t>(l_.d.size()));
    const AxisPhase& pd = l_.d[phase_d];
    const std::int64_t begin = row_tile * cut_.rows_per_tile, end = std::min(begin + cut_.rows_per_tile, im.height.out);
    const std::int64_t all = l_.group * l_.blocks, first = all * split / cut_.splits, last = all * (split + 1) / cut_.splits;
    std::int64_t filled = -1;
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t g = block / l_.blocks, b = block % l_.blocks;
      if (g != filled) {
        const std::byte* x = memory.at(x_) + n * im.xn + g * l_.cg * im.xc;
        for (std::size_t slice = 0; slice < pd.taps.size(); ++slice) {
          const std::int64_t id = od / pd.step * pd.in_step + pd.taps[slice].shift;
          for (std::int64_t h = row_min; h <= row_max; ++h) {
            std::byte* to = strip + ((static_cast<std::int64_t>(slice) * strip_h_ + h - row_min) * strip_w_) * l_.cp * element_;
            if (id < 0 || id >= im.depth.in || h < 0 || h >= im.height.in) {
              std::memset(to, 0, static_cast<std::size_t>(strip_w_ * l_.cp * element_));
            } else {
              fill_row(to, x + id * im.xd + h * im.xh);
            }
          }
        }
        filled = g;
      }
      const std::byte* w = weights_ + block * l_.block_elements() * element_;
      const auto cols = static_cast<int>(std::min(l_.lanes, l_.og - b * l_.lanes));
      for (const Part& part : parts_) {
        if (part.d != phase_d) continue;
        const AxisPhase& ph = l_.h[part.h];
        std::int64_t j0, j1;
        rows_of(ph, begin, end, j0, j1);
        for (std::int64_t j = j0; j < j1; ++j) {
          Index origin{};
          set(origin, im.n, n);
          set(origin, im.c, g * l_.og + b * l_.lanes);
          set(origin, im.d, od);
          set(origin, im.h, ph.first + ph.step * j);
          if (cut_.ahead > 0 && block + cut_.ahead < last) fetch_share(block + cut_.ahead, (j - j0), j1 - j0);
          const std::byte* row = strip + (ph.in_step * j - row_min) * strip_w_ * l_.cp * element_;
          run_row(memory, scratch, origin, part, row, w + part.weight * element_, cols);
        }
      }
    }
  }

  /// Part i of n of a block's weights, into the second-level cache.
  void fetch_share(std::int64_t block, std::int64_t i, std::int64_t n) const {
    const std::int64_t bytes = l_.block_elements() * element_;
    const std::byte* w = weights_ + block * bytes;
    for (std::int64_t at = bytes * i / n; at < bytes * (i + 1) / n; at += 64) __builtin_prefetch(w + at, 0, 2);
  }

  static void set(Index& origin, int dim, std::int64_t value) {
    if (dim >= 0) origin[static_cast<std::size_t>(dim)] = value;
  }

  void run_row(const Memory& memory, std::byte* scratch, Index origin, const Part& part, const std::byte* row, const std::byte* w,
               int cols) const {
    const AxisPhase& pw = l_.w[part.w];
    ConvTile t;
    t.pixel_step = pw.in_step * l_.cp;
    t.runs = part.runs.data();
    t.run_count = static_cast<int>(part.runs.size());
    t.w = w;
    t.acc = BlockEpilogue::acc(scratch);
    auto* acc = BlockEpilogue::acc(scratch);
    for (std::int64_t p = 0; p < pw.count; p += cut_.pixels) {
      t.pixels = static_cast<int>(std::min(cut_.pixels, pw.count - p));
      t.x = row + p * t.pixel_step * element_;
      if (integer_) {
        table_.conv_i16(t);
      } else {
        table_.conv_f32(t);
      }
      if (cols < l_.lanes) {  // a block has no gaps between its rows
        for (int r = 1; r < t.pixels; ++r) std::memmove(acc + r * cols, acc + r * l_.lanes, static_cast<std::size_t>(cols) * 4);
      }
      set(origin, l_.image.w, pw.first + pw.step * p);
      epilogue_.run(memory, scratch, origin, t.pixels, cols, pw.step);
    }
  }

  const KernelTable& table_;
  BlockConvSetting l_;
  const BlockEpilogue& epilogue_;
  const std::byte* weights_ = nullptr;
  bool integer_;
  const region::TensorRef& x_;
  std::int32_t zx_ = 0;
  std::int64_t element_ = 2;
  std::int64_t w_min_ = 0, strip_w_ = 1, strip_h_ = 1, slices_ = 1;
  Cut cut_;
  std::vector<Part> parts_;
};

constexpr std::array kConvParameters{kRowTiles, kSplits, kPixels, kPrefetch};

class ConvFamily final : public FamilyOf<BlockConvSetting> {
 public:
  explicit ConvFamily(bool integer)
      : FamilyOf({.name = integer ? "conv.u8s8.block" : "conv.f32.block", .parameters = kConvParameters}), integer_(integer) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return r.stages.size() == 1 && (a.op == ir::Op::conv || a.op == ir::Op::conv_transpose) && a.integer == integer_ && a.weights &&
           !a.inputs.empty();
  }
  Match<BlockConvSetting> match(const Request& q) const override { return block_conv_setting(q); }
  double cost(const BlockConvSetting& l, Isa isa) const override {
    const double waste = std::max(1.0, 16.0 / static_cast<double>(l.og));  // lanes without a channel
    const double read = static_cast<double>(packed_bytes(l)[0]) / kBytesAClock;
    return ((l.macs * waste / (integer_ ? 40.0 : 22.0) + l.outputs * 2.0) * slowdown(isa) + read) * kSecondsPerCycle + 0.5e-6;
  }
  std::vector<std::int64_t> packed_bytes(const BlockConvSetting& l) const override {
    return {l.group * l.blocks * l.block_elements() * (integer_ ? 2 : 4)};
  }
  Result<std::vector<ir::Tensor>> pack(const BlockConvSetting& l) const override {
    return integer_ ? packed_weights<std::int16_t, std::int8_t>(l, ir::DType::s16)
                    : packed_weights<float, float>(l, ir::DType::f32);
  }
  std::optional<std::string> layout(const BlockConvSetting& l) const override {
    std::string out = fmt::format("{} groups {} blocks {} of {} {} lanes:", l.group, l.blocks, l.cp, l.cg, l.lanes);
    for (const auto* axis : {&l.d, &l.h, &l.w}) {
      out += " |";
      for (const AxisPhase& phase : *axis) {
        out += " /";
        for (const Tap& tap : phase.taps) out += fmt::format(" {}", tap.k);
      }
    }
    return out;
  }
  Result<std::unique_ptr<Kernel>> load(BlockConvSetting l, Packed packed) const override {
    return std::make_unique<ConvKernel>(std::move(l), packed[0].data());
  }
  std::vector<Parameters> variants(const BlockConvSetting& l) const override {
    std::vector<Parameters> out;
    const Cut usual = ConvKernel::cut_of(l);
    const std::int64_t rows = l.image.height.out, blocks = l.group * l.blocks;
    for (const std::int64_t n : {usual.row_tiles / 2, usual.row_tiles * 2}) {
      if (n >= 1 && n <= rows) add(out, kRowTiles, n);
    }
    for (const std::int64_t n : {usual.splits / 2, usual.splits * 2}) {
      if (n >= 1 && n <= blocks) add(out, kSplits, n);
    }
    for (const std::int64_t n : {usual.pixels / 2, usual.pixels / 4}) {
      if (n >= 1) add(out, kPixels, n);
    }
    for (const std::int64_t n : {1, 2}) {
      if (n < blocks) add(out, kPrefetch, n);
    }
    return out;
  }

 private:
  bool integer_;
};

}  // namespace

OCTAVO_DEFINE_FAMILIES(conv, ConvFamily, std::array{true, false})

}  // namespace octavo::cpu
