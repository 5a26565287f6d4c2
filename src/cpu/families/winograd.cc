// cpu.conv.f32.winograd.<isa>: float convolutions of 3 x 3 taps with stride 1 by Winograd's F(2 x 2, 3 x 3) (rows/winograd_rows.h), which takes 16
// products where a direct convolution takes 36. A task transforms a block of tiles of the input once; then, for 64 output channels at a time,
// 16 products of matrices, the transformation of their sums to two rows of outputs, and the epilogue.
//
// Sums are in another order than the reference's, which float anchors may be (docs/semantics.md), and inputs and weights are added up before they are
// multiplied. An output reads the inputs of its own window alone: the fourth row of a tile takes no part in the first output, nor the first row in
// the second. The errors are smaller than those of the reference's own order, whose chain of additions is nine times as long:
// docs/lab/performance-float.md has both beside sums in float64.
//
// Sums of two large inputs may overflow, and two infinities of a window give NaN where their products would not: outputs that are no finite numbers are computed
// again, directly, in the order of the reference.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cpu/constant.h"
#include "cpu/families/row_families.h"
#include "cpu/generated_epilogue.h"
#include "cpu/parameters.h"
#include "cpu/rows/winograd_rows.h"
#include "cpu/table.h"
#include "cpu/window.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPanel = kWinogradColumns;  // output channels whose sums are held at a time
constexpr std::int64_t kTileRows = 6;              // tiles that a product has in registers
constexpr std::int64_t kLeastTiles = 36;           // of a block: fewer would read the weights too often
constexpr std::int64_t kMostTiles = 192;
constexpr std::int64_t kRowFloats = 1024;      // of a row of outputs that the epilogue takes at once
constexpr std::int64_t kBlockBytes = 1 << 18;  // of transformed inputs and sums: a quarter of a second-level cache

#if defined(__x86_64__)
constexpr std::array kIsas{Isa::avx512, Isa::avx2};
const WinogradRows& winograd_rows(Isa isa) {
  return isa >= Isa::avx512 ? avx512_winograd() : avx2_winograd();
}
#else
constexpr std::array<Isa, 0> kIsas{};
const WinogradRows& winograd_rows(Isa) {
  std::abort();  // no level, no kernel
}
#endif

std::int64_t rounded_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

struct WinogradSetting {
  region::TensorRef x = {}, plain = {};  ///< plain: the weights as the model has them
  Constant data = {};                    ///< of those
  Stage stage = {};                      ///< for the generated epilogue
  BlockEpilogue epilogue = {};
  Isa isa = Isa::avx2;
  Image image = {};
  std::int64_t channels = 1, outputs = 1;
  std::int64_t down = 1, across = 1;  ///< tiles of an image
  std::int64_t block = 1;             ///< tiles that are transformed together
  std::int64_t splits = 1;            ///< tasks that share a block, each with some panels
  [[nodiscard]] std::int64_t tiles() const { return down * across; }
  [[nodiscard]] std::int64_t blocks() const { return (tiles() + block - 1) / block; }
  [[nodiscard]] std::int64_t panels() const { return (outputs + kPanel - 1) / kPanel; }
  /// Columns of a panel, padded.
  [[nodiscard]] std::int64_t columns(std::int64_t panel) const {
    return std::min(kPanel, rounded_up(outputs, kColumns) - panel * kPanel);
  }
  /// Floats of a row of V, and of its planes and M's: an odd number of lines, so that planes do not meet in one cache set.
  [[nodiscard]] std::int64_t v_step() const { return rounded_up(channels, kColumns); }
  [[nodiscard]] std::int64_t v_plane() const { return odd_lines(block * v_step()); }
  [[nodiscard]] std::int64_t m_plane() const { return odd_lines(block * std::min(kPanel, rounded_up(outputs, kColumns))); }
  [[nodiscard]] std::int64_t weights() const { return kWinogradPlanes * channels * rounded_up(outputs, kColumns); }

