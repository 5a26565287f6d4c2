#include "cuda/families/conv/depthwise_pointwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "cuda/families/conv/conv_text.h"
#include "cuda/families/conv/conv_tiles.h"
#include "cuda/families/conv/depthwise.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/depthwise_pointwise.inc"
    ;

constexpr std::size_t kMost = 24;

struct Tile {
  int rows = 8, columns = 14, channels = 32, slab = 32, warps_m = 7, warps_n = 1, item_rows = 2, item_columns = 2, blocks = 2;
  [[nodiscard]] int pixels() const { return rows * columns; }
  [[nodiscard]] int threads() const { return 32 * warps_m * warps_n; }
};

Parameters spell(const Tile& t) {
  return {{"tile", fmt::format("{}x{}x{}", t.rows, t.columns, t.channels)},
          {"slab", std::to_string(t.slab)},
          {"warps", fmt::format("{}x{}", t.warps_m, t.warps_n)},
          {"item", fmt::format("{}x{}", t.item_rows, t.item_columns)},
          {"blocks", std::to_string(t.blocks)}};
}

Result<Tile> parse(const Parameters& parameters) {
  Tile t;
  const auto get = [&](const char* name) { return value_of(parameters, name); };
  const bool numbers = std::sscanf(get("tile").c_str(), "%dx%dx%d", &t.rows, &t.columns, &t.channels) == 3 &&
                       std::sscanf(get("slab").c_str(), "%d", &t.slab) == 1 &&
                       std::sscanf(get("warps").c_str(), "%dx%d", &t.warps_m, &t.warps_n) == 2 &&
                       std::sscanf(get("item").c_str(), "%dx%d", &t.item_rows, &t.item_columns) == 2 &&
                       std::sscanf(get("blocks").c_str(), "%d", &t.blocks) == 1;
  if (!numbers || spell(t) != parameters)
    return fail(
        ErrorKind::bad_input,
        "conv.u8s8.depthwise_pointwise: parameters are tile (rows x columns x channels), slab, warps, item (rows x columns) "
        "and blocks");
  return t;
}

/// The two convolutions.
struct Shapes {
  ConvShape first, second;
};

/// As the text computes it.
struct Sizes {
  std::int64_t slabs, tiles_m, tiles_n, grid, shared;
};
Sizes sizes_of(const Shapes& s, const Tile& t) {
  Sizes z{};
  z.slabs = parts(s.second.channels, t.slab);
  z.tiles_m = parts(s.second.batch * s.second.out_h, t.rows) * parts(s.second.out_w, t.columns);
  z.tiles_n = parts(s.second.out_channels, t.channels);
  z.grid = z.tiles_m * z.tiles_n;
  z.shared = std::int64_t{2} * (t.pixels() + t.channels) * t.slab;
  return z;
}

Reasons why_not_tile(const Shapes& s, const Tile& t, const Target& target) {
  const int run = t.channels / std::max(t.warps_n, 1) / 4;
  if (t.rows < 1 || t.columns < 1 || t.warps_m < 1 || t.warps_n < 1 || t.pixels() > 512 || t.pixels() % (16 * t.warps_m) != 0 ||
      t.channels % (16 * t.warps_n) != 0 || (run != 4 && run != 8 && run != 16))
    return unmet("tile", fmt::format("{}x{}x{} for {}x{} warps", t.rows, t.columns, t.channels, t.warps_m, t.warps_n),
                 "a multiple of 16 pixels, and 16, 32 or 64 channels, a warp");
  if (t.slab != 32 && t.slab != 64 && t.slab != 128) return unmet("channels of a slab", t.slab, "32, 64 or 128");
  if (t.item_rows < 1 || t.item_columns < 1 || t.item_rows > 16 || t.item_columns > 8 || t.rows % t.item_rows != 0 ||
      t.columns % t.item_columns != 0 || s.first.out_h % t.item_rows != 0)
    return unmet("pixels of an item", fmt::format("{}x{}", t.item_rows, t.item_columns),
                 fmt::format("up to 16x8, which divide the tile, and rows that divide {}", s.first.out_h));
  const std::int64_t sums = std::int64_t{t.pixels()} / t.warps_m * (t.channels / t.warps_n) / 32;
  if (sums > 64) return unmet("sums a thread", sums, "at most 64");
  if (const std::int64_t registers = depthwise_registers(s.first, t.item_rows, t.item_columns);
      registers + sums > kMostDepthwiseRegisters)
    return unmet("registers for weights and sums", registers + sums, fmt::format("at most {}", kMostDepthwiseRegisters));
  if (t.threads() > 512 || t.blocks < 1 || t.blocks > 16)
    return unmet("warps, blocks", fmt::format("{}x{}, {}", t.warps_m, t.warps_n, t.blocks), "up to 16; up to 16");
  const Sizes z = sizes_of(s, t);
  if ((z.shared + 1024) * t.blocks > target.shared_bytes + 1024)
    return unmet("bytes of shared memory", z.shared * t.blocks, fmt::format("at most {}", target.shared_bytes));
  return {};
}

