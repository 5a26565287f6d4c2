// conv.f16.stream and conv.bf16.stream: convolutions and linear layers of 16-bit floats as products of warpgroups whose operands stream through shared
// memory, copied by warps of their own (conv_stream_float.inc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "program/program.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_stream_float.inc"
    ;
constexpr int kDepth = 128;  // bytes of a step
constexpr int kMostStages = 8;
constexpr int kCopiers = 128;  // threads that copy
constexpr std::int64_t kSignalBytes = 16 * kMostStages + 32;

struct FloatTile {
  int pixels = 128, channels = 256;
  int groups = 2, in_turn = 0, stages = 4, blocks = 1;
  static constexpr std::array<TileParameter<FloatTile>, 5> kParameters{
      {{{"tile", "", "pixels x channels"}, {&FloatTile::pixels, &FloatTile::channels}},
       {{"warpgroups", "", "that multiply"}, {&FloatTile::groups}},
       {{"tiles", "shared|own", "of the warpgroups: one for all, or each its own while another runs its program"},
        {&FloatTile::in_turn}},
       {{"stages", "", "steps of depth in shared memory"}, {&FloatTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&FloatTile::blocks}}}};
  [[nodiscard]] constexpr int own_pixels() const { return in_turn != 0 ? pixels : pixels / groups; }
  [[nodiscard]] constexpr int threads() const { return 128 * groups + kCopiers; }
};

/// What follows from shape and tile.
struct FloatSizes {
  std::int64_t steps, tiles_n, items, grid, shared;
  int registers;            ///< of a thread that multiplies, behind the launch; 0: as at launch
  int registers_of_copies;  ///< of one that copies
};
FloatSizes sizes_of(const ConvShape& s, const FloatTile& t, const Target& target) {
  FloatSizes z{};
  z.steps = parts(s.taps() * s.tap_chunks(), kDepth / 16);
  z.tiles_n = parts(s.out_channels, t.channels);
  z.items = parts(s.pixels(), t.pixels) * z.tiles_n;
  z.grid = std::min<std::int64_t>(z.items, std::int64_t{target.multiprocessors} * t.blocks);
  z.shared = std::int64_t{t.stages} * (t.pixels + t.channels) * kDepth + kSignalBytes;
  constexpr int kOfMultiprocessor = 65536, kMost = 248, kMostBehind = 240;
  const int at_launch = std::min(kOfMultiprocessor / (t.threads() * t.blocks) / 8 * 8, kMost);
  z.registers_of_copies = t.pixels > 128 || s.taps() > 1 ? 56 : 40;
  z.registers = std::min(((t.groups + 1) * at_launch - z.registers_of_copies) / t.groups / 8 * 8, kMostBehind);
  if (z.registers <= at_launch) z.registers = 0;
  return z;
}

Reasons why_not_tile(const FloatTile& t, const FloatSizes& z, const Target& target) {
  if (t.groups < 1 || t.groups > 3 || (t.in_turn != 0 && t.groups == 1))
    return unmet("warpgroups", t.groups, "1 to 3, 2 with own tiles");
  if (t.pixels < 64 || t.own_pixels() % 64 != 0 || t.pixels % 64 != 0 || t.pixels > 512 ||
      (t.channels != 64 && t.channels != 128 && t.channels != 192 && t.channels != 256))
    return unmet("tile", fmt::format("{}x{}", t.pixels, t.channels), "multiples of 64 pixels a warpgroup, 64 to 256 channels");
  const int sums = t.own_pixels() * t.channels / 128;
  constexpr int kOthers = 40;
  const int has = z.registers > 0 ? z.registers : std::min(65536 / (t.threads() * t.blocks) / 8 * 8, 248);
  if (t.blocks < 1 || t.blocks * t.threads() > 1024 || sums + kOthers > has)
    return unmet("blocks, sums a thread", fmt::format("{}, {}", t.blocks, sums), fmt::format("{} registers less {}", has, kOthers));
  if (t.stages < 2 || t.stages > kMostStages) return unmet("stages", t.stages, fmt::format("2 to {}", kMostStages));
  return why_not_shared(z.shared, t.blocks, target);
}

/// Clocks of a multiprocessor for an element's program: its instructions, of which a division is many.
double program_clocks(const program::Program& p) {
  double count = 6;
  for (const program::Instr& i : p.code) {
    switch (i.op) {
      case program::Op::imm_f:
      case program::Op::imm_i:
      case program::Op::acc_f: break;
      case program::Op::div: count += 12; break;
      default: count += 1;
    }
  }
  return count / cost::kLanes;
}

/// Guessed from other kernels of warpgroups, of which a step of 64x256 takes 512 clocks: not yet fitted to this one.
double seconds_of(const ConvSetting& conv, const FloatTile& t, const FloatSizes& z, const Target& target) {
  constexpr double kFromL2 = 36, kSlack = 1.15;
  const double depth = static_cast<double>(z.steps) * kDepth, m = t.pixels, n = t.channels;
  const double products = m * n * depth / 4096, copied = depth * (m + n) / kFromL2;
  const double multiplied = cost::overlapped(products, copied) / 1.3 * kSlack + 200;
  const double program = m * n * program_clocks(conv.tail.program) * 1.5 + 600;
  const double workers = t.in_turn != 0 ? t.groups : t.blocks;  // whose programs run beside the products of others
  const double rounds = static_cast<double>(parts(z.items, target.multiprocessors));
  const double round = workers > 1 ? std::max(multiplied, (multiplied + program) / workers) : multiplied + program;
  const double clocks = rounds * round + (workers > 1 ? program : 0) + 2500;
  return cost::seconds(clocks, conv.traffic()) + cost::kStart;
}