 private:
  static std::int64_t odd_lines(std::int64_t floats) { return (rounded_up(floats, 16) / 16 | 1) * 16; }
};

/// Blocks of one image and tasks that share a block, so that `threads` have the same to do.
void divide(WinogradSetting& t, const Parameters& parameters, std::int64_t most, std::int64_t threads) {
  std::int64_t blocks = (t.tiles() + most - 1) / most;
  const std::int64_t splits = number(parameters, kSplits, t.panels()), pieces = t.image.batch * blocks;
  t.splits = splits > 0 ? splits : 1;
  const bool few = pieces < 8 * threads;
  if (splits == 0 && few && pieces % threads != 0) {
    if (pieces < threads && t.panels() % threads == 0) {
      t.splits = threads;
    } else {
      std::int64_t even = blocks;
      while (even <= t.tiles() && t.image.batch * even % threads != 0) ++even;
      if (even <= t.tiles()) blocks = even;
    }
  }
  t.block = (t.tiles() + blocks - 1) / blocks;
  if (!few) t.block = std::min(rounded_up(t.block, kTileRows), t.tiles());
}

Result<WinogradSetting> winograd_setting(const Request& q) {
  const Stage& s = only(q.region);
  const region::TensorRef& x = s.anchor.inputs[0];
  const ir::Shape& w = s.anchor.weights->dims;
  if (x.dtype != ir::DType::f32 || s.anchor.weights->dtype != ir::DType::f32)
    return refuse("types of input and weights",
                  fmt::format("{} and {}", ir::name_of(x.dtype), ir::name_of(s.anchor.weights->dtype)), "f32 and f32");
  if (w.size() != 4 || w[2] != 3 || w[3] != 3) return refuse("shape of the weights", ir::to_string(w), "3 x 3 taps");
  if (s.anchor.weights->strides != ir::dense_strides(w)) return refuse("weights", "strided", "dense");
  WinogradSetting t{x, *s.anchor.weights, Constant(*s.anchor.weights, q.plan), s, {}, q.isa};
  OCTAVO_TRY(t.image, Image::of(s, {3, 3}));
  const Image& im = t.image;
  for (const WindowAxis* d : {&im.height, &im.width}) {
    if (d->stride != 1 || d->dilation != 1)
      return refuse("stride and dilation", fmt::format("{} and {}", d->stride, d->dilation), "1 and 1");
  }
  t.channels = x.dims[1], t.outputs = s.space[1];
  if (const std::int64_t groups = s.anchor.as<ir::Window>().group; groups != 1) return refuse("groups", groups, "1");
  if (w[0] != t.outputs || w[1] != t.channels)
    return fail(ErrorKind::bad_engine,
                fmt::format("weights {} do not fit {} input and {} output channels", ir::to_string(w), t.channels, t.outputs));
  if (t.channels < kWinogradLeastChannels)
    return refuse("input channels", t.channels, fmt::format("at least {}", kWinogradLeastChannels));
  if (im.xc != 4) return refuse("channel stride of the input", im.xc / 4, "1");
  if (im.h < 0 || im.w < 0 || ir::count(s.space) == 0 || ir::count(x.dims) == 0) return refuse("elements", 0, "an image of them");
  t.down = (im.height.out + 1) / 2, t.across = (im.width.out + 1) / 2;

  const std::int64_t given = number(q.parameters, kRows, kMostTiles),
                     fit = kBlockBytes / (kWinogradPlanes * 4 * (t.v_step() + std::min(kPanel, rounded_up(t.outputs, kColumns)))),
                     most = given > 0 ? given : std::clamp(fit, kLeastTiles, kMostTiles);
  divide(t, q.parameters, most, region::threads_of(q.plan));
  OCTAVO_TRY(t.epilogue, block_epilogue(s, q.isa, static_cast<std::size_t>(im.w), static_cast<std::size_t>(im.c)));
  return t;
}

struct Release {
  void operator()(float* p) const { std::free(p); }
};
using AlignedFloats = std::unique_ptr<float[], Release>;

