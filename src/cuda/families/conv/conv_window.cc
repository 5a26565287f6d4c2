#include "cuda/families/conv/conv_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "cuda/families/conv/conv_text.h"
#include "cuda/families/conv/conv_tiles.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_window.inc"
    ;
constexpr std::int64_t kMostSteps = 54;  // they are unrolled

struct Tile {
  int rows = 8, columns = 16, channels = 32, warps_m = 4, warps_n = 1, stages = 2, blocks = 2;
  [[nodiscard]] int pixels() const { return rows * columns; }
};

Parameters spell(const Tile& t) {
  return {{"tile", fmt::format("{}x{}x{}", t.rows, t.columns, t.channels)},
          {"warps", fmt::format("{}x{}", t.warps_m, t.warps_n)},
          {"stages", std::to_string(t.stages)},
          {"blocks", std::to_string(t.blocks)}};
}

Result<Tile> parse(const Parameters& parameters) {
  Tile t;
  const auto get = [&](const char* name) { return value_of(parameters, name); };
  const bool numbers = std::sscanf(get("tile").c_str(), "%dx%dx%d", &t.rows, &t.columns, &t.channels) == 3 &&
                       std::sscanf(get("warps").c_str(), "%dx%d", &t.warps_m, &t.warps_n) == 2 &&
                       std::sscanf(get("stages").c_str(), "%d", &t.stages) == 1 &&
                       std::sscanf(get("blocks").c_str(), "%d", &t.blocks) == 1;
  if (!numbers || spell(t) != parameters)
    return fail(ErrorKind::bad_input,
                "conv.u8s8.window: parameters are tile (rows x columns x channels), warps, stages and blocks");
  return t;
}

