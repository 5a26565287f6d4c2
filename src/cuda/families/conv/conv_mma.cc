// The family's shapes, tiles, estimates and constants. It passes 400 lines by the region of two convolutions, which shares all of them.
#include "cuda/families/conv/conv_mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_groups.h"
#include "cuda/families/conv/conv_kernel.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv.inc"
    ;
constexpr std::string_view kSplit =
#include "cuda/text/split.inc"
    ;

const region::Stage& conv_of(const region::Region& r) {
  return r.stages.back();
}
/// The one operand of the last stage that the stage before it stores; -1: there is no such, or more reads than that.
int forwarded_operand(const region::Region& r) {
  if (r.stages.size() != 2 || r.stages[0].stores.size() != 1) return -1;
  const region::TensorRef& between = r.stages[0].stores[0];
  int found = -1, reads = 0;
  for (std::size_t k = 0; k < conv_of(r).operands.size(); ++k) {
    if (conv_of(r).operands[k].ref.buffer != between.buffer) continue;
    ++reads;
    const region::Operand& o = conv_of(r).operands[k];
    const bool each = std::all_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d == 1; });
    if (each && o.ref.dims == between.dims && o.ref.offset == between.offset) found = static_cast<int>(k);
  }
  for (const region::TensorRef& x : conv_of(r).anchor.inputs) reads += x.buffer == between.buffer ? 1 : 0;
  return reads == 1 ? found : -1;
}

/// What follows from shape and tile.
struct ConvLayout {
  ConvTile tile;
  ConvShape conv;  ///< as a tile of channels sees it
  std::int64_t chunks = 4, steps = 1, tiles_m = 1, tiles_n = 1, items = 1, threads = 128;
  std::int64_t shared = 0, workspace = 0, counters = 0, grid = 1;
  std::int64_t before = 0;  ///< steps of the convolution before
};

/// The convolution as a tile of n channels sees it: where there are groups, the input channels are those of the tile's groups, and
/// weights between different groups are zero. Without channels where tiles would have parts of several groups.
ConvShape tile_shape(ConvShape s, int n) {
  if (s.groups == 1) return s;
  const std::int64_t of_group = s.out_channels / s.groups;
  if (n % of_group == 0 && s.out_channels % n == 0)
    s.channels *= n / of_group;
  else if (of_group % n != 0)
    s.channels = 0;
  s.piece = static_cast<int>(std::gcd(s.aligned, s.channels));
  return s;
}

ConvLayout layout_of(const ConvProducts& setting, ConvTile t, const Target& target) {
  ConvLayout l;
  l.conv = tile_shape(setting.conv.shape, t.n);
  const ConvShape& s = l.conv;
  l.chunks = t.k / 16;
  l.steps = std::max<std::int64_t>(parts(s.taps() * s.tap_chunks(), l.chunks), 1);
  l.steps = up(l.steps, t.slices);  // every slice has as many; behind the last one weights are zero
  t.splits = static_cast<int>(std::clamp<std::int64_t>(t.splits, 1, l.steps));
  t.splits = static_cast<int>(parts(l.steps, parts(l.steps, t.splits)));  // every split has a step
  l.tile = t;
  l.tiles_m = parts(s.pixels(), t.m), l.tiles_n = parts(s.out_channels, t.n);
  l.items = l.tiles_m * l.tiles_n * t.splits;
  l.threads = 32 * t.warps_m * t.warps_n * t.slices;
  const std::int64_t a = std::int64_t{t.m} * t.k, b = std::int64_t{t.n} * t.k;
  l.shared = (t.resident ? l.steps * b : 0) + t.stages * t.slices * (a + (t.resident ? 0 : b)) + (t.splits > 1 ? 16 : 0);
  l.shared += std::int64_t{4} * (t.slices - 1) * t.m * t.n;  // sums of all slices but one
  if (setting.before) {
    l.before = parts(setting.before->shape.taps() * setting.before->shape.tap_chunks(), l.chunks);
    l.shared += std::int64_t{4} * t.m * t.n;  // what threads keep
  }
  if (t.splits > 1) {
    l.counters = up(4 * l.tiles_m * l.tiles_n, 256);
    l.workspace = l.counters + 4 * l.tiles_m * l.tiles_n * t.m * t.n * (s.type == ConvType::u8s8 ? 1 : t.splits);
  }
  l.grid = std::min<std::int64_t>(l.items, std::int64_t{target.multiprocessors} * t.blocks);
  if (l.grid < l.items) l.grid = std::max<std::int64_t>(l.grid / l.tiles_n, 1) * l.tiles_n;
  return l;
}

