// conv.f16.stream and conv.bf16.stream: convolutions and linear layers of 16-bit floats as products of warpgroups whose operands stream through shared
// memory, copied by warps of their own (conv_stream_float.inc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

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
  [[nodiscard]] constexpr int registers_at_launch() const {
    constexpr int kOfMultiprocessor = 65536, kMost = 248;
    return std::min(kOfMultiprocessor / (threads() * blocks) / 8 * 8, kMost);
  }
};

/// A convolution, or several of one input side by side: then `conv` has the channels of all, one convolution's behind the other's, the program that they
/// have in common, and the first one's store.
struct FloatConvs {
  ConvSetting conv;
  std::vector<ConvSetting> parts;  ///< of one: none
  [[nodiscard]] std::int64_t part_channels() const {
    return conv.shape.out_channels / static_cast<std::int64_t>(std::max<std::size_t>(parts.size(), 1));
  }
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
  constexpr int kMostBehind = 240;
  const int at_launch = t.registers_at_launch();
  z.registers_of_copies = t.pixels > 128 || s.taps() > 1 ? 56 : 40;
  z.registers = std::min(((t.groups + 1) * at_launch - z.registers_of_copies) / t.groups / 8 * 8, kMostBehind);
  if (z.registers <= at_launch) z.registers = 0;
  return z;
}

int registers_of(const FloatTile& t, const FloatSizes& z) {
  return z.registers > 0 ? z.registers : t.registers_at_launch();
}

Reasons why_not_tile(const FloatTile& t, const FloatSizes& z, const Target& target) {
  if (t.groups < 1 || t.groups > 4 || (t.in_turn != 0 && t.groups == 1))
    return unmet("warpgroups", t.groups, "1 to 4, 2 or more with own tiles");
  if (t.pixels < 64 || t.own_pixels() % 64 != 0 || t.pixels % 64 != 0 || t.pixels > 512 ||
      (t.channels != 64 && t.channels != 128 && t.channels != 192 && t.channels != 256))
    return unmet("tile", fmt::format("{}x{}", t.pixels, t.channels), "multiples of 64 pixels a warpgroup, 64 to 256 channels");
  const int sums = t.own_pixels() * t.channels / 128;
  constexpr int kOthers = 40;
  const int has = registers_of(t, z);
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

/// Fitted to one H200 (octavo_gpu_linear, layers of ViT-B/16 and BERT-base): products take 1.3 times what the units need, a multiprocessor gets 60 bytes of
/// operands in a clock, and a warp that runs its program alone takes four clocks for an instruction, whatever the others do.
double seconds_of(const ConvSetting& conv, const FloatTile& t, const FloatSizes& z, const Target& target) {
  constexpr double kFromL2 = 60, kSlack = 1.3, kClocksOfInstruction = 4, kBesideTraffic = 0.1;
  const double depth = static_cast<double>(z.steps) * kDepth, m = t.pixels, n = t.channels;
  const double multiplied = std::max(m * n * depth / 4096 * kSlack, depth * (m + n) / kFromL2) + 150;
  const double issued = m * n * program_clocks(conv.tail.program);
  const double program = t.own_pixels() * n / 128 * program_clocks(conv.tail.program) * cost::kLanes * kClocksOfInstruction + 300;
  const double workers = t.in_turn != 0 ? t.groups : t.blocks;  // whose programs run beside the products of others
  const double rounds = static_cast<double>(parts(z.items, target.multiprocessors));
  const double round =
      workers > 1 ? std::max({multiplied, (multiplied + program) / workers, issued}) : multiplied + std::max(program, issued);
  const double clocks = (rounds * round + (workers > 1 ? program : 0) + 1200) / cost::kClock,
               traffic = conv.traffic() / cost::kMemory;
  return std::max(clocks, traffic) + kBesideTraffic * std::min(clocks, traffic) + cost::kStart;
}

/// Convolutions as one. Error: in what they differ.
Result<FloatConvs> side_by_side(std::vector<ConvSetting> parts) {
  FloatConvs out{parts[0], {}};
  ConvShape& all = out.conv.shape;
  Tail& tail = out.conv.tail;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const ConvSetting& p = parts[k];
    const region::TensorRef &x = p.input, &first = parts[0].input;
    if (x.buffer != first.buffer || x.offset != first.offset || x.dims != first.dims || x.strides != first.strides ||
        !(p.tail.program == parts[0].tail.program) || p.tail.space != parts[0].tail.space || p.shape.kernel_h != all.kernel_h ||
        p.shape.kernel_w != all.kernel_w || p.shape.stride_h != all.stride_h || p.shape.stride_w != all.stride_w ||
        p.shape.pad_top != all.pad_top || p.shape.pad_left != all.pad_left || p.shape.dilation_h != all.dilation_h ||
        p.shape.dilation_w != all.dilation_w)
      return refuse("convolutions side by side", "different inputs, windows or programs", "the same");
    if (p.tail.stores.size() != 1 || p.tail.operands.size() != parts[0].tail.operands.size())
      return refuse("stores of a convolution side by side with others", p.tail.stores.size(), "1");
    const region::TensorRef &store = p.tail.stores[0], &of_first = parts[0].tail.stores[0];
    if (store.strides != of_first.strides || store.strides[1] != 1 || store.dtype != of_first.dtype ||
        (store.offset - of_first.offset) % 16 != 0)
      return refuse("stores of convolutions side by side", "different layouts", "one layout, channels innermost");
    for (std::size_t o = 0; o < p.tail.operands.size(); ++o) {
      if (!p.tail.constants[o] || p.tail.operands[o].ref.dtype != parts[0].tail.operands[o].ref.dtype)
        return refuse("an operand of convolutions side by side", "computed", "a constant with one value a channel, of one type");
      if (k > 0) tail.constants[o]->insert(tail.constants[o]->end(), p.tail.constants[o]->begin(), p.tail.constants[o]->end());
    }
  }
  if (all.out_channels % 64 != 0) return refuse("channels of convolutions side by side", all.out_channels, "a multiple of 64");
  constexpr std::size_t kMostParts = 4;
  if (parts.size() > kMostParts) return refuse("convolutions side by side", parts.size(), fmt::format("at most {}", kMostParts));
  const auto count = static_cast<std::int64_t>(parts.size());
  all.out_channels *= count;
  tail.space[1] *= count, tail.stores[0].dims[1] *= count;
  out.parts = std::move(parts);
  return out;
}

