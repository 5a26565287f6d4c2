#include "cuda/families/attention/attention_warps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cuda/cost_model.h"
#include "cuda/families/attention/attention_codes.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/epilogue.h"
#include "cuda/text/near.h"
#include "cuda/text/pieces.h"
#include "cuda/text/sums.h"
#include "program/interval.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kText =
#include "cuda/families/attention/attention_warps.inc"
    ;
constexpr std::string_view kBoundsText =
#include "cuda/families/attention/attention_bounds.inc"
    ;
constexpr std::int64_t kQueries = 16;  // of a warp

/// Scores that are codes: score = scale * (code - zero), of codes from first to last. `program` gives the code, of type u8 or s8.
struct CodedScores {
  program::Program program;
  float scale = 1;
  std::int32_t zero = 0, first = 0, last = 0;
  [[nodiscard]] double range() const { return (last - first) * static_cast<double>(scale); }
  [[nodiscard]] double largest() const {
    return std::max(std::abs(first - zero), std::abs(last - zero)) * static_cast<double>(scale);
  }
  static constexpr double kRange = 60;  ///< up to which 2^(...) of all codes are normal numbers, and sums and their inverses too
};

struct WarpsShape : CodesShape {
  Rounded codes;
  std::optional<CodedScores> coded;
  std::int64_t piece = 16;  ///< bytes of a lane's reads of queries and keys
  bool near = false;        ///< no two scores are further apart than 86
};

/// Does the program give the span's code for every accumulator that is a number? What exporters put behind a softmax against rows that may attend nothing
/// asks for NaN alone, and rounds a code again.
bool gives_code_of(const program::Program& p, const program::RequantizeSpan& span, const Rounded& r) {
  program::Program q = p;
  q.spans.clear();
  q.code[static_cast<std::size_t>(span.result)] = {program::Op::acc_i};
  for (std::size_t i = 0; i < q.code.size(); ++i) {
    const program::Instr in = q.code[i];
    if (in.op != program::Op::sel_eq || in.args[0] != span.x || in.args[1] != span.x) continue;  // else it is NaN
    const auto self = static_cast<int>(i);
    for (program::Instr& user : q.code) std::replace(user.args.begin(), user.args.end(), self, in.args[2]);
    for (program::Output& o : q.outputs) o.value = o.value == self ? in.args[2] : o.value;
  }
  q = program::simplify(q);
  for (const program::Op other : {program::Op::acc_f, program::Op::load_f, program::Op::load_i}) {
    if (program::uses(q, other)) return false;
  }
  std::vector<program::Scalar> out(1), none(static_cast<std::size_t>(q.operand_count)), scratch;
  for (std::int32_t code = r.first + r.zero; code <= r.last + r.zero; ++code) {
    program::Scalar acc{};
    acc.i = code;
    program::interpret(q, acc, none, out, scratch);
    if (out[0].i != code) return false;
  }
  return true;
}

/// Of the program of the probabilities.
Result<Rounded> read_codes(const program::Program& p) {
  const auto no = [] {
    return refuse("program of the probabilities", "another", "a division by a constant, a rounding and bounds");
  };
  if (p.outputs.size() != 1 || p.outputs[0].type != ir::DType::u8) return no();
  for (const program::Span& s : p.spans) {
    const auto* span = std::get_if<program::RequantizeSpan>(&s);
    if (span == nullptr || p.code[static_cast<std::size_t>(span->x)].op != program::Op::acc_f) continue;
    const auto r = rounded_by(*span);
    // Codes less their zero point are bytes without a sign; a multiple of the step stays where floats are integers.
    if (!r || r->first > 0 || r->last < 0 || r->zero < 0 || r->last > 255 - r->zero || !gives_code_of(p, *span, *r)) return no();
    if (!(r->step >= 1e-6F && r->step <= 1e6F))
      return refuse("step of the probabilities", fmt::format("{}", r->step), "1e-6 to 1e6");
    return *r;
  }
  return no();
}

