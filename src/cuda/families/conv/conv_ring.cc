// conv.f16.stream and conv.bf16.stream: convolutions and linear layers of 16-bit floats as products of warpgroups whose operands stream through shared
// memory, copied by warps of their own (conv_ring.inc). conv.u8s8.linear: linear layers and 1x1 convolutions of codes, computed in the same way.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/cost_model.h"
#include "cuda/families/conv/conv_kernel.h"
#include "cuda/text/near.h"
#include "cuda/text/near_floats.h"
#include "program/program.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/conv/conv_ring.inc"
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
       {{"stages", "", "steps of depth in shared memory", true}, {&FloatTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&FloatTile::blocks}}}};
  [[nodiscard]] constexpr int own_pixels() const { return in_turn != 0 ? pixels : pixels / groups; }
  [[nodiscard]] constexpr int threads() const { return 128 * groups + kCopiers; }
  [[nodiscard]] constexpr int registers_at_launch() const {
    constexpr int kOfMultiprocessor = 65536, kMost = 248;
    return std::min(kOfMultiprocessor / (threads() * blocks) / 8 * 8, kMost);
  }
};

/// A convolution, or several of one input and as many channels side by side.
struct StreamConvs {
  std::vector<ConvSetting> parts;  ///< at least one
  [[nodiscard]] const ConvShape& shape() const { return parts[0].shape; }
  /// Of all: a thread's channels are those of any part.
  [[nodiscard]] int piece(int run) const {
    int least = run;
    for (const ConvSetting& p : parts) least = std::min(least, piece_for(p.tail, run));
    return least;
  }
  [[nodiscard]] double traffic() const {
    double all = 0;
    for (const ConvSetting& p : parts) all += p.traffic();
    return all - static_cast<double>(parts.size() - 1) * static_cast<double>(tensor_bytes(parts[0].input));
  }
};

