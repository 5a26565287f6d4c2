// conv.u8s8.im2col and its like: convolutions as products of warpgroups whose rows the GPU's copying unit gathers (conv_im2col.inc), one copy a tap
// instead of an instruction every 16 bytes. For windows with strides, whose pixels are read few times each, and for long depths.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_im2col.inc"
    ;
constexpr std::int64_t kSignalBytes = 1024;  // as in the text
constexpr int kMostStages = 8;

struct Im2colTile {
  int pixels = 128, channels = 128, depth = 128;
  int groups = 2, turns = 0;
  int stages = 4, resident = 0, blocks = 1;
  static constexpr std::array<TileParameter<Im2colTile>, 6> kParameters{
      {{{"tile", "", "pixels x channels x bytes of the depth of a step"},
        {&Im2colTile::pixels, &Im2colTile::channels, &Im2colTile::depth}},
       {{"groups", "", "warpgroups that multiply"}, {&Im2colTile::groups}},
       {{"tiles", "shared|turns", "each of all groups, or of one group in turn"}, {&Im2colTile::turns}},
       {{"stages", "", "steps in shared memory", true}, {&Im2colTile::stages}},
       {{"filter", "streamed|resident", "in shared memory step by step, or as a whole", true}, {&Im2colTile::resident}},
       {{"blocks", "", "of a multiprocessor"}, {&Im2colTile::blocks}}}};
  [[nodiscard]] int rows_of_group() const { return turns != 0 ? pixels : pixels / groups; }
};

/// What follows from shape and tile.
struct Im2colSizes {
  std::int64_t steps, a, b, tiles_n, items, grid, shared, threads;
  std::int64_t registers;  ///< that a thread can have
};
Im2colSizes sizes_of(const ConvShape& s, const Im2colTile& t, const Target& target) {
  Im2colSizes z{};
  z.steps = s.taps() * s.channels / t.depth;
  z.a = std::int64_t{t.pixels} * t.depth, z.b = std::int64_t{t.channels} * t.depth;
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = parts(s.pixels(), t.pixels) * z.tiles_n;
  z.grid = t.resident != 0 ? blocks_of_filters(z.items, z.tiles_n, t.blocks, target)
                           : std::min<std::int64_t>(z.items, std::int64_t{target.multiprocessors} * t.blocks);
  z.shared = kSignalBytes + (t.resident != 0 ? z.steps * z.b : 0) + t.stages * (z.a + (t.resident != 0 ? 0 : z.b));
  z.threads = 128 * t.groups + 32;
  z.registers = registers_of_thread(z.threads, t.blocks);
  return z;
}

Reasons why_not_tile(const ConvShape& s, const Im2colTile& t, const Target& target) {
  constexpr int kBesideSums = 38;  // registers
  if (t.groups < 1 || t.groups > 3 || t.pixels < 64 || t.pixels > 256 || t.rows_of_group() % 64 != 0 ||
      (t.turns == 0 && t.pixels % t.groups != 0) || (t.channels != 64 && t.channels != 128 && t.channels != 256))
    return unmet("tile, warpgroups", fmt::format("{}x{}, {}", t.pixels, t.channels, t.groups),
                 "64 to 256 pixels, 64 a group; 64, 128 or 256 channels; 1 to 3 groups");
  if ((t.depth != 32 && t.depth != 64 && t.depth != 128) || s.channels % t.depth != 0)
    return unmet("bytes of a step", fmt::format("{} of {}", t.depth, s.channels),
                 "32, 64 or 128, and a divisor of a pixel's bytes");
  if (t.stages < 2 || t.stages > kMostStages || t.blocks < 1)
    return unmet("stages, blocks", fmt::format("{}, {}", t.stages, t.blocks), "2 to 8, at least 1");
  const Im2colSizes z = sizes_of(s, t, target);
  if (t.resident != 0 && z.steps * z.b > (1 << 20) - 16)
    return unmet("bytes of a filter that stays", z.steps * z.b, "what a signal can count, 2^20 less 16");
  const std::int64_t sums = std::int64_t{t.rows_of_group()} * t.channels / 128;
  if (sums > 128 || z.registers < sums + kBesideSums)
    return unmet("registers", z.registers, fmt::format("at least {}, with 128 sums", sums + kBesideSums));
  return why_not_shared(z.shared, t.blocks, target);
}

