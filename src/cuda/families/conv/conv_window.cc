// conv.u8s8.window: int8 convolutions with windows over few channels, whose input tiles lie in shared memory (conv_window.inc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_window.inc"
    ;
constexpr std::int64_t kMostSteps = 54;  // they are unrolled

struct WindowTile {
  int rows = 8, columns = 16, channels = 32, warps_m = 4, warps_n = 1, stages = 2, blocks = 2;
  [[nodiscard]] int pixels() const { return rows * columns; }
  static constexpr std::array<TileParameter<WindowTile>, 4> kParameters{
      {{{"tile", "", "rows x columns x channels of a block"}, {&WindowTile::rows, &WindowTile::columns, &WindowTile::channels}},
       {{"warps", "", "along pixels x along channels"}, {&WindowTile::warps_m, &WindowTile::warps_n}},
       {{"stages", "", "input tiles in shared memory", true}, {&WindowTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&WindowTile::blocks}}}};
};

/// As the text computes it.
struct WindowSizes {
  std::int64_t steps, filter, in_pixels, stage, tiles_n, items, grid, shared;
};
WindowSizes sizes_of(const ConvShape& s, const WindowTile& t, const Target& target) {
  WindowSizes z{};
  const std::int64_t chunks = s.channels / 16, pitch = chunks % 2 == 1 ? s.channels : s.channels + 16;
  z.steps = parts(s.kernel_h * s.kernel_w * chunks, 2);
  z.filter = z.steps * t.channels * 32;
  const std::int64_t rows = s.in_rows(t.rows), columns = s.in_columns(t.columns);
  z.in_pixels = rows * columns;
  z.stage = rows * parts(columns, s.stride_w) * s.stride_w * pitch;
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = s.batch * parts(s.out_h, t.rows) * parts(s.out_w, t.columns) * z.tiles_n;
  z.grid = blocks_of_filters(z.items, z.tiles_n, t.blocks, target);
  z.shared = z.filter + t.stages * z.stage;
  return z;
}

Reasons why_not_tile(const ConvShape& s, const WindowTile& t, const Target& target) {
  const int run = t.channels / std::max(t.warps_n, 1) / 4;
  if (t.rows < 1 || t.columns < 8 || t.columns % 8 != 0 || t.warps_m < 1 || t.warps_n < 1 || t.pixels() > 512 ||
      t.pixels() % (16 * t.warps_m) != 0 || t.channels % (16 * t.warps_n) != 0 || (run != 4 && run != 8 && run != 16))
    return unmet("tile", fmt::format("{}x{}x{} for {}x{} warps", t.rows, t.columns, t.channels, t.warps_m, t.warps_n),
                 "a multiple of 16 pixels and channels a warp");
  if (t.pixels() / t.warps_m * (t.channels / t.warps_n) / 32 > 64)
    return unmet("sums a thread", t.pixels() / t.warps_m * (t.channels / t.warps_n) / 32, "at most 64");
  if (32 * t.warps_m * t.warps_n > 1024 || t.stages < 2 || t.stages > 4 || t.blocks < 1 || t.blocks > 8)
    return unmet("warps, stages, blocks", fmt::format("{}x{}, {}, {}", t.warps_m, t.warps_n, t.stages, t.blocks),
                 "up to 32; 2 to 4; up to 8");
  return why_not_shared(sizes_of(s, t, target).shared, t.blocks, target);
}

/// As in conv_mma.cc: multiplications at a warp tile's rate, bytes from shared memory and from L2, instructions.
double seconds_of(const ConvShape& s, const WindowTile& t, const WindowSizes& z, double traffic, const Target& target) {
  const double depth = 32.0 * static_cast<double>(z.steps), warp_m = static_cast<double>(t.pixels()) / t.warps_m,
               warp_n = static_cast<double>(t.channels) / t.warps_n, area = static_cast<double>(t.pixels()) * t.channels;
  const double products = cost::product_clocks(t.pixels(), depth, t.channels, warp_m, warp_n, 1.2);
  const auto bytes = static_cast<double>(z.in_pixels * s.channels);
  const double copied = bytes / 128 + bytes / cost::kBytesFromL2 + bytes / 16 * 24 / 128;
  const double program = area * cost::kProgram;
  const auto processors = static_cast<double>(std::min<std::int64_t>(z.grid, target.multiprocessors));
  const double rounds = std::ceil(static_cast<double>(z.items) / processors);
  const double one = t.blocks > 1 ? std::max({products, copied, program}) +
                                        0.3 * (products + copied + program - std::max({products, copied, program}))
                                  : std::max(products, copied) + program;
  const double filter = static_cast<double>(z.filter) / 20 * t.blocks;
  // Fewer than eight warps leave a multiprocessor's units waiting: seen with four, 1.6 times as long.
  const double warps = t.blocks * t.warps_m * t.warps_n;
  const double clocks = (rounds * one * 1.3 * std::pow(std::max(1.0, 8 / warps), 0.7) + filter + 1500);
  return cost::seconds(clocks, traffic) + cost::kStart;
}