/// Taps that steps count, those behind the last one too.
std::int64_t tap_bits(const ConvLayout& l) {
  return l.conv.taps() + l.chunks * l.tile.slices;
}

/// Empty, or why the tile does not fit.
Reasons why_not_tile(const ConvLayout& l, const Target& target) {
  const ConvTile& t = l.tile;
  if (l.conv.groups > 1 && (l.conv.channels == 0 || l.conv.piece < 4))
    return unmet("groups of a tile", l.conv.groups, "whole groups of 4 channels or more");
  // Zeros between the groups of a tile would make NaN of what is infinite in another group.
  if (l.conv.groups > 1 && l.conv.type != ConvType::u8s8 && l.conv.out_channels / l.conv.groups % t.n != 0)
    return unmet("channels of a group of floats", l.conv.out_channels / l.conv.groups, fmt::format("a multiple of {}", t.n));
  const auto power = [](int v) { return v > 0 && (v & (v - 1)) == 0; };
  if (t.warps_m < 1 || t.warps_n < 1 || t.m % (16 * t.warps_m) != 0 || t.n % (16 * t.warps_n) != 0)
    return unmet("tile", fmt::format("{}x{} for {}x{} warps", t.m, t.n, t.warps_m, t.warps_n), "a multiple of 16x16 a warp");
  const int run = t.n / t.warps_n / 4;
  if (l.conv.type != ConvType::u8s8 && t.groups && !in_16_bits(l.conv.type))
    return unmet("products of floats", "wgmma", "mma, or wgmma of 16 bits");
  if (l.conv.type != ConvType::u8s8 && t.splits > 8) return unmet("splits of sums of floats", t.splits, "at most 8");
  if (t.groups) {
    if (auto why = why_no_warpgroups(target); !why.empty()) return why;
    if (t.warps_m % 4 != 0 || t.warps_n != 1 || (t.n != 32 && t.n != 64 && t.n != 128 && t.n != 256))
      return unmet("tile of a warpgroup", fmt::format("{}x{} warps, {} channels", t.warps_m, t.warps_n, t.n),
                   "a multiple of 4x1 warps, 32 to 256 channels");
  } else if (run != 4 && run != 8 && run != 16)
    return unmet("channels a warp", t.n / t.warps_n, "16, 32 or 64");
  constexpr int kRegisters = 65536,
                kBesideSums = 26;  // of a multiprocessor; with fewer than these NVRTC refuses products of warpgroups
  if (const auto has = kRegisters / (l.threads * t.blocks), sums = std::int64_t{t.m} * t.n / (32 * t.warps_m * t.warps_n);
      t.groups && has < sums + kBesideSums)
    return unmet("registers of a thread", has, fmt::format("at least {}", sums + kBesideSums));
  if (t.k != 32 && t.k != 64 && t.k != 128) return unmet("bytes a step", t.k, "32, 64 or 128");
  if (!power(t.m) || t.m > 512 || !power(t.n) || t.n > 512)
    return unmet("tile", fmt::format("{}x{}", t.m, t.n), "powers of two up to 512");
  if (t.m / t.warps_m * (t.n / t.warps_n) / 32 > 128)
    return unmet("sums a thread", t.m / t.warps_m * (t.n / t.warps_n) / 32, "at most 128");
  if (l.threads > 1024 || t.blocks < 1 || t.stages < 2 || t.stages > 8)
    return unmet("threads, blocks, stages", fmt::format("{}, {}, {}", l.threads, t.blocks, t.stages),
                 "at most 1024, at least 1, 2 to 8");
  if (t.resident && t.splits > 1) return unmet("split depth", t.splits, "1 with a resident filter");
  if (l.before > 0 && (t.resident || t.splits > 1 || t.slices > 1))
    return unmet("tile of two convolutions", "a resident filter or split depth", "neither");
  if (t.slices > 1 && (t.resident || t.splits > 1))
    return unmet("depth split in a block", t.slices, "1 with a resident filter or depth split over blocks");
  if (t.slices > 16 || (t.slices > 1 && tap_bits(l) > 64))
    return unmet("slices of the depth", t.slices, fmt::format("at most 16, and fewer of {} taps", l.conv.taps()));
  return why_not_shared(l.shared, t.blocks, target);
}