/// Fitted to 499 times of 16 layers on an H100: a product of 64 pixels takes channels / 2 clocks, the copying unit brings 58 bytes in a clock, a program takes
/// 22 instructions an element. The first set in this order is 2.6 % behind the best on average, the best of the first three 0.2 %.
double seconds_of(const Im2colTile& t, const Im2colSizes& z, double traffic) {
  constexpr double kCopied = 58, kProgram = 22 / cost::kLanes;
  const auto steps = static_cast<double>(z.steps);
  const double products = steps * (t.depth / 32.0) * (t.pixels / 64.0) * t.channels / 2;
  const double copied = steps * (static_cast<double>(z.a + (t.resident != 0 ? 0 : z.b)) / kCopied);
  const double program = t.pixels * static_cast<double>(t.channels) * kProgram + 400;
  const double rounds = std::ceil(static_cast<double>(z.items) / static_cast<double>(z.grid)) * t.blocks;
  const double one = t.turns != 0 ? std::max({products, copied, (products + program) / t.groups})
                                  : std::max(products, copied) * 1.05 + (t.blocks > 1 ? 0.3 : 1.0) * program;
  const double begin = (t.resident != 0 ? steps * static_cast<double>(z.b) / kCopied : 0) + 2500 + (t.turns != 0 ? program : 0);
  const double few = t.stages * t.depth < 3 * 128 ? 1.15 : 1;
  return cost::overlapped((rounds * one * few + begin) / cost::kClockOfStream, traffic / cost::kMemoryOfStream) + cost::kStart;
}

/// Which taps lie inside of the image, by output row or column: ranges of taps, each once.
struct Border {
  std::vector<std::array<std::int64_t, 2>> ranges;
  std::vector<std::int64_t> of;  ///< each output row's or column's range
  Border(std::int64_t outputs, std::int64_t stride, std::int64_t dilation, std::int64_t pad, std::int64_t taps, std::int64_t in) {
    for (std::int64_t i = 0; i < outputs; ++i) {
      const auto inside = [&](std::int64_t tap) {
        const std::int64_t at = i * stride - pad + tap * dilation;
        return at >= 0 && at < in;
      };
      std::array<std::int64_t, 2> range{0, 0};
      while (range[0] < taps && !inside(range[0])) ++range[0];
      for (range[1] = range[0]; range[1] < taps && inside(range[1]);) ++range[1];
      const auto at = std::find(ranges.begin(), ranges.end(), range);
      of.push_back(at - ranges.begin());
      if (at == ranges.end()) ranges.push_back(range);
    }
  }
};
/// Zeros are copied where taps lie outside, but the zero point's code is meant: what a sum begins with leaves those taps out.
struct Borders {
  Border rows, columns;
  explicit Borders(const ConvShape& s)
      : rows(s.out_h, s.stride_h, s.dilation_h, s.pad_top, s.kernel_h, s.in_h),
        columns(s.out_w, s.stride_w, s.dilation_w, s.pad_left, s.kernel_w, s.in_w) {}
  /// How many beginnings a channel's sums have.
  [[nodiscard]] std::int64_t count(const ConvShape& s) const {
    return s.fill == 0 ? 1 : static_cast<std::int64_t>(rows.ranges.size() * columns.ranges.size());
  }
  [[nodiscard]] std::vector<std::vector<std::int32_t>> starts(const ConvShape& s, const ConvWeights& weights) const {
    std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(count(s)));
    if (out.size() == 1) return {};
    if (weights.values.empty()) return out;
    std::vector<std::int64_t> of_tap(static_cast<std::size_t>(s.taps()));
    for (std::int64_t channel = 0; channel < s.out_channels; ++channel) {
      for (std::int64_t tap = 0; tap < s.taps(); ++tap) {
        const auto* w = &weights.values[static_cast<std::size_t>((channel * s.taps() + tap) * s.channels)];
        of_tap[static_cast<std::size_t>(tap)] = std::accumulate(w, w + s.channels, std::int64_t{0});
      }
      auto* to = out.data();
      for (const auto& row : rows.ranges) {
        for (const auto& column : columns.ranges) {
          std::int64_t sum = 0;
          for (std::int64_t y = row[0]; y < row[1]; ++y) {
            for (std::int64_t x = column[0]; x < column[1]; ++x) sum += of_tap[static_cast<std::size_t>(y * s.kernel_w + x)];
          }
          (to++)->push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(-s.fill * sum)));
        }
      }
    }
    return out;
  }
};

