// conv.u8s8.depthwise_pointwise: a depthwise convolution and the 1x1 convolution that alone reads it, a region of two stages
// (depthwise_pointwise.inc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "cuda/families/conv/depthwise.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/depthwise_pointwise.inc"
    ;

constexpr std::size_t kMost = 24;

struct PairTile {
  int rows = 8, columns = 14, channels = 32, slab = 32, warps_m = 7, warps_n = 1, item_rows = 2, item_columns = 2, blocks = 2;
  [[nodiscard]] int pixels() const { return rows * columns; }
  [[nodiscard]] int threads() const { return 32 * warps_m * warps_n; }
  static constexpr std::array<TileParameter<PairTile>, 5> kParameters{
      {{{"tile", "", "rows x columns x channels of a block"}, {&PairTile::rows, &PairTile::columns, &PairTile::channels}},
       {{"slab", "", "channels of the depthwise convolution at a time"}, {&PairTile::slab}},
       {{"warps", "", "along pixels x along channels"}, {&PairTile::warps_m, &PairTile::warps_n}},
       {{"item", "", "rows x columns of the depthwise convolution that a thread computes at a time"},
        {&PairTile::item_rows, &PairTile::item_columns}},
       {{"blocks", "", "of a multiprocessor"}, {&PairTile::blocks}}}};
};

/// The two convolutions.
struct ConvPair {
  ConvSetting first, second;
};

/// As the text computes it.
struct PairSizes {
  std::int64_t slabs, tiles_m, tiles_n, grid, shared;
};
PairSizes sizes_of(const ConvShape& second, const PairTile& t) {
  PairSizes z{};
  z.slabs = parts(second.channels, t.slab);
  z.tiles_m = parts(second.batch * second.out_h, t.rows) * parts(second.out_w, t.columns);
  z.tiles_n = parts(second.out_channels, t.channels);
  z.grid = z.tiles_m * z.tiles_n;
  z.shared = std::int64_t{2} * (t.pixels() + t.channels) * t.slab;
  return z;
}

Reasons why_not_tile(const ConvPair& s, const PairTile& t, const Target& target) {
  const int run = t.channels / std::max(t.warps_n, 1) / 4;
  if (t.rows < 1 || t.columns < 1 || t.warps_m < 1 || t.warps_n < 1 || t.pixels() > 512 || t.pixels() % (16 * t.warps_m) != 0 ||
      t.channels % (16 * t.warps_n) != 0 || (run != 4 && run != 8 && run != 16))
    return unmet("tile", fmt::format("{}x{}x{} for {}x{} warps", t.rows, t.columns, t.channels, t.warps_m, t.warps_n),
                 "a multiple of 16 pixels, and 16, 32 or 64 channels, a warp");
  if (t.slab != 32 && t.slab != 64 && t.slab != 128) return unmet("channels of a slab", t.slab, "32, 64 or 128");
  if (t.item_rows < 1 || t.item_columns < 1 || t.item_rows > 16 || t.item_columns > 8 || t.rows % t.item_rows != 0 ||
      t.columns % t.item_columns != 0 || s.first.shape.out_h % t.item_rows != 0)
    return unmet("pixels of an item", fmt::format("{}x{}", t.item_rows, t.item_columns),
                 fmt::format("up to 16x8, which divide the tile, and rows that divide {}", s.first.shape.out_h));
  const std::int64_t sums = std::int64_t{t.pixels()} / t.warps_m * (t.channels / t.warps_n) / 32;
  if (sums > 64) return unmet("sums a thread", sums, "at most 64");
  if (const std::int64_t registers = depthwise_registers(s.first.shape, t.item_rows, t.item_columns);
      registers + sums > kMostDepthwiseRegisters)
    return unmet("registers for weights and sums", registers + sums, fmt::format("at most {}", kMostDepthwiseRegisters));
  if (t.threads() > 512 || t.blocks < 1 || t.blocks > 16)
    return unmet("warps, blocks", fmt::format("{}x{}, {}", t.warps_m, t.warps_n, t.blocks), "up to 16; up to 16");
  return why_not_shared(sizes_of(s.second.shape, t).shared, t.blocks, target);
}