/// What a multiprocessor of an H100 does in a clock: multiplications at a warp tile's rate, bytes from L2, instructions.
double seconds_of(const ConvShape& s, const ConvLayout& l, double traffic, const Target& target) {
  const ConvTile& t = l.tile;
  const double warp_m = static_cast<double>(t.m) / t.warps_m, warp_n = static_cast<double>(t.n) / t.warps_n;
  const double depth = static_cast<double>(parts(l.steps, t.splits) + l.before) * t.k;
  // ldmatrix reads a row of both operands for every product: 128 bytes a clock
  const double one_product = t.groups ? std::max(t.m * depth * t.n / 4096 * 1.2, t.m * depth * t.n * (1 / 64.0 + 1.0 / t.n) / 128)
                                      : cost::product_clocks(t.m, depth, t.n, warp_m, warp_n, 1.3);
  const double written = depth * (t.m + (t.resident ? 0 : t.n)) / 128;  // into shared memory, which the products read
  // conv.f32.mma: three products, beside them about eight instructions to split an operand that a warp reads, and an addition for each
  // sum of eight products.
  const double split =
      s.type == ConvType::f32 ? (8 * depth / 4 * (t.m * t.warps_n + t.n * t.warps_m) + depth / 32 * t.m * t.n) / 128 : 0;
  const double products = s.type == ConvType::f32 ? cost::overlapped(3 * one_product, split) : one_product;
  // Where rows are packed threads put every 16 bytes together by themselves.
  const double packed = s.packed_rows ? depth * t.m / 16 * 60 / 128 : 0;
  const double copied = packed + written +
                        depth * (t.m * (t.near_copy && s.taps() > 1 ? 0.5 : 1.0) + (t.resident ? 0 : t.n)) /
                            (t.groups && s.taps() > 1 ? cost::kBytesFromL2 * 1.6 : cost::kBytesFromL2);
  // A thread reads what the program knows of each channel, about three words, through L1: once for all of its pixels.
  const double pixels = warp_m / 8, constants = 3.0 * t.m * t.n / pixels / 32 * 0.5;
  const double program = static_cast<double>(t.m) * t.n * cost::kProgram * (t.splits > 1 || l.before > 0 ? 2 : 1) + constants;
  const double rounds = static_cast<double>(parts(l.items, std::min<std::int64_t>(l.grid, target.multiprocessors)));
  const double overlapped = t.blocks > 1 || t.groups ? std::max({products, copied, program}) + 0.3 * std::min(products, program)
                                                     : std::max(products, copied) + program;
  // Products wait for taps that come through L1: seen, 1.4 to 1.5 times as long on layers of up to 64 channels.
  // So do those of one block a multiprocessor whose filter leaves no room for another.
  const double waits = s.taps() > 1 && !s.packed_rows && (!t.groups || t.n <= 64 || (t.resident && t.blocks == 1)) ? 1.45 : 1;
  // The last block waits for the others. Of floats it reads all their sums: a guess, not measured.
  const double splitting = t.splits == 1 ? 0 : s.type == ConvType::u8s8 ? 6000 : 4000 + 4.0 * t.m * t.n * t.splits / 48;
  const double latency = (t.groups && t.stages > 4   ? 700
                          : t.groups && t.stages > 3 ? 800
                          : t.stages > 2             ? 900
                                                     : 1400) +
                         60.0 * static_cast<double>(parts(l.steps, std::int64_t{t.splits} * t.slices)) + splitting +
                         (t.slices > 1 ? 300 : 0);
  const double busy = rounds * overlapped * waits + latency * std::max(1.0, static_cast<double>(parts(l.items, l.grid)) * 0.3);
  return cost::seconds(busy, traffic) + cost::kStart;
}