class ConvStreamFloat final : public FamilyOf<FloatConvs, FloatTile> {
 public:
  explicit ConvStreamFloat(ConvType type) : type_(type), name_(fmt::format("conv.{}.stream", name_of(type))) {}
  std::string_view name() const override { return name_; }
  bool about(const region::Region& r) const override {
    const auto conv = [&](const region::Stage& s) { return conv_type(s) == type_; };
    return is_single(r) ? conv(only(r)) : r.independent && std::all_of(r.stages.begin(), r.stages.end(), conv);
  }
  Result<FloatConvs> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    std::vector<ConvSetting> all;
    for (const region::Stage& s : r.stages) {
      OCTAVO_TRY(ConvSetting conv, read_one(s, plan));
      all.push_back(std::move(conv));
    }
    if (all.size() == 1) return FloatConvs{std::move(all[0]), {}};
    return side_by_side(std::move(all));
  }
  std::vector<Choice<FloatTile>> tactics(const FloatConvs& all, const Target& target) const override {
    const ConvSetting& conv = all.conv;
    const ConvShape& s = conv.shape;
    struct Base {
      int pixels, channels, groups, in_turn, blocks;
    };
    static constexpr Base kBases[] = {{128, 256, 2, 0, 1}, {256, 128, 2, 0, 1}, {128, 192, 2, 0, 1}, {192, 128, 3, 0, 1},
                                      {128, 128, 2, 0, 1}, {128, 128, 2, 1, 1}, {64, 256, 2, 1, 1},  {64, 192, 2, 1, 1},
                                      {64, 128, 2, 1, 1},  {64, 192, 3, 1, 1},  {64, 128, 3, 1, 1},  {64, 128, 4, 1, 1},
                                      {128, 64, 3, 1, 1},  {128, 64, 4, 1, 1},  {64, 64, 2, 1, 1},   {64, 64, 4, 1, 1},
                                      {128, 128, 1, 0, 2}, {64, 128, 1, 0, 2},  {64, 64, 1, 0, 2},   {64, 64, 1, 0, 3}};
    std::vector<Choice<FloatTile>> out;
    for (const Base& b : kBases) {
      if ((b.pixels > 64 && b.pixels >= 2 * s.pixels()) || (b.channels > 64 && b.channels >= 2 * s.out_channels)) continue;
      FloatTile t{b.pixels, b.channels, b.groups, b.in_turn, 2, b.blocks};
      const std::int64_t stage = std::int64_t{kDepth} * (t.pixels + t.channels);
      const std::int64_t room = (target.shared_bytes + 1024) / t.blocks - 1024 - kSignalBytes;
      t.stages = static_cast<int>(std::min<std::int64_t>(room / stage, kMostStages));
      const FloatSizes z = sizes_of(s, t, target);
      if (!all.parts.empty() && all.part_channels() % t.channels != 0) continue;
      if (t.stages < 3 || !why_not_tile(t, z, target).empty()) continue;
      out.push_back({t, seconds_of(conv, t, z, target)});
    }
    fastest_first(out);
    return out;
  }
  Result<KernelText> emit(const FloatConvs& all, const FloatTile& t, const Target& target) const override {
    const ConvSetting& conv = all.conv;
    const ConvShape& s = conv.shape;
    const FloatSizes z = sizes_of(s, t, target);
    if (auto why = why_not_tile(t, z, target); !why.empty()) return refuse(std::move(why));
    if (!all.parts.empty() && all.part_channels() % t.channels != 0)
      return refuse("channels of a tile", t.channels, fmt::format("a divisor of {}", all.part_channels()));
    ConvKernel k{"octavo_conv_stream", define(all, t, z), std::string(conv_load_text()) + std::string(kText), z.grid,
                 t.threads(),          z.shared};
    k.rows = 2, k.run = 16, k.padded_channels = z.tiles_n * t.channels;
    if (s.open) {
      k.open.name("kPixels", s.pixels());
      k.open.name("kItems", parts(s.pixels(), t.pixels) * z.tiles_n);
      k.open.name("kBatch", s.batch);
    }
    // So many registers beside the sums are taken by what is read ahead, and by two rows side by side. With fewer NVRTC spills.
    constexpr int kOfAhead = 72, kOfPairs = 88;
    k.ahead = registers_of(t, z) >= t.own_pixels() * t.channels / 128 + kOfAhead;
    k.pairs = registers_of(t, z) >= t.own_pixels() * t.channels / 128 + kOfPairs;
    std::string parameters, names;
    for (std::size_t p = 1; p < all.parts.size(); ++p) {
      parameters += fmt::format(", unsigned char* part{}", p);
      names += fmt::format("{}part{}", p == 1 ? "" : ", ", p);
    }
    replace_mark(k.text, "@STORES@", parameters);
    replace_mark(k.text, "@OF_PARTS@", names);
    const auto pack = [&](const ConvWeights& weights, const EpilogueShape& e) {
      return pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, kDepth, e.run, e.piece});
    };
    if (all.parts.empty()) return emit_conv_kernel(conv, std::move(k), pack);
    ConvWeights weights;
    for (const ConvSetting& p : all.parts) {
      const ConvWeights one = read_weights(p);
      weights.values.insert(weights.values.end(), one.values.begin(), one.values.end());
      weights.start.insert(weights.start.end(), one.start.begin(), one.start.end());
    }
    OCTAVO_TRY(KernelText out, emit_conv_kernel(conv, weights, std::move(k), pack));
    for (std::size_t p = 1; p < all.parts.size(); ++p) {
      const region::TensorRef& store = all.parts[p].tail.stores[0];
      out.launches[0].arguments.push_back({Argument::Kind::buffer, store.buffer, store.offset});
    }
    return out;
  }

 private:
  Result<ConvSetting> read_one(const region::Stage& stage, const region::Plan& plan) const {
    OCTAVO_TRY(ConvSetting conv, read_conv(stage, plan, type_));
    const ConvShape& s = conv.shape;
    if (s.groups != 1) return refuse("groups", s.groups, "1");
    if (s.piece != 16)
      return refuse("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                    "multiples of 16");
    if (s.taps() > 48) return refuse("kernel taps", s.taps(), "at most 48");
    return conv;
  }

  std::string define(const FloatConvs& all, const FloatTile& t, const FloatSizes& z) const {
    const ConvShape& s = all.conv.shape;
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
                    {"kRegistersOfCopies", z.registers_of_copies},
                    {"kPartChannels", all.part_channels()},
                    {"kPartElement", static_cast<std::int64_t>(ir::size_of(all.conv.tail.stores[0].dtype))}}) +
           fmt::format("#define OCTAVO_PARTS {}\n", all.parts.size()) +
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