/// As in depthwise.cc and conv_mma.cc: instructions, multiplications at a warp tile's rate, bytes from L2, of which blocks of a multiprocessor overlap a part.
double seconds_of(const ConvPair& s, const PairTile& t, const PairSizes& z, double traffic, const Target& target) {
  constexpr double kOwnFromL2 = 30;
  const ConvShape &first = s.first.shape, &second = s.second.shape;
  const auto depth = static_cast<double>(z.slabs * t.slab), area = static_cast<double>(t.pixels()) * t.channels;
  const double warp_m = static_cast<double>(t.pixels()) / t.warps_m, warp_n = static_cast<double>(t.channels) / t.warps_n;
  const auto items = static_cast<double>(t.pixels() / (t.item_rows * t.item_columns)) * static_cast<double>(second.channels) / 4;
  // Threads without an item wait at the slab's barrier.
  const double of_slab = static_cast<double>(t.pixels() / (t.item_rows * t.item_columns)) * t.slab / 4,
               turns = std::ceil(of_slab / t.threads()) * t.threads() / of_slab;
  const double issued = depthwise_instructions(s.first.shape, t.item_rows, t.item_columns) * items * turns / 128 * 1.3;
  // Input pixels of the tile, its halo too, of which L1 keeps what its threads read again.
  const double read =
      static_cast<double>(first.in_rows(t.rows)) * static_cast<double>(first.in_columns(t.columns)) * depth / kOwnFromL2;
  const double codes = cost::overlapped(issued, read);
  const double products = cost::product_clocks(t.pixels(), depth, t.channels, warp_m, warp_n, 1.3);
  const double copied = depth * t.channels * (1 / cost::kBytesFromL2 + 1 / 128.0), program = area * cost::kProgram;
  // Fewer than sixteen warps leave a multiprocessor waiting for what they read.
  const double warps = static_cast<double>(t.blocks * t.warps_m * t.warps_n), alone = std::pow(std::max(1.0, 16 / warps), 0.7);
  const double waves = static_cast<double>(z.grid) / (static_cast<double>(target.multiprocessors) * t.blocks);
  const double rounds = static_cast<double>(z.grid) / target.multiprocessors * std::max(1.0, std::ceil(waves) / waves);
  const double clocks = rounds * (codes + 0.6 * (products + program) + 0.3 * copied) * alone + 400.0 * static_cast<double>(z.slabs);
  // Measured on an H200 beside the two kernels, by whose estimates this one is judged: 1.15 times as long with one slab of 32 channels, 1.3 to 1.4
  // with several (docs/lab/cuda-fusion.md); larger slabs alone were not measured.
  const double behind = z.slabs == 1 && t.slab == 32 ? 1.15 : 1.37;
  return behind * cost::seconds(clocks, traffic) + cost::kLaunch;
}