std::string define(const ConvShape& s, std::int64_t in_group, const ConvLayout& l, std::int64_t steps) {
  const ConvTile& t = l.tile;
  const bool split = s.type == ConvType::f32;
  return conv_parameters(s) +
         fmt::format("typedef unsigned {} octavo_mask;\n", s.taps() + l.chunks * t.slices > 32 ? "long long" : "int") +
         // Input channels begin kGroupIn further for every kGroupOut channels.
         declare({{"kGroupOut", s.groups == 1 ? 1 : s.out_channels / s.groups},
                  {"kGroupIn", s.groups == 1 ? 0 : in_group},
                  {"kPiece", std::max(s.piece, 4)},
                  {"kTapChunks", s.tap_chunks()}}) +
         fmt::format("constexpr bool kPackedRows = {}, kFlat = {}, kResident = {}, kNear = {}, kZeroCopies = false;\n",
                     s.packed_rows, s.flat, t.resident != 0, t.near_copy != 0) +
         declare({{"kTileM", t.m},
                  {"kTileN", t.n},
                  {"kTileK", t.k},
                  {"kWarpsM", t.warps_m},
                  {"kWarpsN", t.warps_n},
                  {"kStages", t.stages},
                  {"kSplits", t.splits},
                  {"kSlices", t.slices},
                  {"kSteps", steps},
                  {"kBlocksPerProcessor", t.blocks}}) +
         (s.open && t.splits > 1 ? std::string() : declare({{"kCounterBytes", l.counters}})) +
         fmt::format("#define OCTAVO_GROUPS {0}\nconstexpr bool kGroups = {0};\n", t.groups) +
         fmt::format("#define OCTAVO_SPLIT {}\n", split ? 1 : 0) +
         fmt::format(
             "#define OCTAVO_PRODUCT octavo_mma_{}\n#define OCTAVO_GROUP_PRODUCT octavo_group_multiply{}\n"
             "typedef {} octavo_sum;\nconstexpr bool kRounded = {}, kRealSums = {};\n",
             name_of(s.type), in_16_bits(s.type) ? fmt::format("_{}", name_of(s.type)) : "",
             s.type == ConvType::u8s8 ? "int" : "float", s.type == ConvType::tf32, s.type != ConvType::u8s8);
}

/// One of the convolutions. `conv` is filled.
Result<ConvSetting> match_one(const region::Stage& stage, const region::Plan& plan, ConvType type) {
  OCTAVO_TRY(ConvSetting conv, read_conv(stage, plan, type, /*frames=*/true));
  ConvShape& s = conv.shape;
  if (s.groups == 1 && s.piece < 4) {
    if (s.pixel != s.channels || s.dilation_w != 1)
      return refuse("channels, bytes a pixel, dilation", fmt::format("{}, {}, {}", s.channels, s.pixel, s.dilation_w),
                    "dense pixels without dilation");
    s.packed_rows = true, s.flat = false;
  }
  if (s.taps() > 48) return refuse("kernel taps", s.taps(), "at most 48");
  return conv;
}