/// As in depthwise.cc and conv_mma.cc: instructions, multiplications at a warp tile's rate, bytes from L2, of which blocks of a multiprocessor overlap a part.
double seconds_of(const Shapes& s, const Tile& t, const Sizes& z, double traffic, const Target& target) {
  constexpr double kClock = 1.7e9, kMacs = 2793, kBytesFromL2 = 20, kOwnFromL2 = 30, kMemory = 2.8e12, kEpilogue = 14.0 / 128;
  const auto depth = static_cast<double>(z.slabs * t.slab), area = static_cast<double>(t.pixels()) * t.channels;
  const double warp_m = static_cast<double>(t.pixels()) / t.warps_m, warp_n = static_cast<double>(t.channels) / t.warps_n;
  const auto items = static_cast<double>(t.pixels() / (t.item_rows * t.item_columns)) * static_cast<double>(s.second.channels) / 4;
  // Threads without an item wait at the slab's barrier.
  const double of_slab = static_cast<double>(t.pixels() / (t.item_rows * t.item_columns)) * t.slab / 4,
               turns = std::ceil(of_slab / t.threads()) * t.threads() / of_slab;
  const double issued = depthwise_instructions(s.first, t.item_rows, t.item_columns) * items * turns / 128 * 1.3;
  // Input pixels of the tile, its halo too, of which L1 keeps what its threads read again.
  const auto in = [](std::int64_t pixels, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
    return static_cast<double>((pixels - 1) * stride + (kernel - 1) * dilation + 1);
  };
  const double read = in(t.rows, s.first.kernel_h, s.first.stride_h, s.first.dilation_h) *
                      in(t.columns, s.first.kernel_w, s.first.stride_w, s.first.dilation_w) * depth / kOwnFromL2;
  const double codes = std::max(issued, read) + 0.3 * std::min(issued, read);
  const double products = std::max(area * depth / kMacs * 1.3, area * depth * (1 / warp_m + 1 / warp_n) / 128 * 1.3);
  const double copied = depth * t.channels * (1 / kBytesFromL2 + 1 / 128.0), program = area * kEpilogue;
  // Fewer than sixteen warps leave a multiprocessor waiting for what they read.
  const double warps = static_cast<double>(t.blocks * t.warps_m * t.warps_n), alone = std::pow(std::max(1.0, 16 / warps), 0.7);
  const double waves = static_cast<double>(z.grid) / (static_cast<double>(target.multiprocessors) * t.blocks);
  const double rounds = static_cast<double>(z.grid) / target.multiprocessors * std::max(1.0, std::ceil(waves) / waves);
  const double clock =
      (rounds * (codes + 0.6 * (products + program) + 0.3 * copied) * alone + 400.0 * static_cast<double>(z.slabs)) / kClock;
  const double memory = traffic / kMemory;
  // Measured on an H200 beside the two kernels, by whose estimates this one is judged: 1.15 times as long with one slab of 32 channels, 1.3 to 1.4
  // with several (docs/lab/cuda-fusion.md); larger slabs alone were not measured.
  const double behind = z.slabs == 1 && t.slab == 32 ? 1.15 : 1.37;
  return behind * (std::max(clock, memory) + 0.3 * std::min(clock, memory)) + 2e-6;
}

region::Region alone(const region::Region& r, std::size_t stage) {
  region::Region one;
  one.stages = {r.stages[stage]};
  return one;
}