class ConvWindow final : public FamilyOf<ConvSetting, WindowTile> {
 public:
  std::string_view name() const override { return "conv.u8s8.window"; }
  bool about(const region::Region& r) const override { return is_windowed(r); }
  Result<ConvSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    OCTAVO_TRY(ConvSetting conv, read_conv(only(r), plan));
    if (auto why = why_not_windowed(conv.shape, kMostSteps); !why.empty()) return refuse(std::move(why));
    if (auto why = why_not_tile(conv.shape, kLeast, target); !why.empty()) return refuse(std::move(why));
    return conv;
  }
  std::vector<Choice<WindowTile>> tactics(const ConvSetting& conv, const Target& target) const override {
    const ConvShape& s = conv.shape;
    const double traffic = conv.traffic();
    static constexpr std::array<int, 5> kBases[] = {// rows, columns, channels, warps
                                                    {16, 16, 16, 4, 1}, {8, 16, 16, 4, 1}, {16, 16, 32, 4, 1}, {8, 16, 32, 2, 1},
                                                    {8, 16, 32, 4, 1},  {16, 8, 32, 2, 1}, {8, 8, 32, 2, 1},   {16, 16, 64, 8, 1},
                                                    {8, 16, 64, 4, 1},  {8, 16, 64, 2, 2}, {16, 8, 64, 4, 1},  {8, 8, 64, 2, 1},
                                                    {8, 8, 64, 4, 1},   {4, 8, 64, 2, 1},  {8, 16, 128, 4, 2}, {8, 8, 128, 2, 2},
                                                    {4, 8, 32, 2, 1},   {4, 32, 32, 4, 1}, {4, 32, 64, 4, 1},  {16, 16, 128, 8, 2}};
    std::vector<Choice<WindowTile>> out;
    for (const auto& [rows, columns, channels, warps_m, warps_n] : kBases) {
      if (channels > 16 && channels >= 2 * s.out_channels) continue;
      for (const int stages : {2, 3}) {
        for (const int blocks : {1, 2, 3, 4}) {
          const WindowTile t{rows, columns, channels, warps_m, warps_n, stages, blocks};
          if (32 * warps_m * warps_n * blocks > 512 || !why_not_tile(s, t, target).empty()) continue;
          out.push_back({t, seconds_of(s, t, sizes_of(s, t, target), traffic, target)});
        }
      }
    }
    if (out.empty()) out.push_back({kLeast, 1});
    put_in_order(out, [](const WindowTile& t) { return std::array{t.rows, t.columns, t.channels}; });
    return out;
  }
  Result<KernelText> emit(const ConvSetting& conv, const WindowTile& t, const Target& target) const override {
    if (auto why = why_not_tile(conv.shape, t, target); !why.empty()) return refuse(std::move(why));
    const WindowSizes z = sizes_of(conv.shape, t, target);
    ConvKernel k{
        "octavo_conv_window", conv_parameters(conv.shape), std::string(kText), z.grid, 32 * t.warps_m * t.warps_n, z.shared};
    if (conv.shape.open) k.open.name("kItems", z.items);
    k.counted = {conv.shape.batch, 1, z.items / conv.shape.batch, "octavo_block()", "kItems", conv.shape.open};
    k.rows = t.pixels() / t.warps_m / 8, k.run = t.channels / t.warps_n / 4, k.padded_channels = z.tiles_n * t.channels;
    k.numbers += declare({{"kTileRows", t.rows},
                          {"kTileColumns", t.columns},
                          {"kTileN", t.channels},
                          {"kWarpsM", t.warps_m},
                          {"kWarpsN", t.warps_n},
                          {"kStages", t.stages},
                          {"kBlocksPerProcessor", t.blocks}});
    return emit_conv_kernel(conv, std::move(k), [&](const ConvWeights& weights, const EpilogueShape& e) {
      return pack_filter(conv.shape, conv.shape.channels, weights, {z.tiles_n, z.steps, t.channels, 32, e.run, e.piece});
    });
  }

 private:
  static constexpr WindowTile kLeast{2, 8, 16, 1, 1, 2, 1};
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_window, ConvWindow)

}  // namespace octavo::cuda