/// U = G g Gt of every pair of channels, each element rounded once: [panel][plane][input channel][output channel of the panel].
AlignedFloats transformed(const WinogradSetting& t, const float* w) {
  const std::size_t bytes = static_cast<std::size_t>(t.weights()) * sizeof(float);  // a multiple of 64
  AlignedFloats out(static_cast<float*>(std::aligned_alloc(64, bytes)));
  if (out == nullptr) throw std::bad_alloc();
  std::memset(out.get(), 0, bytes);
  for (std::int64_t o = 0; o < t.outputs; ++o) {
    const std::int64_t panel = o / kPanel, columns = t.columns(panel);
    float* const to = out.get() + panel * kPanel * kWinogradPlanes * t.channels + o % kPanel;
    for (std::int64_t c = 0; c < t.channels; ++c) {
      const float* g = w + (o * t.channels + c) * 9;
      double half[4][3];
      for (int j = 0; j < 3; ++j) {
        const double g0 = g[j], g1 = g[3 + j], g2 = g[6 + j];
        half[0][j] = g0, half[1][j] = (g0 + g1 + g2) / 2, half[2][j] = (g0 - g1 + g2) / 2, half[3][j] = g2;
      }
      for (int i = 0; i < 4; ++i) {
        const double a = half[i][0], b = half[i][1], d = half[i][2];
        const double row[] = {a, (a + b + d) / 2, (a - b + d) / 2, d};
        for (int j = 0; j < 4; ++j) to[((4 * i + j) * t.channels + c) * columns] = static_cast<float>(row[j]);
      }
    }
  }
  return out;
}

class WinogradKernel final : public Kernel {
 public:
  WinogradKernel(WinogradSetting setting, std::unique_ptr<GeneratedEpilogue> generated, const std::byte* weights)
      : k_(winograd_rows(setting.isa)),
        t_(std::move(setting)),
        epilogue_(t_.epilogue),
        x_(t_.x),
        plain_(reinterpret_cast<const float*>(weights)),
        u_(transformed(t_, plain_)),
        generated_(std::move(generated)) {
    const auto floats = [&](std::int64_t n) {
      const std::size_t at = bytes_;
      bytes_ += line(static_cast<std::size_t>(n) * sizeof(float));
      return at;
    };
    bytes_ = line(epilogue_.scratch_bytes());
    at_strip_ = floats(4 * (2 * std::min(t_.block, t_.across) + 2) * t_.channels);
    for (std::size_t& at : at_rows_) at = floats(std::max<std::int64_t>(epilogue_.code().block(), kRowFloats) + kColumns);
    at_v_ = floats(kWinogradPlanes * t_.v_plane());
    at_m_ = floats(kWinogradPlanes * t_.m_plane());
  }

  int tasks() const override { return static_cast<int>(std::min<std::int64_t>(units(), 4096)); }
  std::size_t scratch_bytes() const override { return bytes_; }

  void run(const Memory& memory, int task_begin, int task_end, const Worker& worker) const override {
    epilogue_.prepare(worker.scratch);
    for (std::int64_t u = units() * task_begin / tasks(); u < units() * task_end / tasks(); ++u) {
      const std::int64_t split = u % t_.splits, block = u / t_.splits % t_.blocks(), image = u / t_.splits / t_.blocks();
      one(memory, worker.scratch, image, block * t_.block, std::min(t_.block, t_.tiles() - block * t_.block),
          t_.panels() * split / t_.splits, t_.panels() * (split + 1) / t_.splits);
    }
  }

