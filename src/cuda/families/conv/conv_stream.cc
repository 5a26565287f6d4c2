// conv.u8s8.stream: int8 convolutions with windows as products of warpgroups whose rows are gathered from slabs of the input, while the filter
// streams through shared memory (conv_stream.inc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_stream.inc"
    ;
constexpr std::int64_t kMostSteps = 40;  // of a slab: they are unrolled
constexpr int kSignals = 32, kMostCopiers = 4;
constexpr std::int64_t kSignalBytes = 8 * kSignals;  // as in the text

struct StreamTile {
  int pixels = 192, channels = 128, slab = 64;
  int stages = 4, deep = 3;    ///< of the filter
  int tiles = 2, copiers = 3;  ///< of the input
  int blocks = 1;
  static constexpr std::array<TileParameter<StreamTile>, 4> kParameters{
      {{{"tile", "", "pixels x channels of a block x input channels of a slab"},
        {&StreamTile::pixels, &StreamTile::channels, &StreamTile::slab}},
       {{"filter", "", "batches in shared memory x products of a batch", true}, {&StreamTile::stages, &StreamTile::deep}},
       {{"input", "", "slabs in shared memory x warps that copy them"}, {&StreamTile::tiles, &StreamTile::copiers}},
       {{"blocks", "", "of a multiprocessor"}, {&StreamTile::blocks}}}};
};

/// Where the input's pixels lie in a plane, which follows from the shape alone. Padding between two rows or images is that of both.
struct StreamPlanes {
  std::int64_t pitch, image_rows;
  std::vector<std::int64_t> residues;  ///< those that a tap reads: row residue * stride + column residue
  std::vector<std::int64_t> residue_of_tap, distance_of_tap;
  std::vector<std::int64_t> reach_of_residue;  ///< the farthest that a tap reads behind an output pixel's position
  explicit StreamPlanes(const ConvShape& s) {
    const std::int64_t columns = s.in_columns(s.out_w), rows = s.in_rows(s.out_h);
    // Not so much that a row's last outputs would lie behind the next row's first.
    const auto shared = [](std::int64_t stride, std::int64_t all, std::int64_t before, std::int64_t inside, std::int64_t outputs) {
      return stride == 1 ? std::max<std::int64_t>(std::min({all - before - inside, before, all - outputs}), 0) : 0;
    };
    pitch = parts(columns, s.stride_w) - shared(s.stride_w, columns, s.pad_left, s.in_w, s.out_w);
    image_rows = parts(rows, s.stride_h) - shared(s.stride_h, rows, s.pad_top, s.in_h, s.out_h);
    for (std::int64_t y = 0; y < s.kernel_h; ++y) {
      for (std::int64_t x = 0; x < s.kernel_w; ++x) {
        const std::int64_t down = y * s.dilation_h, right = x * s.dilation_w;
        const std::int64_t residue = down % s.stride_h * s.stride_w + right % s.stride_w;
        const auto at = std::find(residues.begin(), residues.end(), residue);
        residue_of_tap.push_back(at - residues.begin());
        if (at == residues.end()) residues.push_back(residue);
        distance_of_tap.push_back(down / s.stride_h * pitch + right / s.stride_w);
        reach_of_residue.resize(residues.size());
        auto& reach = reach_of_residue[static_cast<std::size_t>(residue_of_tap.back())];
        reach = std::max(reach, distance_of_tap.back());
      }
    }
  }
  [[nodiscard]] std::int64_t position(const ConvShape& s, std::int64_t pixel) const {
    const std::int64_t rest = pixel % (s.out_h * s.out_w);
    return pixel / (s.out_h * s.out_w) * image_rows * pitch + rest / s.out_w * pitch + rest % s.out_w;
  }
  /// The most positions that a tile of so many pixels touches.
  [[nodiscard]] std::int64_t positions(const ConvShape& s, std::int64_t tile) const {
    const std::int64_t of_image = s.out_h * s.out_w, repeats = of_image / std::gcd(of_image, tile);
    const std::int64_t pixels =
        s.open ? repeats * tile : s.pixels();  // of any batch: until tiles lie in images as the first one does
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < repeats && i * tile < pixels; ++i) {
      const std::int64_t last = std::min(i * tile + tile, pixels) - 1;
      most = std::max(most, position(s, last) - position(s, i * tile));
    }
    return most + *std::max_element(distance_of_tap.begin(), distance_of_tap.end()) + 1;
  }
};

/// Registers: sums, operands of two batches, and what else a thread takes. With fewer the compiler lets products wait for each other,
/// which those of 256 channels can afford.
std::int64_t needed(const StreamTile& t) {
  return t.channels / 2 + 8 * t.deep + (t.channels == 256 ? 16 : 40);
}