class DepthwisePointwise final : public Family {
 public:
  [[nodiscard]] std::string_view name() const override { return "conv.u8s8.depthwise_pointwise"; }
  [[nodiscard]] bool about(const region::Region& r) const override {
    if (r.independent || r.stages.size() != 2 || r.stages[0].stores.size() != 1) return false;
    for (const region::Stage& s : r.stages) {
      const region::Anchor& a = s.anchor;
      if (a.op != ir::Op::conv || !a.integer || !a.weights || a.weights->dims.size() != 4) return false;
    }
    const region::Stage &first = r.stages[0], &second = r.stages[1];
    const region::BufferId between = first.stores[0].buffer;
    const auto reads = [&](const region::Operand& o) { return o.ref.buffer == between; };  // codes are not in memory
    return first.anchor.as<ir::Window>().group > 1 && second.anchor.inputs[0].buffer == between &&
           std::none_of(second.operands.begin(), second.operands.end(), reads);
  }
  [[nodiscard]] Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    Shapes s;
    return why_not(r, plan, target, s);
  }
  [[nodiscard]] std::vector<Candidate> candidates(const region::Region& r, const region::Plan& plan,
                                                  const Target& target) const override {
    Shapes s;
    if (!why_not(r, plan, target, s).empty()) return {};
    double traffic = traffic_of(r.stages[1]) - static_cast<double>(tensor_bytes(r.stages[1].anchor.inputs[0])) +
                     static_cast<double>(tensor_bytes(r.stages[0].anchor.inputs[0]));
    for (const region::Operand& o : r.stages[0].operands)
      traffic += o.ref.strides[3] != 0 ? static_cast<double>(tensor_bytes(o.ref)) : 0;
    /// Of each tile and slab the best.
    std::map<std::array<int, 4>, std::pair<double, Tile>> best;
    for (const Tile& t : tiles(s, target)) {
      const double seconds = seconds_of(s, t, sizes_of(s, t), traffic, target);
      const auto [at, fresh] = best.try_emplace({t.rows, t.columns, t.channels, t.slab}, seconds, t);
      if (!fresh && seconds < at->second.first) at->second = {seconds, t};
    }
    std::vector<Candidate> out;
    for (const auto& [key, one] : best) out.push_back({spell(one.second), one.first});
    if (out.empty()) out.push_back({spell(kLeast), 1});
    put_in_order(out);
    if (out.size() > kMost) out.resize(kMost);
    return out;
  }
  [[nodiscard]] Result<KernelText> emit(const region::Region& r, const region::Plan& plan, const Parameters& parameters,
                                        const Target& target) const override {
    Shapes s;
    if (auto why = why_not(r, plan, target, s); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(const Tile t, parse(parameters));
    if (auto why = why_not_tile(s, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(s, t);

    const ConvWeights taps = read_weights(alone(r, 0), plan, s.first), filter = read_weights(alone(r, 1), plan, s.second);
    EpilogueShape kept;
    kept.rows = t.item_rows * t.item_columns, kept.run = 4, kept.piece = 4, kept.padded_channels = s.first.out_channels;
    kept.takes_bias = true, kept.keeps_codes = true, kept.prefix = "before_";
    kept.accumulator = std::min(taps.largest_sum, 2147483648.0);
    const Epilogue before = emit_epilogue(r.stages[0], plan, kept, (s.first.out_channels * 4 + 15) / 16 * 16);
    if (!before.refusal.empty()) return refuse(before.refusal);
    EpilogueShape shape;
    shape.rows = t.pixels() / t.warps_m / 8, shape.run = t.channels / t.warps_n / 4;
    shape.piece = piece_for(r.stages[1], plan, shape.run);
    shape.padded_channels = z.tiles_n * t.channels, shape.takes_bias = true;
    shape.accumulator = std::min(filter.largest_sum, 2147483648.0);
    const Epilogue e = emit_epilogue(r.stages[1], plan, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text(kText);
    replace_mark(text, "@PARAMETERS@",
                 conv_parameter_list(e) + ", const unsigned char* before_weights, const unsigned char* before_constants" +
                     before.parameters);
    replace_mark(text, "@POINTERS@", e.pointers);
    replace_mark(text, "@BEFORE_POINTERS@", before.pointers);
    out.text = define(t) + "namespace before {\n" + conv_parameters(s.first) + declare("kOutRows", t.item_rows) +
               declare("kOutColumns", t.item_columns) + std::string(kKeep) + before.text + std::string(depthwise_window_text()) +
               "}\n" + conv_parameters(s.second) + e.text + text;
    Launch launch;
    launch.function = "octavo_depthwise_pointwise";
    launch.grid = {static_cast<int>(z.grid), 1, 1};
    launch.block = {t.threads(), 1, 1};
    launch.shared_bytes = z.shared;
    add_conv_arguments(launch, r.stages[0].anchor.inputs[0], 0, e);  // the 1x1 convolution's own input is not in memory
    launch.parameters.push_back({Parameter::Kind::constant, 2, 0});
    launch.parameters.push_back({Parameter::Kind::constant, 3, 0});
    launch.parameters.insert(launch.parameters.end(), before.arguments.begin(), before.arguments.end());
    out.launches.push_back(std::move(launch));
    out.constants = {
        pack_filter(s.second, s.second.channels, filter, {z.tiles_n, z.slabs, t.channels, t.slab, shape.run, shape.piece}),
        constants_with_start(filter.start, e, shape.padded_channels), pack_depthwise(s.first, taps, t.item_columns),
        constants_with_start(taps.start, before, s.first.out_channels)};
    return out;
  }

 private:
  static constexpr Tile kLeast{16, 1, 16, 32, 1, 1, 1, 1, 1};

  /// Where the codes of the slab are in shared memory: rows of kTileK bytes, their chunks of 16 exchanged as in conv_load.inc.
  static constexpr std::string_view kKeep = R"(
OCTAVO_DEVICE int octavo_place(int row, int chunk) {
  return row * kTileK + 16 * (chunk ^ (kTileK == 128 ? row & 7 : kTileK == 64 ? (row >> 1) & 3 : (row >> 2) & 1));
}
template <class Pointers>
OCTAVO_DEVICE void octavo_keep(const Pointers& o, int i, unsigned word) {
  const int row = o.row + i / kOutColumns * kTileColumns + i % kOutColumns;
  octavo_write<4>(o.kept + (octavo_place(row, o.at / 16) + o.at % 16), &word);
}
)";

  static Reasons why_not(const region::Region& r, const region::Plan& plan, const Target& target, Shapes& s) {
    if (target.architecture == "sm_75") return unmet("architecture", target.architecture, "sm_80 or later (mma.m16n8k32)");
    if (auto why = read_depthwise(alone(r, 0), plan, s.first); !why.empty()) return why;
    if (auto why = read_conv(alone(r, 1), plan, s.second); !why.empty()) return why;
    const region::TensorRef &between = r.stages[0].stores[0], &read = r.stages[1].anchor.inputs[0];
    if (s.second.groups != 1 || !s.second.flat)
      return unmet("the second convolution", fmt::format("{}x{}, {} groups", s.second.kernel_h, s.second.kernel_w, s.second.groups),
                   "1x1 of one group without strides and padding");
    if (between.dtype != ir::DType::u8 || r.stages[0].program.outputs.size() != 1)
      return unmet("result of the depthwise convolution", ir::name_of(between.dtype), "one of u8");
    if (between.dims != read.dims)
      return unmet("input of the 1x1 convolution", ir::to_string(read.dims),
                   fmt::format("{}, all of it", ir::to_string(between.dims)));
    return why_not_tile(s, kLeast, target);
  }

  /// Tiles worth a try, not many: each takes NVRTC most of a second.
  static std::vector<Tile> tiles(const Shapes& s, const Target& target) {
    std::vector<Tile> out;
    std::set<int> columns;  // of pixels: a row, or a part of it, so that few are beyond the last one
    for (const std::int64_t of : {1, 2, 4, 7}) {
      for (const int to : {1, 2, 4, 8}) {
        if (const auto c = static_cast<int>(parts(parts(s.second.out_w, of), to) * to); c <= 64 && c < 2 * s.second.out_w + 8)
          columns.insert(c);
      }
    }
    std::vector<std::array<int, 2>> across;  // channels of a warp, warps
    for (const int n : {16, 32, 64}) {
      for (const std::int64_t of : {1, 2, 3}) {  // tiles of channels
        const auto warps = static_cast<int>(parts(parts(s.second.out_channels, of), n));
        if (warps <= 10 && (of == 1 || s.second.out_channels > 96)) across.push_back({n, warps});
      }
    }
    for (const int column : columns) {
      for (const int pixels : {32, 64, 96, 112, 128, 192, 224, 256}) {
        if (pixels % column != 0) continue;
        for (const auto& [n, warps_n] : across) {
          for (const int warps_m : {1, 2, 4, 7, 8}) {
            if (pixels % (16 * warps_m) != 0 || warps_m * warps_n < 2 || warps_m * warps_n > 12) continue;
            for (const int item_rows : {1, 2, 4, 7}) {
              for (const int item_columns : {1, 2, 4}) {
                for (const int slab : {32, 64, 128}) {
                  if (slab > 32 && slab / 2 >= s.second.channels) continue;
                  Tile t{pixels / column, column, n * warps_n, slab, warps_m, warps_n, item_rows, item_columns, 1};
                  // As many blocks as registers and threads allow.
                  const std::int64_t registers =
                      40 + depthwise_registers(s.first, item_rows, item_columns) + std::int64_t{pixels} / warps_m * n / 32;
                  t.blocks = static_cast<int>(std::clamp<std::int64_t>(65536 / (registers * t.threads()), 1, 8));
                  while (t.blocks > 1 && !why_not_tile(s, t, target).empty()) --t.blocks;
                  if (why_not_tile(s, t, target).empty()) out.push_back(t);
                }
              }
            }
          }
        }
      }
    }
    return out;
  }

  static std::string define(const Tile& t) {
    std::string out;
    const auto number = [&out](const char* name, std::int64_t v) { out += declare(name, v); };
    number("kTileRows", t.rows), number("kTileColumns", t.columns), number("kTileN", t.channels), number("kTileK", t.slab);
    number("kWarpsM", t.warps_m), number("kWarpsN", t.warps_n), number("kBlocksPerProcessor", t.blocks);
    return out;
  }
};

}  // namespace

const Family& depthwise_pointwise_family() {
  static const DepthwisePointwise family;
  return family;
}

}  // namespace octavo::cuda