/// What the copying unit is told of the input.
ImageMap image_of(const ConvShape& s, const Im2colTile& t) {
  ImageMap m;
  m.channels = s.channels, m.pixels = t.pixels, m.bytes = t.depth;
  m.dims = {s.in_w, s.in_h, s.batch}, m.strides = {s.pixel, s.row, s.image};
  for (std::size_t d = 0; d < 3; ++d) {  // strides of dimensions with one element say nothing
    if (m.dims[d] == 1) m.strides[d] = d == 0 ? up(s.channels, 16) : m.dims[d - 1] * m.strides[d - 1];
  }
  const auto end = [](std::int64_t outputs, std::int64_t stride, std::int64_t pad, std::int64_t in) {
    return static_cast<int>((outputs - 1) * stride + 1 - pad - in);
  };
  m.lower = {static_cast<int>(-s.pad_left), static_cast<int>(-s.pad_top)};
  m.upper = {end(s.out_w, s.stride_w, s.pad_left, s.in_w), end(s.out_h, s.stride_h, s.pad_top, s.in_h)};
  m.steps = {static_cast<int>(s.stride_w), static_cast<int>(s.stride_h)};
  return m;
}

class ConvIm2col final : public FamilyOf<ConvSetting, Im2colTile> {
 public:
  explicit ConvIm2col(ConvType type) : type_(type), name_(fmt::format("conv.{}.im2col", cuda::name_of(type))) {}
  std::string_view name() const override { return name_; }
  int version() const override { return type_ == ConvType::f16 || type_ == ConvType::bf16 ? 2 : 1; }
  std::size_t preferred() const override { return 3; }
  bool about(const region::Region& r) const override {
    if (r.stages.size() != 1 || r.stages[0].anchor.op != ir::Op::conv || !r.stages[0].anchor.weights) return false;
    return type_ == ConvType::u8s8 ? r.stages[0].anchor.integer : conv_type(r.stages[0]) == type_;
  }
  Result<ConvSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(ConvSetting conv, read_conv(only(r), plan, type_));
    const ConvShape& s = conv.shape;
    if (s.groups != 1) return refuse("groups", s.groups, 1);
    if (s.channels % 32 != 0 || s.piece != 16 || s.aligned % 16 != 0)
      return refuse("bytes a pixel, of a run, alignment", fmt::format("{}, {}, {}", s.channels, s.piece, s.aligned),
                    "multiples of 32, 16 and 16");
    constexpr std::int64_t kMostBorders = 64;
    if (const std::int64_t borders = Borders(s).count(s); borders > kMostBorders)
      return refuse("kinds of borders", borders, fmt::format("at most {}, or a zero point of 0", kMostBorders));
    if (s.pixels() > INT32_MAX / 4) return refuse("pixels", s.pixels(), "less than 2^29");
    if ((s.kernel_h - 1) * s.dilation_h > 255 || (s.kernel_w - 1) * s.dilation_w > 255)
      return refuse("extent of the kernel", fmt::format("{}x{}", s.kernel_h, s.kernel_w), "at most 255 pixels");
    const ImageMap m = image_of(s, kLeast);
    if (auto fits = check_image(m, INT64_MAX); !fits)
      return refuse("image", fits.error().message, "one that the copying unit takes");
    if (auto why = why_not_tile(s, kLeast, target); !why.empty()) return refuse(std::move(why));
    return conv;
  }
  std::vector<Choice<Im2colTile>> tactics(const ConvSetting& conv, const Target& target) const override {
    const ConvShape& s = conv.shape;
    const double traffic = conv.traffic();
    std::vector<Choice<Im2colTile>> out;
    static constexpr std::array<int, 4> kBases[] = {// pixels, channels, groups, turns
                                                    {128, 128, 2, 0}, {256, 128, 2, 0}, {128, 256, 2, 0}, {128, 64, 2, 0},
                                                    {256, 64, 2, 0},  {64, 256, 1, 0},  {64, 128, 1, 0},  {64, 64, 1, 0},
                                                    {128, 128, 1, 0}, {128, 128, 2, 1}, {64, 256, 2, 1},  {64, 128, 2, 1},
                                                    {128, 64, 2, 1},  {192, 128, 3, 0}, {64, 128, 3, 1}};
    for (const auto& [pixels, channels, groups, turns] : kBases) {
      if (channels > 64 && channels >= 2 * s.out_channels) continue;
      for (const int depth : {128, 64, 32}) {
        for (const int resident : {0, 1}) {
          for (const int blocks : {1, 2, 3}) {
            Im2colTile t{pixels, channels, depth, groups, turns, 2, resident, blocks};
            if (!why_not_tile(s, t, target).empty()) continue;
            const Im2colSizes z = sizes_of(s, t, target);
            const std::int64_t room = (target.shared_bytes + 1024) / blocks - 1024 - z.shared;
            t.stages += static_cast<int>(std::min<std::int64_t>(room / (z.a + (resident != 0 ? 0 : z.b)), kMostStages - 2));
            if (t.stages < 3 || !why_not_tile(s, t, target).empty()) continue;
            out.push_back({t, seconds_of(t, sizes_of(s, t, target), traffic)});
          }
        }
        if (s.channels % 128 == 0) break;  // the longest steps
      }
    }
    if (out.empty()) out.push_back({kLeast, 1});
    put_in_order(out, [](const Im2colTile& t) { return std::array{t.pixels, t.channels, t.groups, t.turns, t.resident}; });
    return out;
  }
  Result<KernelText> emit(const ConvSetting& conv, const Im2colTile& t, const Target& target) const override {
    const ConvShape& s = conv.shape;
    if (auto why = why_not_tile(s, t, target); !why.empty()) return refuse(std::move(why));
    const Im2colSizes z = sizes_of(s, t, target);
    const bool codes = type_ == ConvType::u8s8;
    ConvKernel k{"octavo_conv_im2col", conv_parameters(s), std::string(kText), z.grid, z.threads, z.shared};
    k.rows = t.rows_of_group() / 32, k.run = std::min(16, t.channels / 4), k.padded_channels = z.tiles_n * t.channels;
    k.numbers += declare({{"kTileM", t.pixels},
                          {"kTileN", t.channels},
                          {"kTileK", t.depth},
                          {"kGroups", t.groups},
                          {"kStages", t.stages},
                          {"kBlocksPerProcessor", t.blocks}}) +
                 fmt::format(
                     "constexpr bool kTurns = {}, kResident = {};\n#define OCTAVO_GROUP_PRODUCT octavo_group_multiply{}\ntypedef "
                     "{} octavo_sum;\n",
                     t.turns != 0, t.resident != 0, codes ? "" : fmt::format("_{}", cuda::name_of(type_)), codes ? "int" : "float");
    k.image = image_of(s, t);
    k.counted = {s.pixels(), t.pixels, z.tiles_n, "octavo_block()", "kItems", s.open};
    if (s.open) {
      k.open.name("kPixels", s.pixels());
      k.open.name("kItems", z.items);
    }
    const Borders borders(s);
    const std::int64_t kinds = borders.count(s);
    k.numbers += declare({{"kBorders", kinds},
                          {"kColumnBorders", static_cast<std::int64_t>(borders.columns.ranges.size())},
                          {"kPadded", k.padded_channels}}) +
                 fmt::format(
                     "OCTAVO_TABLE octavo_row_border[] = {{{}}};\nOCTAVO_TABLE octavo_column_border[] = {{{}}};\n"
                     "#define OCTAVO_STARTS {}\n",
                     kinds > 1 ? listed(borders.rows.of) : "0", kinds > 1 ? listed(borders.columns.of) : "0",
                     kinds > 1 ? "starts" : "constants");
    const ConvWeights weights = read_weights(conv);
    k.starts = borders.starts(s, weights);
    return emit_conv_kernel(conv, weights, std::move(k), [&](const ConvWeights& w, const EpilogueShape& e) {
      return pack_filter(s, s.channels, w, {z.tiles_n, z.steps, t.channels, t.depth, e.run, e.piece});
    });
  }

 private:
  static constexpr Im2colTile kLeast{64, 64, 32, 1, 0, 2, 0, 1};
  ConvType type_;
  std::string name_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_im2col, ConvIm2col, ConvType::u8s8)
OCTAVO_DEFINE_FAMILY(conv_im2col_f16, ConvIm2col, ConvType::f16)
OCTAVO_DEFINE_FAMILY(conv_im2col_bf16, ConvIm2col, ConvType::bf16)

}  // namespace octavo::cuda