 private:
  [[nodiscard]] std::int64_t units() const { return t_.image.batch * t_.blocks() * t_.splits; }
  static float* floats(std::byte* scratch, std::size_t at) { return reinterpret_cast<float*>(scratch + at); }
  [[nodiscard]] const std::byte* image_at(const Memory& memory, std::int64_t n) const { return memory.at(x_) + n * t_.image.xn; }
  /// V of neighbours of one row of tiles: where their pixels are, or, of tiles that the padding reaches into, from a copy with zeros.
  void transform(const std::byte* image, std::int64_t down, std::int64_t across, std::int64_t tiles, std::byte* scratch,
                 float* v) const {
    const Image& im = t_.image;
    const std::int64_t h = down * 2 - im.height.pad, w = across * 2 - im.width.pad;
    const std::int64_t before = std::clamp<std::int64_t>((1 - w) / 2, 0, tiles);  // tiles that begin left of the image
    const std::int64_t inside = std::clamp<std::int64_t>((im.width.in - w - 2) / 2 - before, 0, tiles - before);  // that end in it
    const bool whole = h >= 0 && h + 4 <= im.height.in && inside > 0;
    if (!whole) return transform_copy(image, h, w, tiles, scratch, v);
    if (before > 0) transform_copy(image, h, w, before, scratch, v);
    k_.input(v + before * t_.v_step(), t_.v_plane(), t_.v_step(),
             reinterpret_cast<const float*>(image + h * im.xh + (w + 2 * before) * im.xw), im.xh / 4, im.xw / 4, inside,
             t_.channels);
    const std::int64_t done = before + inside;
    if (done < tiles) transform_copy(image, h, w + 2 * done, tiles - done, scratch, v + done * t_.v_step());
  }
  void transform_copy(const std::byte* image, std::int64_t h, std::int64_t w, std::int64_t tiles, std::byte* scratch,
                      float* v) const {
    const Image& im = t_.image;
    float* const strip = floats(scratch, at_strip_);
    const std::int64_t pixels = 2 * tiles + 2, row = pixels * t_.channels;
    const std::int64_t begin = std::clamp<std::int64_t>(-w, 0, pixels),
                       end = std::clamp<std::int64_t>(im.width.in - w, begin, pixels);
    for (std::int64_t i = 0; i < 4; ++i) {
      float* const to = strip + i * row;
      const bool in = h + i >= 0 && h + i < im.height.in;
      const std::int64_t from = in ? begin : pixels, until = in ? end : pixels;
      std::memset(to, 0, static_cast<std::size_t>(from * t_.channels) * sizeof(float));
      for (std::int64_t p = from; p < until; ++p)
        std::memcpy(to + p * t_.channels, image + (h + i) * im.xh + (w + p) * im.xw,
                    static_cast<std::size_t>(t_.channels) * sizeof(float));
      std::memset(to + until * t_.channels, 0, static_cast<std::size_t>((pixels - until) * t_.channels) * sizeof(float));
    }
    k_.input(v, t_.v_plane(), t_.v_step(), strip, row, t_.channels, tiles, t_.channels);
  }

  /// Some tiles of an image, for some panels of output channels.
  void one(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t first, std::int64_t tiles, std::int64_t panel,
           std::int64_t panel_end) const {
    float *v = floats(scratch, at_v_), *m = floats(scratch, at_m_);
    const std::byte* image = image_at(memory, n);
    for (std::int64_t i = 0, some = 0; i < tiles; i += some) {
      const std::int64_t across = (first + i) % t_.across;
      some = std::min(tiles - i, t_.across - across);
      transform(image, (first + i) / t_.across, across, some, scratch, v + i * t_.v_step());
    }
    for (; panel < panel_end; ++panel) {
      const std::int64_t columns = t_.columns(panel);
      const float* u = u_.get() + panel * kPanel * kWinogradPlanes * t_.channels;
      for (std::int64_t p = 0; p < kWinogradPlanes; ++p) {
        if (panel + 1 == panel_end) fetch(image, first + tiles, p);
        k_.multiply(m + p * t_.m_plane(), columns, v + p * t_.v_plane(), t_.v_step(), tiles, u + p * t_.channels * columns,
                    t_.channels, columns);
      }
      store(memory, scratch, n, first, tiles, panel);
    }
  }

