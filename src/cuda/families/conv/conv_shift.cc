// conv.u8s8.shift: int8 convolutions with windows as products of warpgroups whose operand of every tap is one tile in shared memory, from
// another byte on (conv_shift.inc).
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
#include "cuda/families/conv/conv_shift.inc"
    ;
constexpr std::int64_t kMostSteps = 80;  // they are unrolled

struct ShiftTile {
  int rows = 8, columns = 16, channels = 32, groups = 2, unit = 64, stages = 2, blocks = 1;
  static constexpr std::array<TileParameter<ShiftTile>, 5> kParameters{
      {{{"tile", "", "rows x columns x channels of a block"}, {&ShiftTile::rows, &ShiftTile::columns, &ShiftTile::channels}},
       {{"groups", "", "of four warps that multiply"}, {&ShiftTile::groups}},
       {{"unit", "", "positions that a group multiplies at a time"}, {&ShiftTile::unit}},
       {{"stages", "", "input tiles in shared memory", true}, {&ShiftTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&ShiftTile::blocks}}}};
};

/// Sixteen bytes of the depth: how far behind a position's first byte they lie in the tile, and which weights they meet.
struct Half {
  std::int64_t distance, tap, chunk;
};

/// What follows from shape and tile.
struct ShiftSizes {
  std::int64_t pitch, plane_rows, plane, stage, units, steps, filter, tiles_n, items, grid, shared;
};