/// As the text computes it.
struct Sizes {
  std::int64_t steps, filter, in_pixels, stage, tiles_n, items, grid, shared;
};
Sizes sizes_of(const ConvShape& s, const Tile& t, const Target& target) {
  Sizes z{};
  const std::int64_t chunks = s.channels / 16, pitch = chunks % 2 == 1 ? s.channels : s.channels + 16;
  z.steps = parts(s.kernel_h * s.kernel_w * chunks, 2);
  z.filter = z.steps * t.channels * 32;
  const std::int64_t rows = (t.rows - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1,
                     columns = (t.columns - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1;
  z.in_pixels = rows * columns;
  z.stage = rows * parts(columns, s.stride_w) * s.stride_w * pitch;
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = s.batch * parts(s.out_h, t.rows) * parts(s.out_w, t.columns) * z.tiles_n;
  z.grid = std::min<std::int64_t>(z.items, std::int64_t{target.multiprocessors} * t.blocks);
  z.grid = std::max<std::int64_t>(z.grid / z.tiles_n, 1) * z.tiles_n;  // a block keeps one filter
  z.shared = z.filter + t.stages * z.stage;
  return z;
}

Reasons why_not_tile(const ConvShape& s, const Tile& t, const Target& target) {
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
  const Sizes z = sizes_of(s, t, target);
  if ((z.shared + 1024) * t.blocks > target.shared_bytes + 1024)
    return unmet("bytes of shared memory", z.shared * t.blocks, fmt::format("at most {}", target.shared_bytes));
  return {};
}

/// As in conv_mma.cc: multiplications at a warp tile's rate, bytes from shared memory and from L2, instructions.
double seconds_of(const ConvShape& s, const Tile& t, const Sizes& z, double traffic, const Target& target) {
  constexpr double kClock = 1.7e9, kMacs = 2793, kBytesFromL2 = 20, kMemory = 2.8e12, kEpilogue = 14.0 / 128;
  const double depth = 32.0 * static_cast<double>(z.steps), warp_m = static_cast<double>(t.pixels()) / t.warps_m,
               warp_n = static_cast<double>(t.channels) / t.warps_n, area = static_cast<double>(t.pixels()) * t.channels;
  const double products = std::max(area * depth / kMacs * 1.2, area * depth * (1 / warp_m + 1 / warp_n) / 128 * 1.2);
  const auto bytes = static_cast<double>(z.in_pixels * s.channels);
  const double copied = bytes / 128 + bytes / kBytesFromL2 + bytes / 16 * 24 / 128;
  const double program = area * kEpilogue;
  const auto processors = static_cast<double>(std::min<std::int64_t>(z.grid, target.multiprocessors));
  const double rounds = std::ceil(static_cast<double>(z.items) / processors);
  const double one = t.blocks > 1 ? std::max({products, copied, program}) +
                                        0.3 * (products + copied + program - std::max({products, copied, program}))
                                  : std::max(products, copied) + program;
  const double filter = static_cast<double>(z.filter) / 20 * t.blocks;
  // Fewer than eight warps leave a multiprocessor's units waiting: seen with four, 1.6 times as long.
  const double warps = t.blocks * t.warps_m * t.warps_n;
  const double clock = (rounds * one * 1.3 * std::pow(std::max(1.0, 8 / warps), 0.7) + filter + 1500) / kClock;
  const double memory = traffic / kMemory;
  return std::max(clock, memory) + 0.3 * std::min(clock, memory) + 1.5e-6;
}

class ConvWindow final : public Family {
 public:
  [[nodiscard]] std::string_view name() const override { return "conv.u8s8.window"; }
  [[nodiscard]] bool about(const region::Region& r) const override { return is_windowed(r); }
  [[nodiscard]] Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    ConvShape s;
    return why_not(r, plan, target, s);
  }
  [[nodiscard]] std::vector<Candidate> candidates(const region::Region& r, const region::Plan& plan,
                                                  const Target& target) const override {
    ConvShape s;
    if (!why_not(r, plan, target, s).empty()) return {};
    const double traffic = traffic_of(r.stages[0]);
    struct Base {
      int rows, columns, channels, warps_m, warps_n;
    };
    static constexpr Base kBases[] = {{16, 16, 16, 4, 1}, {8, 16, 16, 4, 1}, {16, 16, 32, 4, 1}, {8, 16, 32, 2, 1},
                                      {8, 16, 32, 4, 1},  {16, 8, 32, 2, 1}, {8, 8, 32, 2, 1},   {16, 16, 64, 8, 1},
                                      {8, 16, 64, 4, 1},  {8, 16, 64, 2, 2}, {16, 8, 64, 4, 1},  {8, 8, 64, 2, 1},
                                      {8, 8, 64, 4, 1},   {4, 8, 64, 2, 1},  {8, 16, 128, 4, 2}, {8, 8, 128, 2, 2},
                                      {4, 8, 32, 2, 1},   {4, 32, 32, 4, 1}, {4, 32, 64, 4, 1},  {16, 16, 128, 8, 2}};
    std::vector<Candidate> out;
    for (const Base& b : kBases) {
      if (b.channels > 16 && b.channels >= 2 * s.out_channels) continue;
      for (const int stages : {2, 3}) {
        for (const int blocks : {1, 2, 3, 4}) {
          const Tile t{b.rows, b.columns, b.channels, b.warps_m, b.warps_n, stages, blocks};
          if (32 * t.warps_m * t.warps_n * t.blocks > 512 || !why_not_tile(s, t, target).empty()) continue;
          out.push_back({spell(t), seconds_of(s, t, sizes_of(s, t, target), traffic, target)});
        }
      }
    }
    if (out.empty()) out.push_back({spell(kLeast), 1});
    put_in_order(out);
    return out;
  }
  [[nodiscard]] Result<KernelText> emit(const region::Region& r, const region::Plan& plan, const Parameters& parameters,
                                        const Target& target) const override {
    ConvShape s;
    if (auto why = why_not(r, plan, target, s); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(const Tile t, parse(parameters));
    if (auto why = why_not_tile(s, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(s, t, target);
    const ConvWeights weights = read_weights(r, plan, s);
    EpilogueShape shape;
    shape.rows = t.pixels() / t.warps_m / 8, shape.run = t.channels / t.warps_n / 4;
    shape.piece = piece_for(r.stages[0], plan, shape.run);
    shape.padded_channels = z.tiles_n * t.channels, shape.takes_bias = true;
    shape.accumulator = std::min(weights.largest_sum, 2147483648.0);
    const Epilogue e = emit_epilogue(r.stages[0], plan, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text(kText);
    replace_mark(text, "@PARAMETERS@", conv_parameter_list(e));
    replace_mark(text, "@POINTERS@", e.pointers);
    out.text = define(s, t) + e.text + text;
    const region::TensorRef& x = r.stages[0].anchor.inputs[0];
    Launch launch;
    launch.function = "octavo_conv_window";
    launch.grid = {static_cast<int>(z.grid), 1, 1};
    launch.block = {32 * t.warps_m * t.warps_n, 1, 1};
    launch.shared_bytes = z.shared;
    add_conv_arguments(launch, x, 0, e);
    out.launches.push_back(std::move(launch));
    out.constants = {pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, 32, shape.run, shape.piece}),
                     constants_with_start(weights.start, e, shape.padded_channels)};
    return out;
  }

 private:
  static constexpr Tile kLeast{2, 8, 16, 1, 1, 2, 1};

  static Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target, ConvShape& s) {
    if (target.architecture == "sm_75") return unmet("architecture", target.architecture, "sm_80 or later (mma.m16n8k32)");
    if (auto why = read_conv(r, plan, s); !why.empty()) return why;
    if (auto why = why_not_windowed(s, kMostSteps); !why.empty()) return why;
    return why_not_tile(s, kLeast, target);
  }

  static std::string define(const ConvShape& s, const Tile& t) {
    std::string out = conv_parameters(s);
    const auto number = [&out](const char* name, std::int64_t v) { out += declare(name, v); };
    number("kTileRows", t.rows), number("kTileColumns", t.columns), number("kTileN", t.channels), number("kWarpsM", t.warps_m);
    number("kWarpsN", t.warps_n), number("kStages", t.stages), number("kBlocksPerProcessor", t.blocks);
    return out;
  }
};

}  // namespace

const Family& conv_window_family() {
  static const ConvWindow family;
  return family;
}

}  // namespace octavo::cuda