  /// A part, one of 16, of the pixels that the block from tile `first` on reads and the tiles above it did not, into the second-level cache.
  void fetch(const std::byte* image, std::int64_t first, std::int64_t part) const {
    const Image& im = t_.image;
    if (first >= t_.tiles()) return;
    const std::int64_t across = first % t_.across, tiles = std::min({t_.block, t_.tiles() - first, t_.across - across});
    const std::int64_t w = std::max<std::int64_t>(across * 2 - im.width.pad, 0), pixels = std::min(2 * tiles, im.width.in - w);
    const std::int64_t lines = pixels * t_.channels / 16;
    for (std::int64_t i = 2; i < 4; ++i) {
      const std::int64_t h = first / t_.across * 2 - im.height.pad + i;
      if (h < 0 || h >= im.height.in) continue;
      const std::byte* row = image + h * im.xh + w * im.xw;
      for (std::int64_t l = lines * part / kWinogradPlanes; l < lines * (part + 1) / kWinogradPlanes; ++l) {
        __builtin_prefetch(row + l * 16 / t_.channels * im.xw + l * 16 % t_.channels * 4, 0, 2);
      }
    }
  }

  /// Outputs of a panel, the epilogue over as many neighbours of a row at a time as its block holds.
  void store(const Memory& memory, std::byte* scratch, std::int64_t n, std::int64_t first, std::int64_t tiles,
             std::int64_t panel) const {
    const Image& im = t_.image;
    const std::int64_t columns = t_.columns(panel), cols = std::min(kPanel, t_.outputs - panel * kPanel),
                       at_once = (generated_ ? kRowFloats : epilogue_.code().block()) / (2 * cols);
    float* const rows[] = {floats(scratch, at_rows_[0]), floats(scratch, at_rows_[1])};
    for (std::int64_t i = 0, some = 0; i < tiles; i += some) {
      const std::int64_t h = (first + i) / t_.across * 2, w = (first + i) % t_.across * 2;
      some = std::min({at_once, tiles - i, t_.across - w / 2});
      const std::int64_t pixels = std::min(2 * some, im.width.out - w);
      const bool finite = k_.output(rows, floats(scratch, at_m_) + i * columns, t_.m_plane(), columns, some, cols);
      for (int row = 0; row < 2 && h + row < im.height.out; ++row) {
        if (!finite) directly(memory, n, h + row, w, pixels, panel * kPanel, cols, rows[row]);
        if (generated_) {
          generated_->run(memory, rows[row], n, panel * kPanel, h + row, w, pixels, cols);
        } else {
          interpret(memory, scratch, {n, panel * kPanel, h + row, w}, rows[row], pixels, cols);
        }
      }
    }
  }
  void interpret(const Memory& memory, std::byte* scratch, const std::array<std::int64_t, 4>& at, const float* sums,
                 std::int64_t pixels, std::int64_t cols) const {
    const Image& im = t_.image;
    Index origin{};
    if (im.n >= 0) origin[static_cast<std::size_t>(im.n)] = at[0];
    origin[static_cast<std::size_t>(im.c)] = at[1];
    origin[static_cast<std::size_t>(im.h)] = at[2];
    origin[static_cast<std::size_t>(im.w)] = at[3];
    std::memcpy(BlockEpilogue::acc(scratch), sums, static_cast<std::size_t>(pixels * cols) * sizeof(float));
    epilogue_.run(memory, scratch, origin, static_cast<int>(pixels), static_cast<int>(cols));
  }