/// Every tile worth a try, pruned by shape.
std::vector<ConvLayout> layouts(const ConvProducts& setting, const Target& target) {
  struct Base {
    int m, n, warps_m, warps_n, blocks;
    int groups = 0;
  };
  static constexpr Base kBases[] = {
      {128, 128, 2, 2, 2},    {128, 256, 2, 4, 1},    {256, 128, 4, 2, 1},     {256, 64, 4, 1, 2},    {128, 64, 2, 1, 3},
      {128, 64, 4, 1, 3},     {128, 64, 2, 2, 3},     {64, 256, 1, 4, 2},      {64, 128, 2, 2, 3},    {64, 64, 2, 2, 4},
      {64, 64, 2, 1, 4},      {128, 32, 4, 1, 4},     {256, 32, 8, 1, 2},      {32, 64, 1, 2, 4},     {32, 32, 1, 2, 6},
      {32, 128, 1, 4, 3},     {128, 16, 4, 1, 4},     {64, 32, 2, 1, 6},       {16, 64, 1, 4, 4},     {16, 128, 1, 4, 3},
      {128, 128, 8, 1, 2, 1}, {128, 256, 8, 1, 1, 1}, {256, 128, 16, 1, 1, 1}, {64, 256, 4, 1, 2, 1}, {128, 64, 8, 1, 3, 1},
      {256, 64, 16, 1, 2, 1}, {64, 128, 4, 1, 3, 1},  {64, 64, 4, 1, 4, 1},    {128, 32, 8, 1, 3, 1}, {256, 128, 8, 1, 1, 1},
      {256, 64, 8, 1, 2, 1},  {64, 128, 2, 2, 4},     {128, 64, 4, 1, 4},      {64, 64, 2, 1, 6},     {64, 128, 4, 1, 4, 1},
      {128, 64, 8, 1, 4, 1},  {64, 64, 4, 1, 6, 1},   {16, 32, 1, 2, 8},       {16, 16, 1, 1, 8},     {64, 32, 4, 1, 6, 1},
      {128, 64, 4, 1, 4, 1},  {128, 128, 4, 1, 2, 1}};
  std::vector<ConvLayout> out;
  for (const Base& b : kBases) {
    const ConvShape s = tile_shape(setting.conv.shape, b.n);
    const bool real = s.type != ConvType::u8s8;
    if (real && b.groups && !in_16_bits(s.type)) continue;
    if (s.channels == 0 || (b.n > 2 * s.out_channels && b.n > 32)) continue;
    if (b.m > 2 * s.pixels() && b.m > 32) continue;
    for (const int k : {32, 64, 128}) {
      const std::int64_t steps = parts(s.taps() * s.tap_chunks(), k / 16);
      if ((k == 32) != (s.taps() * s.tap_chunks() <= 2) && s.tap_chunks() != 2 && k == 32) continue;
      if (k == 128 && s.taps() * s.tap_chunks() < 8) continue;
      const std::int64_t tiles = parts(s.pixels(), b.m) * parts(s.out_channels, b.n);
      const auto add = [&](int splits, int slices, bool resident, int blocks) {
        for (const int stages : {2, 3, 4, 6}) {
          // Deep 1x1 layers wait for memory: more steps on their way is what they gain by.
          if (stages > 4 && (!b.groups || s.taps() > 1 || steps < 8)) continue;
          ConvTile t{
              b.m,     b.n, k, b.warps_m, b.warps_n, stages, splits, slices, blocks, resident, s.taps() > 1 && !s.packed_rows,
              b.groups};
          ConvLayout l = layout_of(setting, t, target);
          while (l.tile.blocks > 1 && !why_not_tile(l, target).empty()) {
            --t.blocks;
            l = layout_of(setting, t, target);
          }
          if (l.tile.splits != splits || !why_not_tile(l, target).empty()) continue;
          // A filter that fills the memory pays where every tap would fetch it again.
          const std::int64_t most = !b.groups      ? 100 * 1024
                                    : s.taps() > 1 ? target.shared_bytes
                                                   : (target.shared_bytes + 1024) / 2 - 1024;
          if (resident && (l.shared > most || l.items < 2 * l.grid)) continue;
          out.push_back(l);
        }
      };
      for (const int splits : {1, 2, 4, 8, 16}) {
        if (splits > 1 && (splits > steps || tiles * splits > 2LL * target.multiprocessors)) continue;
        if (splits > 1 && real && (!in_16_bits(s.type) || splits > 8 || splits * 4 > steps)) continue;
        for (const bool resident : {false, true}) add(splits, 1, resident, b.blocks);
      }
      // Few tiles leave room for more warps a block.
      for (const int slices : {2, 4, 8}) {
        constexpr int kMostWarps = 16;
        if (slices * 2 <= steps && slices * b.warps_m * b.warps_n <= kMostWarps && tiles <= 2LL * target.multiprocessors)
          add(1, slices, false, tiles <= target.multiprocessors ? 1 : 2);
      }
    }
  }
  if (out.empty() && setting.conv.shape.groups == 1) out.push_back(layout_of(setting, {32, 32, 64, 1, 2, 2, 1, 1, 2}, target));
  return out;
}