/// Nothing where the scores are none, or not of the sum alone.
std::optional<CodedScores> read_scores(const program::Program& p) {
  for (const program::Span& s : p.spans) {
    const auto* span = std::get_if<program::DequantizeSpan>(&s);
    if (span == nullptr || p.outputs[0].value != span->result) continue;
    const auto bounds = program::find_intervals(p, std::vector<bool>(static_cast<std::size_t>(p.operand_count) + 1, false));
    const program::Interval& codes = bounds[static_cast<std::size_t>(span->code)];
    if (!(span->scale > 0) || !(codes.lo >= -128 && codes.hi <= 255 && (codes.lo >= 0 || codes.hi <= 127))) return std::nullopt;
    CodedScores out{p, span->scale, span->zero, static_cast<std::int32_t>(codes.lo), static_cast<std::int32_t>(codes.hi)};
    out.program.outputs = {{span->code, codes.lo < 0 ? ir::DType::s8 : ir::DType::u8}};
    out.program.spans.clear();
    out.program = program::simplify(out.program);
    program::mark(out.program);
    if (program::uses(out.program, program::Op::load_f) || program::uses(out.program, program::Op::load_i)) return std::nullopt;
    return out;
  }
  return std::nullopt;
}

Result<WarpsShape> warps_shape(const region::Region& r, const region::Plan& plan) {
  OCTAVO_TRY(CodesShape read, codes_shape(r, plan));
  WarpsShape a{std::move(read), {}, {}, 16, false};
  if (a.features % 32 != 0) return refuse("features", a.features, "a multiple of 32");
  a.piece = a.features % 64 == 0 ? 16 : 8;
  if (a.columns % 16 != 0) return refuse("columns of the values", a.columns, "a multiple of 16");
  if (a.keys > 1024) return refuse("keys", a.keys, "at most 1024");
  const auto pieces = [&](const ProductSide& s, std::int64_t row, std::int64_t step, std::int64_t bytes,
                          std::string_view name) -> Reasons {
    if (step != 1) return unmet(fmt::format("bytes between neighbours of a row of {}", name), step, "1");
    for (const std::int64_t at : {s.ref.offset, s.outer, s.inner, row}) {
      if (at % bytes != 0) return unmet(fmt::format("bytes between rows of {}", name), at, fmt::format("a multiple of {}", bytes));
    }
    return {};
  };
  if (Reasons why = pieces(a.left, a.left.row, a.features == 1 ? 1 : a.left.depth, a.piece, "queries"); !why.empty())
    return refuse(std::move(why));
  if (Reasons why = pieces(a.right, a.right.row, a.right.depth, a.piece, "keys"); !why.empty()) return refuse(std::move(why));
  if (Reasons why = pieces(a.last, a.keys == 1 ? 0 : a.last.depth, a.last.row, 16, "values"); !why.empty())
    return refuse(std::move(why));
  OCTAVO_TRY(a.codes, read_codes(a.softmax.program));
  if (a.codes.zero != a.p.quantizer->zero_point[0])
    return refuse("zero point of the probabilities", a.codes.zero, a.p.quantizer->zero_point[0]);
  a.coded = read_scores(a.scores.program);
  a.near = a.coded && a.coded->range() <= 86;
  if (a.coded && a.coded->range() > CodedScores::kRange) a.coded.reset();
  return a;
}

/// How e / sum / step of the text may differ from what the reference has, in units of 2^-24, where the codes are decided by it: whatever the scores are.
///
/// An element matters whose quotient is half a step or more: it is not further from the largest score than ln(2 / step), as the sum is at least 1; one step
/// further the error is larger by a millionth of a step, far from a half. Averages in which exponentials are the weights and one of them is 1 are of scores no
/// further than ln(keys). With x that distance:
///   reference  a difference x, its exponential 4; each of the terms of a block is rounded when it is added, and so are sums of pairs of blocks
///   text       log2(e) x / 4, the product and its addition x, the power of two 4; four terms, then a term for each 16 keys, then lanes and warps
///   both       the quotient and its division by the step, or the reciprocal of the product: 8
/// Of scores that are codes a score of magnitude s is rounded once more: s. The power is of the distance from the greatest code.
double units_apart(const WarpsShape& a, const AttentionWarpsTile& t) {
  const auto n = static_cast<double>(a.keys), step = static_cast<double>(a.codes.step);
  const double more = a.coded ? a.coded->largest() + a.coded->range() : 0;
  const auto apart = [more](double x) { return 2.25 * x + 8 + more; };
  const double reference = std::min(n, static_cast<double>(kSumBlock)) + std::log2(std::max(1.0, n / kSumBlock)) + 1;
  const double text = n / 16 + 1 + 2 + 2 + t.members();
  return apart(std::max(0.0, std::log(2.0 / step)) + 1) + apart(std::log(n)) + reference + text + 8;
}

/// Rows of a warp of which a code is not decided by bounds so far apart: about so many codes are as near to the middle between two.
double rows_undecided(const WarpsShape& a, const AttentionWarpsTile& t) {
  const double codes = std::min(1.0 / static_cast<double>(a.codes.step), static_cast<double>(a.keys) * a.codes.last);
  return kQueries * codes * 2 * units_apart(a, t) * 0x1p-24;
}