  /// acc[p * cols + j]: the sums of output (h, w + p), channel o + j, in the order of the reference.
  void directly(const Memory& memory, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t pixels, std::int64_t o,
                std::int64_t cols, float* acc) const {
    const Image& im = t_.image;
    const std::byte* image = image_at(memory, n);
    for (std::int64_t p = 0; p < pixels; ++p) {
      const float* d[9];  // null in the padding
      for (int k = 0; k < 9; ++k) {
        const std::int64_t y = h - im.height.pad + k / 3, x = w + p - im.width.pad + k % 3;
        const bool in = y >= 0 && y < im.height.in && x >= 0 && x < im.width.in;
        d[k] = in ? reinterpret_cast<const float*>(image + y * im.xh + x * im.xw) : nullptr;
      }
      for (std::int64_t j = 0; j < cols; ++j) {
        const float* g = plain_ + (o + j) * t_.channels * 9;
        float sum = 0;
        for (std::int64_t c = 0; c < t_.channels; ++c) {
          for (int k = 0; k < 9; ++k) {
            if (d[k] != nullptr) sum = std::fma(d[k][c], g[c * 9 + k], sum);
          }
        }
        acc[p * cols + j] = sum;
      }
    }
  }

  const WinogradRows& k_;
  WinogradSetting t_;
  const BlockEpilogue& epilogue_;
  const region::TensorRef& x_;
  const float* plain_;  ///< the weights as the model has them
  AlignedFloats u_;
  std::unique_ptr<GeneratedEpilogue> generated_;  ///< null: the block interpreter
  std::array<std::size_t, 2> at_rows_{};
  std::size_t bytes_ = 0, at_strip_ = 0, at_v_ = 0, at_m_ = 0;
};

constexpr std::array kWinogradParameters{kRows, kSplits};

class WinogradFamily final : public FamilyOf<WinogradSetting> {
 public:
  WinogradFamily() : FamilyOf({.name = "conv.f32.winograd", .levels = kIsas, .parameters = kWinogradParameters}) {}
  bool about(const Region& r) const override {
    const region::Anchor& a = only(r).anchor;
    return is_one(r, ir::Op::conv) && !a.integer && a.weights && a.weights->dtype == ir::DType::f32 && !a.inputs.empty() &&
           !only(r).program.outputs.empty();
  }
  Match<WinogradSetting> match(const Request& q) const override { return winograd_setting(q); }
  double cost(const WinogradSetting& t, Isa isa) const override {
    const auto tiles = static_cast<double>(t.image.batch * t.tiles()), channels = static_cast<double>(t.channels);
    const auto outputs = static_cast<double>(rounded_up(t.outputs, kColumns));
    return tiles * (16.0 * channels * outputs / 26.0 + channels * 2.5 * static_cast<double>(t.splits) + outputs * 4.0) *
               slowdown(isa) * kSecondsPerCycle +
           1e-6;
  }
  // The weights as they are, as outputs that are no finite numbers need them; they are transformed at load, so that files do not grow.
  std::vector<std::int64_t> packed_bytes(const WinogradSetting& t) const override { return {tensor_bytes(t.plain)}; }
  Result<std::vector<ir::Tensor>> pack(const WinogradSetting& t) const override { return t.data.copied(t.plain); }
  std::optional<std::string> layout(const WinogradSetting&) const override { return "plain"; }
  Result<std::unique_ptr<Kernel>> load(WinogradSetting t, Packed packed) const override {
    std::vector<std::int64_t> widths;  // of panels
    for (const std::int64_t n : {std::min(kPanel, t.outputs), t.outputs % kPanel}) {
      if (n > 0 && (widths.empty() || widths.front() != n)) widths.push_back(n);
    }
    OCTAVO_TRY(auto generated, generated_epilogue(t.stage, t.isa, widths, kRowFloats / widths.back()));
    return std::make_unique<WinogradKernel>(std::move(t), std::move(generated), packed[0].data());
  }
  std::vector<Parameters> variants(const WinogradSetting& t) const override {
    std::vector<Parameters> out;
    for (const std::int64_t n : {t.block / 2, t.block * 2}) {
      if (n >= kTileRows && n <= std::min(kMostTiles, t.tiles())) add(out, kRows, n);
    }
    for (const std::int64_t n : {t.splits / 2, t.splits * 2}) {
      if (n >= 1 && n <= t.panels()) add(out, kSplits, n);
    }
    return out;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(winograd, WinogradFamily)

}  // namespace octavo::cpu