/// What follows from shape and tile.
struct StreamSizes {
  std::int64_t chunks, steps, positions, plane, slab, stage, tiles_n, items, grid, shared, threads;
  std::int64_t registers;  ///< that a thread can have
  std::int64_t held;       ///< positions whose places a copying thread keeps from slab to slab
};
StreamSizes sizes_of(const ConvShape& s, const StreamPlanes& p, const StreamTile& t, std::int64_t positions, const Target& target) {
  StreamSizes z{};
  z.chunks = t.slab / 16;
  z.steps = s.kernel_h * s.kernel_w * t.slab / 32;
  z.positions = z.plane = positions;
  // Threads next to each other write the chunks of a pixel: planes begin in different banks.
  const std::int64_t turn = z.chunks >= 8 ? 1 : z.chunks == 4 ? 2 : 4;
  const auto residues = static_cast<std::int64_t>(p.residues.size());
  while (z.plane * residues % 8 != turn && (residues == 1 || z.plane % 8 != turn)) ++z.plane;
  z.slab = z.chunks * residues * z.plane * 16;
  z.stage = std::int64_t{t.deep} * t.channels * 32;
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = parts(s.pixels(), t.pixels) * z.tiles_n;
  z.grid = std::min<std::int64_t>(z.items, std::int64_t{target.multiprocessors} * t.blocks);
  z.shared = kSignalBytes + t.stages * z.stage + t.tiles * z.slab;
  z.threads = 2 * t.pixels + 32 * (t.copiers + 1);
  z.registers = registers_of_thread(z.threads, t.blocks);
  // Places that do not fit in registers are found again for every slab, a few at a time.
  constexpr std::int64_t kMostHeld = 24, kFewHeld = 8, kOthers = 64;
  const std::int64_t each = s.wide_offsets() ? 4 : 3,
                     turns = parts(z.positions, std::max<std::int64_t>(2 * t.copiers * 16 / z.chunks, 1));
  z.held = turns <= std::min((z.registers - kOthers) / each, kMostHeld) ? turns : std::min(turns, kFewHeld);
  return z;
}

Reasons why_not_tile(const ConvShape& s, const StreamTile& t, const StreamSizes& z, const Target& target) {
  if (t.pixels < 64 || t.pixels % 64 != 0 || t.pixels > 256 || (t.channels != 64 && t.channels != 128 && t.channels != 256))
    return unmet("tile", fmt::format("{}x{}", t.pixels, t.channels), "64 to 256 pixels, 64, 128 or 256 channels");
  if ((t.slab != 32 && t.slab != 64 && t.slab != 128) || s.channels % t.slab != 0)
    return unmet("channels of a slab", fmt::format("{} of {}", t.slab, s.channels), "32, 64 or 128, and a divisor of the channels");
  if (z.steps > kMostSteps || t.deep < 1 || t.deep > 4 || z.steps % t.deep != 0)
    return unmet("products of a slab and of a batch", fmt::format("{}, {}", z.steps, t.deep),
                 fmt::format("at most {}, a divisor of them up to 4", kMostSteps));
  if (t.stages < 2 || t.tiles < 1 || 2 * (t.stages + t.tiles) > kSignals || t.copiers < 1 || t.copiers > kMostCopiers ||
      t.blocks < 1)
    return unmet("batches, slabs, copying warps, blocks", fmt::format("{}, {}, {}, {}", t.stages, t.tiles, t.copiers, t.blocks),
                 fmt::format("at least 2, 1, 1, 1, with no more than {} signals and {} warps", kSignals, kMostCopiers));
  if (z.threads > 1024 || z.registers < needed(t)) return unmet("registers", z.registers, fmt::format("at least {}", needed(t)));
  return why_not_shared(z.shared, t.blocks, target);
}

/// Measured on an H200: a product of 64 pixels takes channels / 2 clocks wherever its operands lie; a multiprocessor gets 35 bytes of its
/// own and 40 of everybody's filter from L2 in a clock.
double seconds_of(const ConvShape& s, const StreamTile& t, const StreamSizes& z, double traffic, const Target& target) {
  constexpr double kInput = 32, kFilter = 40;
  const auto slabs = static_cast<double>(s.channels / t.slab);
  const double groups = t.pixels / 64.0, n = t.channels;
  const double products = slabs * static_cast<double>(z.steps) * groups * n / 2;
  const double copied = slabs * static_cast<double>(z.slab) / kInput + slabs * static_cast<double>(z.steps) * n * 32 / kFilter;
  // Copying warps put every 16 bytes on their way by about so many instructions, one in three clocks; L1 takes a clock for each line
  // of 128 bytes that an instruction touches.
  const double issued = slabs * static_cast<double>(z.slab) * std::max(16.0 * 3 / (16 * 32 * t.copiers * t.blocks), 1.0 / t.slab);
  const double program = t.pixels * n * cost::kProgram + 400;
  const double rounds = std::ceil(static_cast<double>(z.items) / target.multiprocessors);
  const double one = std::max({products, copied, issued}) * 1.05 + (t.blocks > 1 ? 0.3 : 1.0) * program;
  const double clock = (rounds * one + static_cast<double>(z.slab) / kInput + 2500) / cost::kClockOfStream;
  return cost::overlapped(clock, traffic / cost::kMemoryOfStream) + cost::kStart;
}