constexpr double kMostUndecided = 4;  ///< for more rows of a warp sums in order are less work
/// Are exponentials and their sum approximated, and only rows computed as the reference does of which a code is not decided by that?
bool by_bounds(const AttentionWarpsTile& t) {
  return t.order == 0;
}
bool scores_as_bytes(const WarpsShape& a, const AttentionWarpsTile& t) {
  return a.coded && by_bounds(t);
}

constexpr std::int64_t kMostKeyBytes = 32768;  ///< keys that a block keeps in shared memory

struct Sizes {
  std::int64_t column_tile, steps, pitch, turned, keys, shared, blocks, registers;  // keys: bytes that are kept, or 0
};
Sizes sizes_of(const WarpsShape& a, const AttentionWarpsTile& t) {
  Sizes z{};
  z.column_tile = pow2_from(a.columns, 16, 128);
  z.steps = parts(a.keys, 32);
  z.pitch = (parts(a.keys, 4) | 1) * 4;  // an odd number of vectors
  z.turned = z.steps * 32 * z.column_tile;
  const std::int64_t own = t.warps / t.members();  // times 16 queries
  const std::int64_t sum_blocks = parts(up(a.keys, 4), kSumBlock);
  z.keys = up(a.keys, 16) * a.features;
  if (z.keys > kMostKeyBytes) z.keys = 0;
  z.shared = z.turned + z.keys + own * (scores_as_bytes(a, t) ? z.steps * 512 : kQueries * (z.pitch + sum_blocks) * 4);
  if (t.shared != 0) z.shared += 2 * t.warps * kQueries * 4;
  if (by_bounds(t)) z.shared += t.warps * (z.pitch + 8) * 4;
  if (t.shared != 0)
    z.shared = std::max(z.shared, (t.warps - 1) * (z.column_tile / 2 + 2) * 128);  // sums that members give to the first one
  z.blocks = parts(a.queries, kQueries * own) * a.matrices();
  z.registers = (scores_as_bytes(a, t) ? 20 : 60) + a.features / 16 * 6 + z.column_tile / 2;
  return z;
}

/// Blocks that a multiprocessor is to hold: as shared memory and registers allow.
std::int64_t blocks_at_once(const Sizes& z, const AttentionWarpsTile& t, const Target& target) {
  const std::int64_t warps = std::min<std::int64_t>(28, 65536 / (32 * z.registers));
  return std::clamp<std::int64_t>(target.shared_bytes / (z.shared + 1024), 1, std::max<std::int64_t>(1, warps / t.warps));
}

Reasons why_not_tile(const WarpsShape& a, const AttentionWarpsTile& t, const Target& target) {
  if (t.warps < 1 || t.warps > 16) return unmet("warps", t.warps, "1 to 16");
  if (t.order == 0 && rows_undecided(a, t) > kMostUndecided)
    return unmet("rows of 16 that bounds do not decide", rows_undecided(a, t), fmt::format("at most {}", kMostUndecided));
  if (t.shared != 0 && t.warps == 1) return unmet("warps that share queries", t.warps, "2 to 16");
  const Sizes z = sizes_of(a, t);
  if (t.warps * 32 * z.registers > 65536) return unmet("registers of a block", t.warps * 32 * z.registers, "at most 65536");
  if (z.blocks > INT32_MAX) return unmet("blocks", z.blocks, "less than 2^31");
  return why_not_shared(z.shared, 1, target);
}

/// An estimate of an H100: about 36 instructions a score, 24 by bounds, and 19 where scores are bytes. A multiprocessor begins a third of one in a clock for each
/// of a few warps, and three at most: 14 warps began 1.8. A row that bounds do not decide was seen to take 1,300 more, or 7,000 clocks of a warp that is alone.
double seconds_of(const WarpsShape& a, const AttentionWarpsTile& t, const Target& target) {
  constexpr double kOfWarp = 900, kOfBlock = 600, kMost = 3.2, kAlone = 0.35, kWait = 3000;
  const Sizes z = sizes_of(a, t);
  const double instructions = scores_as_bytes(a, t) ? 19 : by_bounds(t) ? 24 : 36;
  const double undecided = by_bounds(t) ? rows_undecided(a, t) * (t.shared != 0 ? 2600 : 1300) : 0;  // a lone warp waits for itself
  const double of_warp =
      static_cast<double>(parts(a.keys, 16)) * 8 * instructions * static_cast<double>(a.features + z.column_tile + 256) / 384 +
      kOfWarp + undecided;
  const double of_block =
      (t.shared != 0 ? of_warp + 300 * t.warps : of_warp * t.warps) + kOfBlock + static_cast<double>(z.steps * z.column_tile) / 2;
  const auto resident = static_cast<double>(blocks_at_once(z, t, target));
  const double blocks_each = std::max(1.0, static_cast<double>(z.blocks) / target.multiprocessors);  // of a multiprocessor
  const double together = std::min(resident, blocks_each);
  const double rate = 1 / (1 / kMost + 1 / (kAlone * together * t.warps));
  return (std::max(1.0, blocks_each / together) * (together * of_block / rate) + kWait) / cost::kClock + cost::kLaunch;
}