class ConvMma final : public FamilyOf<ConvProducts, ConvTile> {
 public:
  explicit ConvMma(ConvType type) : type_(type), name_(fmt::format("conv.{}.mma", name_of(type))) {}
  std::string_view name() const override { return name_; }
  int version() const override { return type_ == ConvType::u8s8 ? 5 : type_ == ConvType::f16 || type_ == ConvType::bf16 ? 2 : 1; }
  bool about(const region::Region& r) const override {
    if (type_ != ConvType::u8s8) return is_single(r) && conv_type(only(r)) == type_;
    const auto conv = [](const region::Stage& s) { return s.anchor.op == ir::Op::conv && s.anchor.integer; };
    if (r.independent || !std::all_of(r.stages.begin(), r.stages.end(), conv)) return false;
    return r.stages.size() == 1 || forwarded_operand(r) >= 0;
  }
  Result<ConvProducts> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    return match_conv(r, plan, target, type_);
  }
  std::vector<Choice<ConvTile>> tactics(const ConvProducts& setting, const Target& target) const override {
    return conv_tactics(setting, target);
  }
  Result<KernelText> emit(const ConvProducts& setting, const ConvTile& tile, const Target& target) const override {
    return emit_conv(setting, tile, target);
  }

 private:
  ConvType type_;
  std::string name_;
};

}  // namespace

Result<ConvProducts> match_conv(const region::Region& r, const region::Plan& plan, const Target& target, ConvType type) {
  if (type != ConvType::u8s8 && type != ConvType::f16) {
    if (auto why = why_no_wide_products(target); !why.empty()) return refuse(std::move(why));
  }
  ConvProducts out;
  OCTAVO_TRY(out.conv, match_one(conv_of(r), plan, type));
  const ConvShape& s = out.conv.shape;
  if (s.groups != 1) {
    const bool depthwise = s.channels == bytes_of(type), whole = !depthwise && !layouts(out, target).empty();
    if (!whole && !depthwise) {
      if (auto padded = with_padded_groups(r, plan, target, type)) return std::move(*padded);
    }
    if (!whole)
      return refuse("channels a group", fmt::format("{} to {}", s.channels / bytes_of(type), s.out_channels / s.groups),
                    type == ConvType::u8s8 ? "groups that tiles hold whole, or a program that reads constants alone"
                                           : "several to a multiple of 16, or a program that reads constants alone");
  }
  if (r.stages.size() == 1) return out;
  out.forwarded = forwarded_operand(r);
  const region::Stage& first = r.stages[0];
  if (first.stores[0].dtype != ir::DType::f32 || first.program.outputs.size() != 1)
    return refuse("result that one convolution forwards to another", ir::name_of(first.stores[0].dtype), "one of f32");
  if (first.space != conv_of(r).space)
    return refuse("results of the convolutions",
                  fmt::format("{} and {}", ir::to_string(first.space), ir::to_string(conv_of(r).space)), "one shape");
  OCTAVO_TRY(out.before, match_one(first, plan, ConvType::u8s8));
  if (s.open != out.before->shape.open) return refuse("open batches of the convolutions", out.before->shape.open, s.open);
  if (s.groups != 1 || out.before->shape.groups != 1)
    return refuse("groups of the convolutions", fmt::format("{} and {}", out.before->shape.groups, s.groups), "1 and 1");
  return out;
}

std::vector<Choice<ConvTile>> conv_tactics(const ConvProducts& setting, const Target& target) {
  double traffic = 0;
  for (const ConvSetting* c : {&setting.conv, setting.before ? &*setting.before : nullptr}) {
    if (c == nullptr) continue;
    const ConvShape& s = c->shape;
    traffic += static_cast<double>(s.batch * s.image + s.out_channels * s.taps() * s.tap_bytes());
  }
  const Tail& tail = setting.conv.tail;
  for (const auto& o : tail.stores) traffic += static_cast<double>(tensor_bytes(o));
  for (std::size_t k = 0; k < tail.operands.size(); ++k) {
    const auto& ref = tail.operands[k].ref;
    if (ref.strides[3] != 0 && static_cast<int>(k) != setting.forwarded) traffic += static_cast<double>(tensor_bytes(ref));
  }
  std::vector<Choice<ConvTile>> out;
  for (const ConvLayout& l : layouts(setting, target)) out.push_back({l.tile, seconds_of(setting.conv.shape, l, traffic, target)});
  put_in_order(out, [](const ConvTile& t) { return std::array{t.m, t.n, t.k, t.groups, t.splits, t.slices}; });
  return out;
}