struct StreamSetting {
  ConvSetting conv;
  StreamPlanes planes;
};

class ConvStream final : public FamilyOf<StreamSetting, StreamTile> {
 public:
  std::string_view name() const override { return "conv.u8s8.stream"; }
  // 1x1 convolutions wait for memory: products that fetch their rows by themselves are faster there (conv_mma.cc), as more warps copy.
  bool about(const region::Region& r) const override { return is_windowed(r); }
  Result<StreamSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(ConvSetting conv, read_conv(only(r), plan));
    const ConvShape& s = conv.shape;
    if (s.channels % 32 != 0 || s.piece != 16)
      return refuse("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                    "multiples of 32, 16 and 16");
    const StreamPlanes planes(s);
    if ((s.batch + 2) * planes.image_rows * planes.pitch > INT32_MAX / 4 || s.pixels() > INT32_MAX / 4)
      return refuse("pixels", s.pixels(), "less than 2^29");
    const StreamTile t = least(s);
    if (auto why = why_not_tile(s, t, sizes_of(s, planes, t, planes.positions(s, t.pixels), target), target); !why.empty())
      return refuse(std::move(why));
    return StreamSetting{std::move(conv), planes};
  }
  std::vector<Choice<StreamTile>> tactics(const StreamSetting& setting, const Target& target) const override {
    const ConvShape& s = setting.conv.shape;
    const double traffic = setting.conv.traffic();
    std::vector<Choice<StreamTile>> out;
    for (const int pixels : {64, 128, 192, 256}) {
      const std::int64_t positions = setting.planes.positions(s, pixels);
      for (const int channels : {64, 128, 256}) {
        if (channels > 64 && channels >= 2 * s.out_channels) continue;
        for (const int slab : {128, 64, 32}) {
          for (const int deep : {4, 3, 2, 1}) {
            for (const int blocks : {1, 2, 3}) {
              for (const int copiers : {3, 1}) {
                for (const int tiles : {3, 2, 1}) {
                  StreamTile t{pixels, channels, slab, 2, deep, tiles, copiers, blocks};
                  StreamSizes z = sizes_of(s, setting.planes, t, positions, target);
                  if (!why_not_tile(s, t, z, target).empty()) continue;
                  const std::int64_t room = (target.shared_bytes + 1024) / blocks - 1024 - z.shared;
                  t.stages += static_cast<int>(std::min<std::int64_t>(room / z.stage, std::max(2, 12 / deep)));
                  z = sizes_of(s, setting.planes, t, positions, target);
                  if (t.stages * deep < 6 || !why_not_tile(s, t, z, target).empty()) continue;
                  // The next slab is copied while one is multiplied, if there is room; a filter comes late with few batches under way.
                  const double worse = (tiles == 1 ? 1.3 : 1) * (z.steps / deep % 2 != 0 ? 1.05 : 1) * (deep == 1 ? 1.1 : 1) *
                                       (t.stages * deep < 12 ? 1.3 : 1);
                  out.push_back({t, seconds_of(s, t, z, traffic, target) * worse});
                }
              }
            }
          }
        }
      }
    }
    if (out.empty()) out.push_back({least(s), 1});
    put_in_order(out, [](const StreamTile& t) { return std::array{t.pixels, t.channels, t.slab}; });
    return out;
  }
  Result<KernelText> emit(const StreamSetting& setting, const StreamTile& t, const Target& target) const override {
    const ConvShape& s = setting.conv.shape;
    if (t.slab < 16) return refuse("channels of a slab", t.slab, "32, 64 or 128");
    const StreamSizes z = sizes_of(s, setting.planes, t, setting.planes.positions(s, t.pixels), target);
    if (auto why = why_not_tile(s, t, z, target); !why.empty()) return refuse(std::move(why));
    ConvKernel k{"octavo_conv_stream", define(s, setting.planes, t, z), std::string(kText), z.grid, z.threads, z.shared};
    if (s.open) {
      k.open.name("kPixels", s.pixels());
      k.open.name("kItems", parts(s.pixels(), t.pixels) * z.tiles_n);
    }
    k.counted = {s.pixels(), t.pixels, z.tiles_n, "octavo_block()", "kItems", s.open};
    k.rows = 2, k.run = 16, k.padded_channels = z.tiles_n * t.channels;
    return emit_conv_kernel(setting.conv, std::move(k),
                            [&](const ConvWeights& weights, const EpilogueShape& e) { return packed(s, t, z, weights, e); });
  }