/// What follows from shape and tile.
struct FloatSizes {
  std::int64_t steps, part_tiles, tiles_n, items, grid, shared;  ///< part_tiles: along the channels of one convolution
  int registers;            ///< of a thread that multiplies, behind the launch; 0: as at launch
  int registers_of_copies;  ///< of one that copies
};
FloatSizes sizes_of(const StreamConvs& all, const FloatTile& t, const Target& target) {
  const ConvShape& s = all.shape();
  FloatSizes z{};
  z.steps = parts(s.taps() * s.tap_chunks(), kDepth / 16);
  z.part_tiles = parts(s.out_channels, t.channels);
  z.tiles_n = z.part_tiles * static_cast<std::int64_t>(all.parts.size());
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

/// Channels of a thread's run.
int run_of(const FloatTile& t) {
  return std::min(16, t.channels / 4);
}

int registers_of(const FloatTile& t, const FloatSizes& z) {
  return z.registers > 0 ? z.registers : t.registers_at_launch();
}

Reasons why_not_tile(const FloatTile& t, const FloatSizes& z, const Target& target) {
  if (t.groups < 1 || t.groups > 4 || (t.in_turn != 0 && t.groups == 1))
    return unmet("warpgroups", t.groups, "1 to 4, 2 or more with own tiles");
  if (t.pixels < 64 || t.own_pixels() % 64 != 0 || t.pixels % 64 != 0 || t.pixels > 512 ||
      (t.channels != 32 && t.channels != 64 && t.channels != 128 && t.channels != 192 && t.channels != 256))
    return unmet("tile", fmt::format("{}x{}", t.pixels, t.channels), "multiples of 64 pixels a warpgroup, 32 to 256 channels");
  const int sums = t.own_pixels() * t.channels / 128;
  constexpr int kOthers = 40;
  const int has = registers_of(t, z);
  if (t.blocks < 1 || t.blocks * t.threads() > 1024 || sums + kOthers > has)
    return unmet("blocks, sums a thread", fmt::format("{}, {}", t.blocks, sums), fmt::format("{} registers less {}", has, kOthers));
  if (t.stages < 2 || t.stages > kMostStages) return unmet("stages", t.stages, fmt::format("2 to {}", kMostStages));
  return why_not_shared(z.shared, t.blocks, target);
}

/// Clocks of a multiprocessor for an element's program: its instructions, of which a division is many. Of codes what is left of it (shorten.h, near.h, near_floats.h).
double program_clocks(const ConvSetting& conv) {
  const program::Program& p = conv.tail.program;
  constexpr double kOfNear = 30.0 / cost::kLanes;
  if (conv.shape.type == ConvType::u8s8) return cost::kProgram + (near_codes(p) ? kOfNear : 0);
  double count = 6;
  if (const auto near = near_floats(p)) return (count + near_floats_instructions(*near)) / cost::kLanes;
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
double seconds_of(const StreamConvs& all, const FloatTile& t, const FloatSizes& z, const Target& target) {
  constexpr double kFromL2 = 60, kSlack = 1.3, kClocksOfInstruction = 4, kBesideTraffic = 0.1;
  const double depth = static_cast<double>(z.steps) * kDepth, m = t.pixels, n = t.channels;
  const double multiplied = std::max(m * n * depth / 4096 * kSlack, depth * (m + n) / kFromL2) + 150;
  const double of_program = program_clocks(all.parts[0]), issued = m * n * of_program;
  const double program = t.own_pixels() * n / 128 * of_program * cost::kLanes * kClocksOfInstruction + 300;
  const double workers = t.in_turn != 0 ? t.groups : t.blocks;  // whose programs run beside the products of others
  const double rounds = static_cast<double>(parts(z.items, target.multiprocessors));
  const double round =
      workers > 1 ? std::max({multiplied, (multiplied + program) / workers, issued}) : multiplied + std::max(program, issued);
  const double clocks = (rounds * round + (workers > 1 ? program : 0) + 1200) / cost::kClock,
               traffic = all.traffic() / cost::kMemory;
  return std::max(clocks, traffic) + kBesideTraffic * std::min(clocks, traffic) + cost::kStart;
}

/// Convolutions as one. Error: in what they differ.
Result<StreamConvs> side_by_side(std::vector<ConvSetting> parts) {
  constexpr std::size_t kMostParts = 4;
  if (parts.size() > kMostParts) return refuse("convolutions side by side", parts.size(), fmt::format("at most {}", kMostParts));
  const ConvShape& all = parts[0].shape;
  for (const ConvSetting& p : parts) {
    const region::TensorRef &x = p.input, &first = parts[0].input;
    if (x.buffer != first.buffer || x.offset != first.offset || x.dims != first.dims || x.strides != first.strides ||
        p.tail.space != parts[0].tail.space || p.shape.kernel_h != all.kernel_h || p.shape.kernel_w != all.kernel_w ||
        p.shape.stride_h != all.stride_h || p.shape.stride_w != all.stride_w || p.shape.pad_top != all.pad_top ||
        p.shape.pad_left != all.pad_left || p.shape.dilation_h != all.dilation_h || p.shape.dilation_w != all.dilation_w ||
        p.shape.open != all.open)
      return refuse("convolutions side by side", "different inputs, windows or numbers of channels", "the same");
  }
  return StreamConvs{std::move(parts)};
}

class ConvRing final : public FamilyOf<StreamConvs, FloatTile> {
 public:
  explicit ConvRing(ConvType type)
      : type_(type), name_(type == ConvType::u8s8 ? "conv.u8s8.linear" : fmt::format("conv.{}.stream", name_of(type))) {}
  std::string_view name() const override { return name_; }
  int version() const override { return type_ == ConvType::f16 || type_ == ConvType::bf16 ? 2 : 1; }
  bool about(const region::Region& r) const override {
    const auto conv = [&](const region::Stage& s) {
      const bool windowed = type_ == ConvType::u8s8 && s.anchor.weights && s.anchor.weights->dims.size() == 4 &&
                            s.anchor.weights->dims[2] * s.anchor.weights->dims[3] > 1;
      return conv_type(s) == type_ && !windowed;
    };
    return is_single(r) ? conv(only(r)) : r.independent && std::all_of(r.stages.begin(), r.stages.end(), conv);
  }
  Result<StreamConvs> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (auto why = why_no_warpgroups(target); !why.empty()) return refuse(std::move(why));
    std::vector<ConvSetting> all;
    for (const region::Stage& s : r.stages) {
      OCTAVO_TRY(ConvSetting conv, read_one(s, plan));
      all.push_back(std::move(conv));
    }
    return side_by_side(std::move(all));
  }
  std::vector<Choice<FloatTile>> tactics(const StreamConvs& all, const Target& target) const override {
    const ConvShape& s = all.shape();
    struct Base {
      int pixels, channels, groups, in_turn, blocks;
    };
    static constexpr Base kBases[] = {{128, 256, 2, 0, 1}, {256, 128, 2, 0, 1}, {128, 192, 2, 0, 1}, {192, 128, 3, 0, 1},
                                      {128, 128, 2, 0, 1}, {128, 128, 2, 1, 1}, {64, 256, 2, 1, 1},  {64, 192, 2, 1, 1},
                                      {64, 128, 2, 1, 1},  {64, 192, 3, 1, 1},  {64, 128, 3, 1, 1},  {64, 128, 4, 1, 1},
                                      {128, 64, 3, 1, 1},  {128, 64, 4, 1, 1},  {64, 64, 2, 1, 1},   {64, 64, 4, 1, 1},
                                      {128, 128, 1, 0, 2}, {64, 128, 1, 0, 2},  {64, 64, 1, 0, 2},   {64, 64, 1, 0, 3},
                                      {64, 32, 1, 0, 1},   {64, 32, 1, 0, 2},   {64, 32, 1, 0, 3}};  // few rows: more blocks
    std::vector<Choice<FloatTile>> out;
    for (const Base& b : kBases) {
      if ((b.pixels > 64 && b.pixels >= 2 * s.pixels()) || (b.channels > 64 && b.channels >= 2 * s.out_channels)) continue;
      FloatTile t{b.pixels, b.channels, b.groups, b.in_turn, 2, b.blocks};
      const std::int64_t stage = std::int64_t{kDepth} * (t.pixels + t.channels);
      const std::int64_t room = (target.shared_bytes + 1024) / t.blocks - 1024 - kSignalBytes;
      t.stages = static_cast<int>(std::min<std::int64_t>(room / stage, kMostStages));
      if (t.stages < 3 || !why_not(all, t, target).empty()) continue;
      out.push_back({t, seconds_of(all, t, sizes_of(all, t, target), target)});
    }
    fastest_first(out);
    return out;
  }
  Result<KernelText> emit(const StreamConvs& all, const FloatTile& t, const Target& target) const override {
    ConvShape s = all.shape();
    if (auto why = why_not(all, t, target); !why.empty()) return refuse(std::move(why));
    const FloatSizes z = sizes_of(all, t, target);
    OpenNumbers open;
    if (s.open) {
      open.name("kPixels", s.pixels());
      open.name("kItems", parts(s.pixels(), t.pixels) * z.tiles_n);
      open.name("kBatch", s.batch);
    }
    const int run = run_of(t), piece = all.piece(run), spare = registers_of(t, z) - t.own_pixels() * t.channels / 128;
    const bool several = all.parts.size() > 1;
    const std::int64_t padded = z.part_tiles * t.channels;
    const auto filter_of_part = static_cast<std::size_t>(padded * s.taps() * s.tap_bytes());
    Launch launch = launch_of("octavo_conv_stream", z.grid, t.threads(), z.shared);
    launch.counted = {s.pixels(), t.pixels, z.tiles_n, "octavo_block()", "kItems", s.open};
    launch.arguments = {{Argument::Kind::buffer, all.parts[0].input.buffer, all.parts[0].input.offset},
                        {Argument::Kind::constant, 0, 0}};
    std::string parameters = "const unsigned char* x, const unsigned char* weights", pointers, starts, epilogues, finish;
    std::vector<PackedConstant> constants;
    ConvWeights weights;
    for (std::size_t k = 0; k < all.parts.size(); ++k) {
      const ConvSetting& part = all.parts[k];
      ConvWeights one = read_weights(part);
      EpilogueShape shape = conv_epilogue(part.tail, one.largest_sum, 2, run, padded);
      // So many registers beside the sums are taken by what is read ahead, and by two rows side by side. With fewer NVRTC spills.
      constexpr int kOfAhead = 72, kOfPairs = 88;
      shape.ahead = spare >= kOfAhead, shape.pairs = spare >= kOfPairs;
      shape.real = type_ != ConvType::u8s8, shape.piece = piece;
      const std::string name = several ? fmt::format("part{}", k) : "", prefix = several ? name + "_" : "";
      shape.prefix = prefix;
      const EmittedEpilogue e = emit_epilogue(part.tail, shape, up(padded * 4, 16));
      if (!e.refusal.empty()) return refuse(e.refusal);
      parameters += fmt::format(", const unsigned char* {}constants", prefix) + e.parameters;
      pointers += fmt::format("const {}OctavoPointers {}pointers = {{{}}};\n", several ? name + "::" : "", prefix, e.pointers);
      starts += fmt::format("{}{}constants", k == 0 ? "" : ", ", prefix);
      epilogues += several ? fmt::format("namespace {} {{\n{}}}\n", name, e.text) : e.text;
      // Products under way and a branch do not go together.
      finish += several ? fmt::format("{}if (part == {}) OCTAVO_FINISH({}::, {}pointers, channel, (void)0)\n",
                                      k == 0 ? "drain();\n" : "else ", k, name, prefix)
                        : "OCTAVO_FINISH(, pointers, channel, drain())\n";
      constants.push_back(of_weights(constants_with_start(one.start, e, padded)));
      launch.arguments.push_back({Argument::Kind::constant, static_cast<std::int32_t>(k) + 1, 0});
      launch.arguments.insert(launch.arguments.end(), e.arguments.begin(), e.arguments.end());
      // A tile is of one convolution: behind the last channel of each are zeros up to the next tile.
      weights.values.insert(weights.values.end(), one.values.begin(), one.values.end());
      if (several && !one.values.empty()) weights.values.resize((k + 1) * filter_of_part);
    }
    if (several) s.out_channels = z.tiles_n * t.channels;
    open.add_to(launch);
    if (several)
      epilogues +=
          "constexpr int kRows = part0::kRows, kRun = part0::kRun, kNeighbours = part0::kNeighbours;\nusing "
          "part0::octavo_channel_step;\n";
    std::string text = text_for(std::string(conv_load_text()) + std::string(kText), s.open);
    replace_mark(text, "@PARAMETERS@", parameters + open.parameters());
    replace_mark(text, "@POINTERS@", pointers);
    replace_mark(text, "@STARTS@", starts);
    replace_mark(text, "@FINISH@", finish);
    KernelText out;
    out.text = define(s, all.parts.size(), t, z) + epilogues + text;
    out.constants.push_back(of_weights(pack_filter(s, s.channels, weights, {z.tiles_n, z.steps, t.channels, kDepth, run, piece})));
    for (PackedConstant& c : constants) out.constants.push_back(std::move(c));
    out.launches.push_back(std::move(launch));
    return out;
  }

 private:
  [[nodiscard]] Reasons why_not(const StreamConvs& all, const FloatTile& t, const Target& target) const {
    if (type_ == ConvType::u8s8 && t.channels == 192) return unmet("channels of a tile of codes", t.channels, "32, 64, 128 or 256");
    return why_not_tile(t, sizes_of(all, t, target), target);
  }
  Result<ConvSetting> read_one(const region::Stage& stage, const region::Plan& plan) const {
    OCTAVO_TRY(ConvSetting conv, read_conv(stage, plan, type_));
    const ConvShape& s = conv.shape;
    if (s.groups != 1) return refuse("groups", s.groups, "1");
    if (s.piece != 16)
      return refuse("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                    "multiples of 16");
    if (s.taps() > 48) return refuse("kernel taps", s.taps(), "at most 48");
    if (type_ == ConvType::u8s8 && !s.flat) return refuse("1x1 convolution", "with strides, or rows apart", "one of dense rows");
    return conv;
  }

  std::string define(const ConvShape& s, std::size_t parts, const FloatTile& t, const FloatSizes& z) const {
    const bool codes = type_ == ConvType::u8s8;
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
                    {"kPartTiles", z.part_tiles}}) +
           fmt::format("#define OCTAVO_PARTS {}\n#define OCTAVO_CODES {}\ntypedef {} octavo_sum;\n", parts, codes ? 1 : 0,
                       codes ? "int" : "float") +
           fmt::format("constexpr bool kInTurn = {};\n#define OCTAVO_GROUP_PRODUCT octavo_group_multiply{}\n", t.in_turn != 0,
                       codes ? "" : fmt::format("_{}", name_of(type_)));
  }

  ConvType type_;
  std::string name_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(conv_stream_bf16, ConvRing, ConvType::bf16)
OCTAVO_DEFINE_FAMILY(conv_stream_f16, ConvRing, ConvType::f16)
OCTAVO_DEFINE_FAMILY(conv_linear, ConvRing, ConvType::u8s8)

}  // namespace octavo::cuda