Result<KernelText> emit_conv(const ConvProducts& setting, const ConvTile& tile, const Target& target) {
  if (tile.k < 32) return refuse("bytes a step", tile.k, "32, 64 or 128");
  const ConvLayout l = layout_of(setting, tile, target);
  if (auto why = why_not_tile(l, target); !why.empty()) return refuse(std::move(why));
  const ConvType type = setting.conv.shape.type;
  const std::int64_t padded = l.tiles_n * tile.n;
  KernelText out;
  Launch launch = launch_of(setting.function, l.grid, l.threads, l.shared);
  launch.counted = {setting.conv.shape.pixels(), tile.m, l.tiles_n * tile.splits, "octavo_block()", "kItems",
                    setting.conv.shape.open};
  /// Adds a convolution's constants, and the arguments of its parameters in the order of x, weights, constants. `of_tile`: its shape as a tile
  /// of channels sees it; `change`: what its epilogue has of its own.
  const auto add = [&](const ConvSetting& conv, const ConvShape& of_tile, std::int64_t steps,
                       const auto& change) -> Result<EmittedEpilogue> {
    const ConvWeights weights = read_weights(conv);
    EpilogueShape shape =
        conv_epilogue(conv.tail, weights.largest_sum, tile.m / tile.warps_m / 8, std::min(16, tile.n / tile.warps_n / 4), padded);
    shape.piece = piece_for(setting.conv.tail, shape.run, setting.forwarded);  // of both, whose threads have the same channels
    shape.threads = static_cast<int>(l.threads), shape.real = type != ConvType::u8s8;
    change(shape);
    EmittedEpilogue e = emit_epilogue(conv.tail, shape, padded * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);
    add_conv_arguments(launch, conv.input, static_cast<std::int32_t>(out.constants.size()), e);
    out.constants.push_back(
        of_weights(pack_filter(of_tile, conv.shape.channels, weights, {l.tiles_n, steps, tile.n, tile.k, shape.run, shape.piece})));
    out.constants.push_back(of_weights(constants_with_start(weights.start, e, padded)));
    return e;
  };
  OCTAVO_TRY(const EmittedEpilogue e, add(setting.conv, l.conv, l.steps, [&](EpilogueShape& shape) {
               shape.forwarded = setting.forwarded, shape.fold = setting.fold;
             }));
  const bool open = setting.conv.shape.open;
  const std::string load = text_for(conv_load_text(), open);
  std::string text = text_for(kText, open), before, before_parameters;
  OpenNumbers numbers;
  if (open) {
    numbers.name("kPixels", setting.conv.shape.pixels());
    numbers.name("kItems", l.items);
    numbers.name("kBatch", setting.conv.shape.batch);
    if (tile.splits > 1) numbers.name("kCounterBytes", l.counters);
  }
  if (setting.before) {
    const ConvShape& s = setting.before->shape;
    OCTAVO_TRY(const EmittedEpilogue first,
               add(*setting.before, s, l.before, [](EpilogueShape& shape) { shape.prefix = "before_", shape.keeps = true; }));
    before_parameters = ", " + conv_parameter_list(first, "before_");
    before = "namespace before {\n" + define(s, 0, l, l.before) + first.text + load + "}\n";
    replace_mark(text, "@BEFORE_POINTERS@", first.pointers);
  }
  launch.arguments.push_back({Argument::Kind::workspace, 0, 0});
  numbers.add_to(launch);
  replace_mark(
      text, "octavo_conv(@PARAMETERS@",
      setting.function + "(" + conv_parameter_list(e) + before_parameters + ", unsigned char* workspace" + numbers.parameters());
  replace_mark(text, "@POINTERS@", e.pointers);
  out.text = fmt::format("#define OCTAVO_BEFORE {}\n", setting.before ? 1 : 0) + before +
             define(l.conv, setting.conv.shape.channels, l, l.steps) + e.text + load +
             (type == ConvType::f32 ? std::string(kSplit) : "") + text;
  out.launches.push_back(std::move(launch));
  out.workspace_bytes = l.workspace;
  return out;
}

OCTAVO_DEFINE_FAMILY(conv_mma, ConvMma, ConvType::u8s8)
OCTAVO_DEFINE_FAMILY(conv_bf16, ConvMma, ConvType::bf16)
OCTAVO_DEFINE_FAMILY(conv_f16, ConvMma, ConvType::f16)
OCTAVO_DEFINE_FAMILY(conv_tf32, ConvMma, ConvType::tf32)
OCTAVO_DEFINE_FAMILY(conv_f32, ConvMma, ConvType::f32)

}  // namespace octavo::cuda