 private:
  static StreamTile least(const ConvShape& s) { return {64, 64, s.channels % 64 == 0 && s.taps() <= 9 ? 64 : 32, 6, 1, 1, 1, 1}; }

  /// Steps of a slab: halves of 32 channels, and all taps of each.
  static std::int64_t tap_of(const ConvShape& s, std::int64_t step) { return step % (s.kernel_h * s.kernel_w); }
  static std::int64_t half_of(const ConvShape& s, std::int64_t step) { return step / (s.kernel_h * s.kernel_w); }

  /// The filter of each tile of channels, step after step: its two halves of 16 bytes, of every channel one behind the other.
  static ir::Tensor packed(const ConvShape& s, const StreamTile& t, const StreamSizes& z, const ConvWeights& weights,
                           const EpilogueShape& shape) {
    if (weights.values.empty())
      return layout_mark({s.out_channels, s.taps(), s.channels, z.tiles_n, t.channels, t.slab, z.steps, shape.run, shape.piece});
    ir::Tensor out(ir::DType::s8, {z.tiles_n * t.channels * s.taps() * s.channels});
    auto* to = out.mutable_data<std::int8_t>().data();
    const int neighbours = 4 * shape.run;
    for (std::int64_t tile = 0; tile < z.tiles_n; ++tile) {
      for (std::int64_t slab = 0; slab < s.channels / t.slab; ++slab) {
        for (std::int64_t step = 0; step < z.steps; ++step) {
          for (std::int64_t half = 0; half < 2; ++half) {
            const std::int64_t byte = slab * t.slab + half_of(s, step) * 32 + half * 16;
            for (int row = 0; row < t.channels; ++row, to += 16) {
              const int inner = row % neighbours;
              const std::int64_t channel = tile * t.channels + row - inner +
                                           channel_of_lane(inner % 8 / 2, inner / 8 * 2 + inner % 2, shape.run, shape.piece);
              if (channel >= s.out_channels) continue;
              std::copy_n(&weights.values[static_cast<std::size_t>((channel * s.taps() + tap_of(s, step)) * s.channels + byte)], 16,
                          to);
            }
          }
        }
      }
    }
    return out;
  }

  static std::string define(const ConvShape& s, const StreamPlanes& p, const StreamTile& t, const StreamSizes& z) {
    const auto residues = static_cast<std::int64_t>(p.residues.size());
    std::vector<std::int64_t> taps;
    for (std::int64_t step = 0; step < z.steps; ++step) {
      const auto tap = static_cast<std::size_t>(tap_of(s, step));
      taps.push_back(((half_of(s, step) * 2 * residues + p.residue_of_tap[tap]) * z.plane + p.distance_of_tap[tap]) * 16);
    }
    return conv_parameters(s) +
           declare({{"kTileM", t.pixels},
                    {"kTileN", t.channels},
                    {"kSlab", t.slab},
                    {"kDeep", t.deep},
                    {"kStages", t.stages},
                    {"kTiles", t.tiles},
                    {"kCopiers", t.copiers},
                    {"kBlocksPerProcessor", t.blocks},
                    {"kHeld", z.held},
                    {"kPitch", p.pitch},
                    {"kImageRows", p.image_rows},
                    {"kImage", p.image_rows * p.pitch},
                    {"kPositions", z.positions},
                    {"kPlane", z.plane},
                    {"kResidues", residues}}) +
           fmt::format(
               "typedef unsigned {} octavo_mask;\n"
               "OCTAVO_DEVICE constexpr int octavo_residue(int r) {{\n  constexpr int all[] = {{{}}};\n  return all[r];\n}}\n"
               "// How far behind an output pixel's position windows read.\n"
               "OCTAVO_DEVICE constexpr int octavo_reach(int r) {{\n  constexpr int all[] = {{{}}};\n  return all[r];\n}}\n"
               "// Byte of a product's first half of the depth, from the position of an output pixel on.\n"
               "OCTAVO_DEVICE constexpr int octavo_tap(int step) {{\n  constexpr int at[] = {{{}}};\n  return at[step];\n}}\n",
               residues > 32 ? "long long" : "int", listed(p.residues), listed(p.reach_of_residue), listed(taps));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_stream, ConvStream)

}  // namespace octavo::cuda