class DepthwisePointwise final : public FamilyOf<ConvPair, PairTile> {
 public:
  std::string_view name() const override { return "conv.u8s8.depthwise_pointwise"; }
  bool about(const region::Region& r) const override {
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
  Result<ConvPair> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    ConvPair s;
    OCTAVO_TRY(s.first, read_depthwise(r.stages[0], plan));
    OCTAVO_TRY(s.second, read_conv(r.stages[1], plan));
    const region::TensorRef &between = r.stages[0].stores[0], &read = s.second.input;
    const ConvShape& second = s.second.shape;
    if (second.groups != 1 || !second.flat)
      return refuse("the second convolution", fmt::format("{}x{}, {} groups", second.kernel_h, second.kernel_w, second.groups),
                    "1x1 of one group without strides and padding");
    if (between.dtype != ir::DType::u8 || r.stages[0].program.outputs.size() != 1)
      return refuse("result of the depthwise convolution", ir::name_of(between.dtype), "one of u8");
    if (between.dims != read.dims)
      return refuse("input of the 1x1 convolution", ir::to_string(read.dims),
                    fmt::format("{}, all of it", ir::to_string(between.dims)));
    if (auto why = why_not_tile(s, kLeast, target); !why.empty()) return refuse(std::move(why));
    return s;
  }
  std::vector<Choice<PairTile>> tactics(const ConvPair& s, const Target& target) const override {
    double traffic =
        s.second.traffic() - static_cast<double>(tensor_bytes(s.second.input)) + static_cast<double>(tensor_bytes(s.first.input));
    for (const region::Operand& o : s.first.tail.operands)
      traffic += o.ref.strides[3] != 0 ? static_cast<double>(tensor_bytes(o.ref)) : 0;
    /// Of each tile and slab the best.
    std::map<std::array<int, 4>, std::pair<double, PairTile>> best;
    for (const PairTile& t : tiles(s, target)) {
      const double seconds = seconds_of(s, t, sizes_of(s.second.shape, t), traffic, target);
      const auto [at, fresh] = best.try_emplace({t.rows, t.columns, t.channels, t.slab}, seconds, t);
      if (!fresh && seconds < at->second.first) at->second = {seconds, t};
    }
    std::vector<Choice<PairTile>> out;
    for (const auto& [key, one] : best) out.push_back({one.second, one.first});
    if (out.empty()) out.push_back({kLeast, 1});
    put_in_order(out, [](const PairTile& t) { return std::array{t.rows, t.columns, t.channels}; });
    if (out.size() > kMost) out.resize(kMost);
    return out;
  }
  Result<KernelText> emit(const ConvPair& s, const PairTile& t, const Target& target) const override {
    if (auto why = why_not_tile(s, t, target); !why.empty()) return refuse(std::move(why));
    const ConvShape &first = s.first.shape, &second = s.second.shape;
    const PairSizes z = sizes_of(second, t);
    const ConvWeights taps = read_weights(s.first), filter = read_weights(s.second);
    EpilogueShape kept = conv_epilogue(s.first.tail, taps.largest_sum, t.item_rows * t.item_columns, 4, first.out_channels);
    kept.keeps_codes = true, kept.prefix = "before_";
    const EmittedEpilogue before = emit_epilogue(s.first.tail, kept, up(first.out_channels * 4, 16));
    if (!before.refusal.empty()) return refuse(before.refusal);
    const EpilogueShape shape = conv_epilogue(s.second.tail, filter.largest_sum, t.pixels() / t.warps_m / 8,
                                              t.channels / t.warps_n / 4, z.tiles_n * t.channels);
    const EmittedEpilogue e = emit_epilogue(s.second.tail, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);

    KernelText out;
    std::string text = text_for(kText, second.open);
    OpenNumbers open;
    if (second.open) open.name("kLines", second.batch * second.out_h);
    replace_mark(text, "@PARAMETERS@",
                 conv_parameter_list(e) + ", const unsigned char* before_weights, const unsigned char* before_constants" +
                     before.parameters + open.parameters());
    replace_mark(text, "@POINTERS@", e.pointers);
    replace_mark(text, "@BEFORE_POINTERS@", before.pointers);
    out.text = declare({{"kTileRows", t.rows},
                        {"kTileColumns", t.columns},
                        {"kTileN", t.channels},
                        {"kTileK", t.slab},
                        {"kWarpsM", t.warps_m},
                        {"kWarpsN", t.warps_n},
                        {"kBlocksPerProcessor", t.blocks}}) +
               "namespace before {\n" + conv_parameters(first) +
               declare({{"kOutRows", t.item_rows}, {"kOutColumns", t.item_columns}}) + std::string(kKeep) + before.text +
               std::string(depthwise_window_text()) + "}\n" + conv_parameters(second) + e.text + text;
    Launch launch = launch_of("octavo_depthwise_pointwise", z.grid, t.threads(), z.shared);
    add_conv_arguments(launch, s.first.input, 0, e);  // the 1x1 convolution's own input is not in memory
    launch.arguments.push_back({Argument::Kind::constant, 2, 0});
    launch.arguments.push_back({Argument::Kind::constant, 3, 0});
    launch.arguments.insert(launch.arguments.end(), before.arguments.begin(), before.arguments.end());
    open.add_to(launch);
    out.launches.push_back(std::move(launch));
    out.constants = {
        of_weights(pack_filter(second, second.channels, filter, {z.tiles_n, z.slabs, t.channels, t.slab, shape.run, shape.piece})),
        of_weights(constants_with_start(filter.start, e, shape.padded_channels)),
        of_weights(pack_depthwise(first, taps, t.item_columns)),
        of_weights(constants_with_start(taps.start, before, first.out_channels))};
    return out;
  }

 private:
  static constexpr PairTile kLeast{16, 1, 16, 32, 1, 1, 1, 1, 1};

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

  /// Tiles worth a try, not many: each takes NVRTC most of a second.
  static std::vector<PairTile> tiles(const ConvPair& s, const Target& target) {
    std::vector<PairTile> out;
    std::set<int> columns;  // of pixels: a row, or a part of it, so that few are beyond the last one
    for (const std::int64_t of : {1, 2, 4, 7}) {
      for (const int to : {1, 2, 4, 8}) {
        if (const auto c = static_cast<int>(parts(parts(s.second.shape.out_w, of), to) * to);
            c <= 64 && c < 2 * s.second.shape.out_w + 8)
          columns.insert(c);
      }
    }
    std::vector<std::array<int, 2>> across;  // channels of a warp, warps
    for (const int n : {16, 32, 64}) {
      for (const std::int64_t of : {1, 2, 3}) {  // tiles of channels
        const auto warps = static_cast<int>(parts(parts(s.second.shape.out_channels, of), n));
        if (warps <= 10 && (of == 1 || s.second.shape.out_channels > 96)) across.push_back({n, warps});
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
                  if (slab > 32 && slab / 2 >= s.second.shape.channels) continue;
                  PairTile t{pixels / column, column, n * warps_n, slab, warps_m, warps_n, item_rows, item_columns, 1};
                  // As many blocks as registers and threads allow.
                  const std::int64_t registers =
                      40 + depthwise_registers(s.first.shape, item_rows, item_columns) + std::int64_t{pixels} / warps_m * n / 32;
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
};

}  // namespace

OCTAVO_DEFINE_FAMILY(depthwise_pointwise, DepthwisePointwise)

}  // namespace octavo::cuda