EpilogueShape epilogue_shape(const WarpsShape& a, const AttentionWarpsTile& t) {
  const Sizes z = sizes_of(a, t);
  EpilogueShape e;
  e.rows = 2, e.run = static_cast<int>(std::min<std::int64_t>(16, z.column_tile / 4));
  e.piece = piece_for(a.product, e.run);
  e.padded_channels = z.column_tile;
  e.takes_bias = true, e.threads = 32 * t.warps;
  e.accumulator = std::min(static_cast<double>(a.keys) * a.codes.last * a.last.largest(), 2147483648.0);
  return e;
}

class AttentionWarps final : public FamilyOf<WarpsShape, AttentionWarpsTile> {
 public:
  std::string_view name() const override { return "attention.u8.warps"; }
  int version() const override { return 4; }
  bool about(const region::Region& r) const override { return is_attention(r) && r.stages[0].anchor.integer; }
  Result<WarpsShape> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    OCTAVO_TRY(WarpsShape a, warps_shape(r, plan));
    const AttentionWarpsTile least{1, 0, 1};
    if (auto why = why_not_tile(a, least, target); !why.empty()) return refuse(std::move(why));
    if (auto why = emit_epilogue(a.product, epilogue_shape(a, least), 0).refusal; !why.empty()) return refuse(std::move(why));
    return a;
  }
  std::vector<Choice<AttentionWarpsTile>> tactics(const WarpsShape& a, const Target& target) const override {
    std::vector<Choice<AttentionWarpsTile>> out;
    for (const int order : {0, 1}) {
      for (const int warps : {4, 7, 5, 3, 8, 6, 2, 1, 10, 13, 16}) {
        if (warps > 1 && warps > parts(a.queries, kQueries)) continue;
        const AttentionWarpsTile t{warps, 0, order};
        if (why_not_tile(a, t, target).empty()) out.push_back({t, seconds_of(a, t, target)});
      }
      for (const int warps : {2, 3, 4}) {
        const AttentionWarpsTile t{warps, 1, order};
        if (parts(a.keys, 16) >= 2 * warps && why_not_tile(a, t, target).empty()) out.push_back({t, seconds_of(a, t, target)});
      }
    }
    fastest_first(out);
    // How often bounds do not decide depends on the scores: the best of either way comes first, and is timed where anything is.
    const auto other = std::find_if(out.begin(), out.end(), [&](const auto& c) { return c.tile.order != out[0].tile.order; });
    if (other != out.end()) {
      other->seconds = out[0].seconds;
      std::rotate(out.begin() + 1, other, other + 1);
    }
    return out;
  }
  Result<KernelText> emit(const WarpsShape& a, const AttentionWarpsTile& t, const Target& target) const override {
    if (auto why = why_not_tile(a, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(a, t);
    const EpilogueShape shape = epilogue_shape(a, t);
    CodesShape with = a;
    if (scores_as_bytes(a, t)) with.scores = {a.coded->program, {}};
    OCTAVO_TRY(const CodesPrograms programs, codes_programs(with, shape, scores_as_bytes(a, t)));
    // Codes of keys are multiplied as they are: their zero point takes a number for a row off. Those of queries and values less 128 where that is theirs.
    const std::int32_t zero_keys = a.k.quantizer->zero_point[0];
    const auto begin =
        static_cast<std::uint32_t>(a.features * a.left.zero * zero_keys) + static_cast<std::uint32_t>(programs.scores.acc_offset);

    KernelText out;
    out.text = fmt::format("typedef {} octavo_offset;\n", a.wide_offsets() ? "long long" : "int");
    out.text += declare({{"kM", a.queries},
                         {"kKeys", a.keys},
                         {"kFeatures", a.features},
                         {"kColumns", z.column_tile},
                         {"kValueColumns", a.columns},
                         {"kPiece", a.piece},
                         {"kInner", a.inner},
                         {"kWarps", t.warps},
                         {"kMembers", t.members()},
                         {"kPitch", z.pitch},
                         {"kSumBlock", kSumBlock},
                         {"kBlocksPerProcessor", blocks_at_once(z, t, target)},
                         {"kZeroQueries", a.left.zero},
                         {"kZeroKeys", zero_keys},
                         {"kZeroCodes", a.codes.zero},
                         {"kLastCode", a.codes.last},
                         {"kZeroValues", a.last.zero},
                         {"kScoresBeginWith", static_cast<std::int32_t>(begin)}});
    const double units = by_bounds(t) ? 2 * std::ceil(units_apart(a, t) / 2) : 8;
    out.text += batch_offsets(a) + fmt::format("constexpr octavo_offset kQueryRow = {}, kKeyRow = {}, kValueRow = {};\n",
                                               a.left.row, a.right.row, a.keys == 1 ? 0 : a.last.depth);
    out.text += fmt::format(
        "constexpr unsigned kFlipQueries = {}, kFlipValues = {};\nconstexpr bool kNear = {}, kBounds = {}, kStaged = "
        "{};\nconstexpr float kStep "
        "= {:a}f, "
        "kLow = {:a}f, kHigh = {:a}f;\n",
        a.left.flipped ? "0x80808080u" : "0u", a.last.flipped ? "0x80808080u" : "0u", a.near, by_bounds(t), z.keys != 0,
        a.codes.step, static_cast<float>(1 - units * 0x1p-24), static_cast<float>(1 + units * 0x1p-24));
    out.text += fmt::format("#define OCTAVO_SCORES octavo_mma_{}u8\n#define OCTAVO_VALUES octavo_mma_u8{}\n",
                            a.left.flipped ? "s8" : "u8", a.last.flipped ? "s8" : "u8");
    const CodedScores scores = scores_as_bytes(a, t) ? *a.coded : CodedScores{};
    const bool negative = scores.first < 0;
    const std::int32_t bias = negative ? 128 : 0;  // bytes are codes more that
    const auto rate = static_cast<float>(static_cast<double>(scores.scale) * 1.4426950408889634);
    out.text += fmt::format(
        "constexpr bool kCoded = {};\nconstexpr unsigned kCodeFlip = {};\nconstexpr float kCodeScale = {:a}f, kCodeZero = {:a}f, "
        "kCodeRate = "
        "{:a}f, kCodeBase = {:a}f;\n#define OCTAVO_PACK_SCORES(c) octavo_pack_{}8((c)[0], (c)[1], (c)[2], (c)[3])\n",
        scores_as_bytes(a, t), negative ? "0x80808080u" : "0u", scores.scale, static_cast<float>(8388608 + bias + scores.zero),
        rate, static_cast<float>(-(8388608.0 + bias + scores.last) * static_cast<double>(rate)), negative ? 's' : 'u');
    // Codes less their zero point are not negative: packing them as bytes with a sign bounds them by 127.
    out.text += a.codes.last == 127 ? "#define OCTAVO_PACK_CODES(c) octavo_pack_s8((c)[0], (c)[1], (c)[2], (c)[3])\n"
                : a.codes.last == 255
                    ? std::string("#define OCTAVO_PACK_CODES(c) octavo_pack_u8((c)[0], (c)[1], (c)[2], (c)[3])\n")
                    : fmt::format(
                          "OCTAVO_DEVICE int octavo_bounded(int c) {{ return c < {0} ? c : {0}; }}\n"
                          "#define OCTAVO_PACK_CODES(c) octavo_pack_u8(octavo_bounded((c)[0]), octavo_bounded((c)[1]), "
                          "octavo_bounded((c)[2]), octavo_bounded((c)[3]))\n",
                          a.codes.last);
    std::string text(kText);
    replace_mark(text, "@BOUNDS@", kBoundsText);
    programs.fill(text);
    out.text += std::string(elements_functions()) + softmax_text(a.softmax.program) +
                total_of_blocks(parts(up(a.keys, 4), kSumBlock)) + programs.text() + std::string(columns_text()) + text;

    out.launches.push_back(programs.launch(a, z.blocks, 32 * t.warps, z.shared));
    const std::vector<std::int32_t> start(static_cast<std::size_t>(a.columns), 0);
    out.constants.push_back(constants_with_start(start, programs.epilogue, shape.padded_channels));
    return out;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(attention_warps, AttentionWarps)

}  // namespace octavo::cuda