class ConvStreamFloat final : public FamilyOf<ConvSetting, FloatTile> {
 public:
  explicit ConvStreamFloat(ConvType type) : type_(type), name_(fmt::format("conv.{}.stream", name_of(type))) {}
  std::string_view name() const override { return name_; }
  bool about(const region::Region& r) const override { return is_single(r) && conv_type(only(r)) == type_; }
  Result<ConvSetting> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    OCTAVO_TRY(ConvSetting conv, read_conv(only(r), plan, type_));
    const ConvShape& s = conv.shape;
    if (s.groups != 1) return refuse("groups", s.groups, "1");
    if (s.piece != 16)
      return refuse("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                    "multiples of 16");
    if (s.taps() > 48) return refuse("kernel taps", s.taps(), "at most 48");
    return conv;
  }
  std::vector<Choice<FloatTile>> tactics(const ConvSetting& conv, const Target& target) const override {
    const ConvShape& s = conv.shape;
    struct Base {
      int pixels, channels, groups, in_turn, blocks;
    };
    static constexpr Base kBases[] = {{128, 256, 2, 0, 1}, {256, 128, 2, 0, 1}, {128, 192, 2, 0, 1}, {192, 128, 3, 0, 1},
                                      {128, 128, 2, 0, 1}, {128, 128, 2, 1, 1}, {64, 256, 2, 1, 1},  {64, 192, 2, 1, 1},
                                      {64, 128, 2, 1, 1},  {128, 64, 2, 1, 1},  {64, 64, 2, 1, 1},   {192, 128, 2, 1, 1},
                                      {128, 128, 1, 0, 2}, {64, 256, 1, 0, 2},  {64, 128, 1, 0, 2},  {64, 64, 1, 0, 2},
                                      {64, 64, 1, 0, 3},   {128, 128, 2, 0, 2}, {256, 192, 2, 0, 1}};
    std::vector<Choice<FloatTile>> out;
    for (const Base& b : kBases) {
      if ((b.pixels > 64 && b.pixels >= 2 * s.pixels()) || (b.channels > 64 && b.channels >= 2 * s.out_channels)) continue;
      FloatTile t{b.pixels, b.channels, b.groups, b.in_turn, 2, b.blocks};
      const std::int64_t stage = std::int64_t{kDepth} * (t.pixels + t.channels);
      const std::int64_t room = (target.shared_bytes + 1024) / t.blocks - 1024 - kSignalBytes;
      t.stages = static_cast<int>(std::min<std::int64_t>(room / stage, kMostStages));
      const FloatSizes z = sizes_of(s, t, target);
      if (t.stages < 3 || !why_not_tile(t, z, target).empty()) continue;
      out.push_back({t, seconds_of(conv, t, z, target)});
    }
    fastest_first(out);
    return out;
  }
  Result<KernelText> emit(const ConvSetting& conv, const FloatTile& t, const Target& target) const override {
    const ConvShape& s = conv.shape;
    const FloatSizes z = sizes_of(s, t, target);
    if (auto why = why_not_tile(t, z, target); !why.empty()) return refuse(std::move(why));
    ConvKernel k{"octavo_conv_stream", define(s, t, z), std::string(conv_load_text()) + std::string(kText), z.grid,
                 t.threads(),          z.shared};
    k.rows = 2, k.run = 16, k.padded_channels = z.tiles_n * t.channels, k.ahead = true;
    return emit_conv_kernel(conv, std::move(k), [&](const ConvWeights& weights, const EpilogueShape& e) {
      return pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, kDepth, e.run, e.piece});
    });
  }

 private:
  std::string define(const ConvShape& s, const FloatTile& t, const FloatSizes& z) const {
    return conv_parameters(s) +
           fmt::format("typedef unsigned {} octavo_mask;\n", s.taps() + kDepth / 16 > 32 ? "long long" : "int") +
           // What conv_load.inc reads: four warps copy, whole pixels, and no filter.
           declare({{"kGroupOut", 1},
                    {"kGroupIn", 0},
                    {"kPiece", 16},
                    {"kTapChunks", s.tap_chunks()},
                    {"kTileM", t.pixels},
                    {"kTileN", t.channels},
                    {"kTileK", kDepth},
                    {"kWarpsM", kCopiers / 32},
                    {"kWarpsN", 1},
                    {"kSplits", 1},
                    {"kSlices", 1},
                    {"kSteps", z.steps}}) +
           fmt::format("constexpr bool kPackedRows = false, kFlat = {}, kResident = true, kNear = false, kZeroCopies = true;\n",
                       s.flat) +
           declare({{"kStages", t.stages},
                    {"kWarpgroups", t.groups},
                    {"kBlocksPerProcessor", t.blocks},
                    {"kRegisters", z.registers},
                    {"kRegistersOfCopies", z.registers_of_copies}}) +
           fmt::format("constexpr bool kInTurn = {};\n#define OCTAVO_GROUP_PRODUCT octavo_group_multiply_{}\n", t.in_turn != 0,
                       name_of(type_));
  }

  ConvType type_;
  std::string name_;
};

}  // namespace

const Family& conv_stream_bf16_family() {
  static const ConvStreamFloat family(ConvType::bf16);
  return family;
}

const Family& conv_stream_f16_family() {
  static const ConvStreamFloat family(ConvType::f16);
  return family;
}

}  // namespace octavo::cuda