/// The halves of the chunks from `first_chunk` on, in the order of their distances. A later chunk is farther than all earlier ones.
std::vector<Half> halves_of(const ConvShape& s, const ShiftSizes& z, std::int64_t first_chunk = 0) {
  std::vector<Half> out;
  for (std::int64_t chunk = first_chunk; chunk < s.channels / 16; ++chunk) {
    for (std::int64_t y = 0; y < s.kernel_h; ++y) {
      for (std::int64_t x = 0; x < s.kernel_w; ++x) {
        const std::int64_t down = y * s.dilation_h, right = x * s.dilation_w;
        const std::int64_t residue = down % s.stride_h * s.stride_w + right % s.stride_w;
        const std::int64_t position = down / s.stride_h * z.pitch + right / s.stride_w;
        out.push_back({((chunk * s.stride_h * s.stride_w + residue) * z.plane + position) * 16, y * s.kernel_w + x, chunk});
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const Half& a, const Half& b) { return a.distance < b.distance; });
  return out;
}

ShiftSizes sizes_of(const ConvShape& s, const ShiftTile& t, const Target& target) {
  ShiftSizes z{};
  const std::int64_t chunks = s.channels / 16;
  const std::int64_t columns = s.in_columns(t.columns), rows = s.in_rows(t.rows);
  // A row's right padding is the next row's left one.
  const bool whole = t.columns == s.out_w && s.stride_w == 1;
  // At most so much that every column has its position, and no two taps meet in one byte.
  const std::int64_t most = std::min({s.pad_left, columns - t.columns, std::int64_t{t.columns} - 1});
  const std::int64_t shared = whole ? std::clamp<std::int64_t>(columns - s.pad_left - s.in_w, 0, most) : 0;
  z.pitch = parts(columns, s.stride_w) - shared;
  z.plane_rows = parts(rows, s.stride_h);
  z.units = parts((t.rows - 1) * z.pitch + t.columns, t.unit);
  const std::int64_t farthest =
      (s.kernel_h - 1) * s.dilation_h / s.stride_h * z.pitch + (s.kernel_w - 1) * s.dilation_w / s.stride_w;
  z.plane = std::max(z.units * t.unit + farthest + 1, z.plane_rows * z.pitch + shared);  // 1: where the last half is alone
  // Threads next to each other write the chunks of a pixel: planes begin in different banks.
  const std::int64_t turn = chunks >= 8 || chunks % 2 != 0 ? 1 : chunks % 4 == 0 ? 2 : 4;
  while (z.plane % 8 != turn) ++z.plane;
  z.stage = z.plane * 16 * chunks * s.stride_h * s.stride_w;
  const std::int64_t taps = s.kernel_h * s.kernel_w, halves = chunks * taps;
  z.steps = parts(halves, 2);
  z.filter = z.steps * t.channels * 32;
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = s.batch * parts(s.out_h, t.rows) * parts(s.out_w, t.columns) * z.tiles_n;
  z.grid = blocks_of_filters(z.items, z.tiles_n, t.blocks, target);
  // A product takes 64 x 16 bytes from each of two places of the tile. memcheck of compute-sanitizer counts 2,048 from the first one on, which
  // may end behind the last tile, so there is room for them.
  // The first half of the last product lies in one of the last two chunks: the others' distances are not needed here.
  const std::int64_t first_chunk = std::max<std::int64_t>(chunks - 2, 0);
  const auto last = static_cast<std::size_t>(2 * (z.steps - 1) - first_chunk * taps);
  const std::int64_t seen = (z.units * t.unit - 64) * 16 + halves_of(s, z, first_chunk)[last].distance + 2048;
  z.shared = z.filter + (t.stages - 1) * z.stage + std::max(z.stage, seen);
  return z;
}

Reasons why_not_tile(const ConvShape& s, const ShiftTile& t, const Target& target) {
  if (t.rows < 1 || t.columns < 1 || t.columns > s.out_w || t.rows > s.out_h || (t.unit != 64 && t.unit != 128) ||
      (t.channels != 32 && t.channels != 64 && t.channels != 128 && t.channels != 256))
    return unmet("tile and unit", fmt::format("{}x{}x{}, {}", t.rows, t.columns, t.channels, t.unit),
                 fmt::format("within {}x{}; 32, 64, 128 or 256 channels; 64 or 128 positions", s.out_h, s.out_w));
  if (t.channels * t.unit > 128 * 128) return unmet("sums a thread", t.channels * t.unit / 128, "at most 128");
  // Ids of barriers: two a group and stage, and one a stage.
  if (t.groups < 1 || t.stages < 1 || t.blocks < 1 || t.stages * t.groups + t.stages + t.groups > 15)
    return unmet("groups, stages, blocks", fmt::format("{}, {}, {}", t.groups, t.stages, t.blocks),
                 "at least 1, with no more than 15 barriers");
  const std::int64_t threads = 128 * (t.groups + 1), registers = t.channels * t.unit / 128 + 56;
  if (threads > 1024 || threads * t.blocks * std::min<std::int64_t>(registers, 128) > 65536)
    return unmet("registers", threads * t.blocks * registers, "at most 65536");
  return why_not_shared(sizes_of(s, t, target).shared, t.blocks, target);
}

/// As in conv_mma.cc: products at the rate of the matrix units or of shared memory, bytes from L2, instructions.
double seconds_of(const ShiftTile& t, const ShiftSizes& z, double traffic, const Target& target) {
  const double n = t.channels, unit = t.unit;
  const double read = unit / 64 * (2048 + 32 * n) / 128,
               products = static_cast<double>(z.steps) * std::max(unit / 64 * n / 2, read * 1.1);
  const double constants = 3.0 * unit * n / (unit / 32) / 32 * 0.5;  // through L1, which is the shared memory
  const double program = unit * n * cost::kProgram;
  const auto units = static_cast<double>(z.units);
  const auto bytes = static_cast<double>(z.stage);
  const double copied = bytes / 16 * 20 / 128 + bytes / 24;
  // One group alone leaves the matrix units idle while it is in its program, two do so where that is the longer part.
  const double waits = t.groups * t.blocks == 1   ? program * 2 + 400
                       : t.groups * t.blocks == 2 ? std::max(0.02 * products, (program * 1.5 + 300 - products) / 2)
                                                  : 0;
  const double busy = units * (std::max(products + 0.5 * constants, program * 1.3) + waits);
  const double one = t.stages * t.blocks > 1 ? std::max(busy, copied) + 0.1 * std::min(busy, copied) + 200 : busy + copied + 1000;
  const auto processors = static_cast<double>(std::min<std::int64_t>(z.grid, target.multiprocessors));
  const double rounds = std::ceil(static_cast<double>(z.items) / processors);
  const double clocks = rounds * one + static_cast<double>(z.filter) / 30 * t.blocks + bytes / 24 + 2 * program + 2500;
  return cost::seconds(clocks, traffic) + cost::kStart;
}

class ConvShift final : public FamilyOf<ConvSetting, ShiftTile> {
 public:
  std::string_view name() const override { return "conv.u8s8.shift"; }
  bool about(const region::Region& r) const override { return is_windowed(r); }
  Result<ConvSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(ConvSetting conv, read_conv(only(r), plan));
    if (auto why = why_not_windowed(conv.shape, kMostSteps); !why.empty()) return refuse(std::move(why));
    if (auto why = why_not_tile(conv.shape, kLeast, target); !why.empty()) return refuse(std::move(why));
    return conv;
  }
  std::vector<Choice<ShiftTile>> tactics(const ConvSetting& conv, const Target& target) const override {
    const double traffic = conv.traffic();
    std::vector<Choice<ShiftTile>> out;
    for (const int channels : {32, 64, 128, 256}) {
      if (channels > 32 && channels >= 2 * conv.shape.out_channels) continue;
      for (const int unit : {64, 128}) {
        for (const int groups : {1, 2, 3, 4}) {
          for (const int stages : {1, 2, 3}) {
            for (const int blocks : {1, 2}) {
              std::vector<Choice<ShiftTile>> mine =
                  areas(conv.shape, {1, 1, channels, groups, unit, stages, blocks}, traffic, target);
              fastest_first(mine);
              if (mine.size() > 3) mine.resize(3);
              out.insert(out.end(), mine.begin(), mine.end());
            }
          }
        }
      }
    }
    if (out.empty()) out.push_back({kLeast, 1});
    put_in_order(out, [](const ShiftTile& t) { return std::array{t.rows, t.columns, t.channels}; });
    return out;
  }
  Result<KernelText> emit(const ConvSetting& conv, const ShiftTile& t, const Target& target) const override {
    if (auto why = why_not_tile(conv.shape, t, target); !why.empty()) return refuse(std::move(why));
    const ShiftSizes z = sizes_of(conv.shape, t, target);
    ConvKernel k{"octavo_conv_shift", define(conv.shape, t, z), std::string(kText), z.grid, 128 * (t.groups + 1), z.shared};
    if (conv.shape.open) k.open.name("kItems", z.items);
    k.counted = {conv.shape.batch, 1, z.items / conv.shape.batch, "octavo_block()", "kItems", conv.shape.open};
    k.rows = t.unit / 32, k.run = std::min(16, t.channels / 4), k.padded_channels = z.tiles_n * t.channels;
    return emit_conv_kernel(conv, std::move(k), [&](const ConvWeights& weights, const EpilogueShape& e) {
      return packed(conv.shape, t, z, weights, e);
    });
  }

 private:
  static constexpr ShiftTile kLeast{1, 1, 32, 1, 64, 1, 1};

  /// The areas of a tile worth a try: whole rows, or equal parts of them.
  static std::vector<Choice<ShiftTile>> areas(const ConvShape& s, ShiftTile t, double traffic, const Target& target) {
    std::vector<Choice<ShiftTile>> out;
    for (const int across : {1, 2, 3, 4, 5, 8}) {
      t.columns = static_cast<int>(parts(s.out_w, across));
      if (across > 1 && t.columns < 16) break;
      for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 28, 32}) {
        t.rows = static_cast<int>(std::min<std::int64_t>(rows, s.out_h));
        if (!why_not_tile(s, t, target).empty()) break;  // more rows need more memory
        out.push_back({t, seconds_of(t, sizes_of(s, t, target), traffic, target)});
        if (t.rows < rows) break;
      }
    }
    return out;
  }

  /// The filter with its depth in the order of the halves.
  static ir::Tensor packed(const ConvShape& s, const ShiftTile& t, const ShiftSizes& z, const ConvWeights& weights,
                           const EpilogueShape& shape) {
    if (weights.values.empty())
      return layout_mark(
          {s.out_channels, s.taps(), s.channels, z.tiles_n, z.steps, t.channels, shape.run, shape.piece, z.pitch, z.plane});
    ConvWeights ordered;
    const auto depth = static_cast<std::size_t>(s.taps() * s.channels);
    const std::vector<Half> halves = halves_of(s, z);
    ordered.values.resize(weights.values.size());
    for (std::size_t channel = 0; channel < static_cast<std::size_t>(s.out_channels); ++channel) {
      for (std::size_t h = 0; h < halves.size(); ++h) {
        const auto* from =
            &weights.values[channel * depth + static_cast<std::size_t>(halves[h].tap * s.channels + halves[h].chunk * 16)];
        std::copy_n(from, 16, &ordered.values[channel * depth + h * 16]);
      }
    }
    ConvShape flat;  // one tap with all of the depth
    flat.out_channels = s.out_channels, flat.channels = s.taps() * s.channels;
    const ir::Tensor rows = pack_filter(flat, flat.channels, ordered, {z.tiles_n, z.steps, t.channels, 32, shape.run, shape.piece});
    ir::Tensor out(ir::DType::s8, {static_cast<std::int64_t>(rows.bytes().size())});
    const auto* from = rows.data<std::int8_t>().data();
    auto* to = out.mutable_data<std::int8_t>().data();
    const auto channels = static_cast<std::size_t>(t.channels);
    for (std::size_t step = 0; step < static_cast<std::size_t>(z.tiles_n * z.steps); ++step) {
      for (std::size_t row = 0; row < channels; ++row) {
        for (std::size_t half = 0; half < 2; ++half) {
          const std::size_t turn = row >> 2 & 1;  // as pack_filter exchanges them
          std::copy_n(from + (step * channels + row) * 32 + 16 * (half ^ turn), 16,
                      to + (step * 2 + half) * channels * 16 + row * 16);
        }
      }
    }
    return out;
  }

  static std::string define(const ConvShape& s, const ShiftTile& t, const ShiftSizes& z) {
    const std::vector<Half> halves = halves_of(s, z);
    std::vector<std::int64_t> distances;
    for (const Half& h : halves) distances.push_back(h.distance);
    // The weights behind the last half are zero: any bytes will do.
    if (halves.size() % 2 != 0) distances.push_back(halves.back().distance + 16);
    return conv_parameters(s) +
           declare({{"kTileRows", t.rows},
                    {"kTileColumns", t.columns},
                    {"kTileN", t.channels},
                    {"kGroups", t.groups},
                    {"kRowTiles", t.unit / 64},
                    {"kStages", t.stages},
                    {"kBlocksPerProcessor", t.blocks},
                    {"kPitch", z.pitch},
                    {"kPlaneRows", z.plane_rows},
                    {"kPlane", z.plane},
                    {"kSteps", z.steps}}) +
           fmt::format(
               "// Byte of a half of the depth, from the position of the first tap on.\n"
               "OCTAVO_DEVICE constexpr int octavo_half(int half) {{\n  constexpr int at[] = {{{}}};\n  return at[half];\n}}\n",
               listed(distances));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_shift, ConvShift)

}  // namespace octavo::cuda
