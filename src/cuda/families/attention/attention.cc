#include "cuda/families/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cuda/cost_model.h"
#include "cuda/families/attention/attention_codes.h"
#include "cuda/text/elements.h"
#include "cuda/text/epilogue.h"
#include "cuda/text/pieces.h"
#include "cuda/text/sums.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/attention/attention.inc"
    ;
constexpr int kStages = 2;  // of keys, of values

struct Sizes {
  std::int64_t key_tile, score_step, column_tile, score_steps, value_steps, pitch, moving, shared, blocks;
};
Sizes sizes_of(const CodesShape& a, const AttentionTile& t) {
  Sizes z{};
  z.key_tile = pow2_from(a.keys, 16, 64);
  z.score_step = pow2_from(a.features, 32, 128);
  z.column_tile = pow2_from(a.columns, 16, 128);
  z.score_steps = parts(a.features, z.score_step), z.value_steps = parts(a.keys, t.depth);
  z.pitch =
      (parts(a.keys, 4) | 1) * 4;  // an odd number of vectors: eight threads that read 16 bytes of eight rows meet no bank twice
  z.moving = kStages * std::max(z.key_tile * z.score_step, z.column_tile * t.depth);
  z.shared = z.score_steps * t.queries * z.score_step + z.moving + z.value_steps * t.queries * t.depth +
             t.queries * (z.pitch + parts(a.keys, kSumBlock) + 2) * 4;
  z.blocks = parts(a.queries, t.queries) * a.matrices();
  return z;
}

/// Blocks that a multiprocessor is to hold: as shared memory allows, and registers for twelve warps.
std::int64_t blocks_at_once(const Sizes& z, const AttentionTile& t, const Target& target) {
  return std::clamp<std::int64_t>(target.shared_bytes / (z.shared + 1024), 1, std::max(1, 12 / t.warps));
}

Reasons why_not_tile(const CodesShape& a, const AttentionTile& t, const Target& target) {
  if (t.warps < 1 || t.warps > 16 || t.queries % t.warps != 0 || (t.queries / t.warps != 16 && t.queries / t.warps != 32))
    return unmet("queries and warps", fmt::format("{} and {}", t.queries, t.warps), "16 or 32 queries a warp, at most 16 warps");
  if (t.depth != 32 && t.depth != 64 && t.depth != 128) return unmet("keys a step", t.depth, "32, 64 or 128");
  const Sizes z = sizes_of(a, t);
  if (z.column_tile == 128 && t.queries / t.warps == 32) return unmet("queries a warp", 32, "16 for more than 64 columns");
  if (z.blocks > INT32_MAX) return unmet("blocks", z.blocks, "less than 2^31");
  return why_not_shared(z.shared, 1, target);
}

/// An estimate of an H100: products, and about 60 instructions an exponential, on as many blocks as fit; the sums of rows wait for each other.
double seconds_of(const CodesShape& a, const AttentionTile& t, const Target& target) {
  constexpr double kMacs = 2000, kInstructions = 70, kWait = 4000, kTerm = 6;
  const Sizes z = sizes_of(a, t);
  const double resident =
      std::clamp(static_cast<double>(target.shared_bytes) / static_cast<double>(z.shared + 1024), 1.0, 64.0 / t.warps);
  const auto rows = static_cast<double>(t.queries), keys = static_cast<double>(parts(a.keys, z.key_tile) * z.key_tile);
  const double products = rows * keys * static_cast<double>(z.score_steps * z.score_step + z.column_tile) / kMacs;
  const double issued = rows * keys * kInstructions / cost::kLanes, waits = kWait + kTerm * keys;
  const double rounds = std::max(1.0, static_cast<double>(z.blocks) / (std::floor(resident) * target.multiprocessors));
  return rounds * std::max((products + issued) * std::floor(resident), products + issued * 4 / t.warps + waits) / cost::kClock +
         cost::kLaunch;
}

/// One of the two products as a namespace of its own: the constants that matmul_load.inc and matmul_step.inc read.
std::string product_text(const char* name, const ProductSide& left, const ProductSide& right, std::int64_t depth,
                         std::int64_t tile_m, std::int64_t tile_n, std::int64_t step, int warps, bool permuted) {
  std::string out = fmt::format("namespace {} {{\n", name);
  out += declare({{"kM", left.rows},
                  {"kN", right.rows},
                  {"kDepth", depth},
                  {"kSize", 1},
                  {"kTileM", tile_m},
                  {"kTileN", tile_n},
                  {"kTileK", step},
                  {"kWarpsM", warps},
                  {"kWarpsN", 1},
                  {"kStages", kStages},
                  {"kZeroLeft", left.zero},
                  {"kZeroRight", right.zero}});
  if (!permuted) out += declare({{"kRun", 4}, {"kNeighbours", 4}});
  out += fmt::format(
      "constexpr unsigned kFlipLeft = {}, kFlipRight = {};\nconstexpr bool kTotalRows = {}, kTotalColumns = {}, kRounded = "
      "false;\n",
      left.flipped ? "0x80808080u" : "0u", right.flipped ? "0x80808080u" : "0u", right.zero != 0, left.zero != 0);
  out += fmt::format("#undef OCTAVO_PRODUCT\n#define OCTAVO_PRODUCT octavo_mma_{}{}\ntypedef int octavo_sum;\n",
                     left.flipped ? "s8" : "u8", right.flipped ? "s8" : "u8");
  return out + side_text("OctavoLeft", left, "kTileM", "kM", false) + side_text("OctavoRight", right, "kTileN", "kN", permuted) +
         load_text() + std::string(step_text()) + "}\n";
}

EpilogueShape epilogue_shape(const CodesShape& a, const AttentionTile& t) {
  const Sizes z = sizes_of(a, t);
  EpilogueShape e;
  e.rows = t.queries / t.warps / 8, e.run = static_cast<int>(std::min<std::int64_t>(16, z.column_tile / 4));
  e.piece = piece_for(a.product, e.run);
  e.padded_channels = z.column_tile;
  e.takes_bias = true, e.threads = 32 * t.warps;
  e.accumulator = std::min(static_cast<double>(a.keys) * a.between.largest() * a.last.largest(), 2147483648.0);
  return e;
}

class Attention final : public FamilyOf<CodesShape, AttentionTile> {
 public:
  std::string_view name() const override { return "attention.u8.mma"; }
  int version() const override { return 4; }
  bool about(const region::Region& r) const override {
    return is_attention(r) && (r.stages[0].anchor.integer || !product_of_halves(r));
  }
  Result<CodesShape> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    OCTAVO_TRY(CodesShape a, codes_shape(r, plan));
    const AttentionTile least{16, 1, 32};
    if (auto why = why_not_tile(a, least, target); !why.empty()) return refuse(std::move(why));
    if (auto why = emit_epilogue(a.product, epilogue_shape(a, least), 0).refusal; !why.empty()) return refuse(std::move(why));
    return a;
  }
  std::vector<Choice<AttentionTile>> tactics(const CodesShape& a, const Target& target) const override {
    std::vector<Choice<AttentionTile>> out;
    for (const auto& [queries, warps] : {std::pair{64, 4}, {128, 8}, {32, 2}, {16, 1}, {64, 2}, {128, 4}}) {
      if (queries > 16 && queries >= 2 * a.queries) continue;
      for (const int depth : {64, 128, 32}) {
        if (depth > 32 && depth >= 2 * a.keys) continue;
        const AttentionTile t{queries, warps, depth};
        if (why_not_tile(a, t, target).empty()) out.push_back({t, seconds_of(a, t, target)});
      }
    }
    put_in_order(out, [](const AttentionTile& t) { return std::pair{t.queries, t.warps}; });
    return out;
  }
  Result<KernelText> emit(const CodesShape& a, const AttentionTile& t, const Target& target) const override {
    if (auto why = why_not_tile(a, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(a, t);
    const EpilogueShape shape = epilogue_shape(a, t);
    OCTAVO_TRY(const CodesPrograms programs, codes_programs(a, shape));
    ProductSide codes = a.between;
    codes.rows = a.queries;
    const std::uint32_t begin = static_cast<std::uint32_t>(sums_begin_with(a.left, a.right, a.features, z.score_step)) +
                                static_cast<std::uint32_t>(programs.scores.acc_offset);

    KernelText out;
    out.text = fmt::format("typedef {} octavo_offset;\n#define OCTAVO_SPLIT 0\n#define OCTAVO_CODES 1\n",
                           a.wide_offsets() ? "long long" : "int");
    out.text += declare({{"kM", a.queries},
                         {"kKeys", a.keys},
                         {"kInner", a.inner},
                         {"kTileM", t.queries},
                         {"kWarps", t.warps},
                         {"kPitch", z.pitch},
                         {"kMovingBytes", z.moving},
                         {"kTogether", 2},
                         {"kSumBlock", kSumBlock},
                         {"kBlocksPerProcessor", blocks_at_once(z, t, target)},
                         {"kScoresBeginWith", static_cast<std::int32_t>(begin)}});
    out.text += batch_offsets(a);
    std::string text(kText);
    programs.fill(text);
    out.text += std::string(elements_functions()) + softmax_text(a.softmax.program) +
                total_of_blocks((a.keys + kSumBlock - 1) / kSumBlock) + programs.text() +
                product_text("octavo_scores", a.left, a.right, a.features, t.queries, z.key_tile, z.score_step, t.warps, false) +
                product_text("octavo_values", codes, a.last, a.keys, t.queries, z.column_tile, t.depth, t.warps, true) + text;

    out.launches.push_back(programs.launch(a, z.blocks, 32 * t.warps, z.shared));
    const std::vector<std::int32_t> start(static_cast<std::size_t>(a.columns), sums_begin_with(a.between, a.last, a.keys, t.depth));
    out.constants.push_back(constants_with_start(start, programs.epilogue, shape.padded_channels));
    return out;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(attention, Attention)

}  // namespace octavo::cuda
