// One generator, past 400 lines: what it refuses, its tables of spans, its estimate and its text share one reading of the region.
#include "cuda/families/attention/attention_halves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>

#include "cuda/cost_model.h"
#include "cuda/families/attention/attention_shape.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/pieces.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using program::Op;

constexpr std::string_view kText =
#include "cuda/families/attention/attention_halves.inc"
    ;
constexpr std::int64_t kMostFeatures = 256, kPiece = 16;  // kPiece: bytes that are copied at once
constexpr int kRun = 4;                                   // columns of a thread that are neighbours

/// One matrix in memory: lines of neighbouring elements, `line` bytes from one to the next. Turned: the lines of keys and values are along the keys, not along
/// features or columns.
struct Lines {
  std::int64_t line = 0, outer = 0, inner = 0;
  bool turned = false;
};
/// Scores that are the sums, rounded to a type of 16 bits or not, times a positive number.
struct Scaled {
  float factor = 1;
  DType rounded = DType::f32;
};
/// What the program behind softmax does to all probabilities of a row alike.
struct OfRows {
  double factor = 1;
  int operand = -1;  ///< the row's element of it is a further factor; -1: none
  bool nan_is_zero = false;
};
/// A constant that is added to the scores of all matrices alike: where it is -inf, keys count for nothing.
struct Forbidding {
  ir::Tensor data;  ///< may be empty, where weights are not known
  ElementAccess at;
};
struct HalvesShape : AttentionShape {
  Lines left{}, right{}, last{};  ///< queries, keys, values
  std::optional<Scaled> scaled;   ///< what the first program is, if it is no more than that
  OfRows rows;
  std::optional<Forbidding> mask;
};

/// Does the program make 0 of a NaN? Nothing: it makes something else of it than 0 or NaN.
std::optional<bool> nan_is_zero(const program::Program& p) {
  program::Scalar acc{}, one{}, result{};
  acc.f = std::numeric_limits<float>::quiet_NaN(), one.f = 1;
  const std::vector<program::Scalar> operands(static_cast<std::size_t>(p.operand_count), one);
  std::vector<program::Scalar> scratch;
  program::interpret(p, acc, operands, {&result, 1}, scratch);
  if (result.f != 0 && !std::isnan(result.f)) return {};
  return result.f == 0;
}
/// Nothing: it does something else. A row of probabilities is either all NaN or has none; here they are numbers.
std::optional<OfRows> of_rows(const program::Program& p, DType type) {
  struct Value {
    std::optional<OfRows> rows;             ///< probabilities, or
    std::optional<program::Scalar> number;  ///< the same for all
  };
  std::vector<Value> values;
  if (p.outputs.size() != 1 || !ir::is_float(p.outputs[0].type)) return {};
  for (const program::Instr& in : p.code) {
    Value out;
    const auto from = [&](std::size_t k) -> const program::Instr& { return p.code[static_cast<std::size_t>(in.args[k])]; };
    const auto value = [&](std::size_t k) { return values[static_cast<std::size_t>(in.args[k])]; };
    const auto times = [&](std::size_t k, std::size_t by,
                           bool over) -> std::optional<OfRows> {  // argument k times, or over, another
      std::optional<OfRows> of = value(k).rows;
      if (!of) return {};
      if (!over && from(by).op == Op::load_f && of->operand < 0) {
        of->operand = from(by).imm;
        return of;
      }
      const auto number = value(by).number;
      if (!number || !(number->f > 1e-30F && number->f < 1e30F)) return {};
      of->factor *= over ? 1 / static_cast<double>(number->f) : static_cast<double>(number->f);
      return of->factor > 1e-30 && of->factor < 1e30 ? of : std::nullopt;
    };
    const std::size_t count = program::info(in.op).operands.size();
    bool numbers = in.op == Op::imm_f || in.op == Op::imm_i || count > 0;
    std::array<program::Scalar, 4> scalars{};
    for (std::size_t k = 0; k < count; ++k) {
      numbers = numbers && value(k).number;
      if (numbers) scalars[k] = *value(k).number;
    }
    if (in.op == Op::acc_f) {
      out.rows = OfRows{};
    } else if (numbers) {
      out.number = in.op == Op::imm_f || in.op == Op::imm_i
                       ? program::Scalar{.i = in.imm}
                       : program::evaluate_op(p, in, scalars[0], scalars[1], scalars[2], scalars[3]);
    } else if (in.op == Op::nan0 || in.op == (type == DType::f16 ? Op::to_f16 : Op::to_bf16)) {
      out.rows = value(0).rows;
    } else if (in.op == Op::sel_eq && value(0).number && value(1).number) {
      out = value(0).number->f == value(1).number->f ? value(2) : value(3);
    } else if (in.op == Op::sel_eq && value(0).rows && in.args[0] == in.args[1]) {
      out = value(2);
    } else if (in.op == Op::mul) {
      out.rows = value(0).rows ? times(0, 1, false) : times(1, 0, false);
    } else if (in.op == Op::div) {
      out.rows = times(0, 1, true);
    }
    values.push_back(out);
  }
  const auto zero = nan_is_zero(p);
  std::optional<OfRows> rows = values[static_cast<std::size_t>(p.outputs[0].value)].rows;
  if (!rows || !zero) return {};
  rows->nan_is_zero = *zero;
  return rows;
}

/// Nothing: the program does more. A product with a power of two may stand on either side of a rounding: what differs is below 2^-24.
std::optional<Scaled> only_scaled(const program::Program& p) {
  Scaled out;
  const auto at = [&](int value) -> const program::Instr& { return p.code[static_cast<std::size_t>(value)]; };
  const auto round = [&](DType type) {  // false: to another type as well
    const bool first = out.rounded == DType::f32 || out.rounded == type || type == DType::f32;
    out.rounded = type == DType::f32 ? out.rounded : type;
    return first;
  };
  int value = p.outputs[0].value;
  const auto without_roundings = [&] {
    for (; at(value).op == Op::to_f16 || at(value).op == Op::to_bf16; value = at(value).args[0]) {
      if (!round(at(value).op == Op::to_f16 ? DType::f16 : DType::bf16)) return false;
    }
    return true;
  };
  if (!round(p.outputs[0].type) || !without_roundings()) return {};
  if (at(value).op == Op::mul || at(value).op == Op::div) {
    const program::Instr& in = at(value);
    const bool first = in.op == Op::mul && at(in.args[0]).op == Op::imm_f;
    const program::Instr& number = at(in.args[first ? 0 : 1]);
    if (number.op != Op::imm_f) return {};
    const auto by = std::bit_cast<float>(number.imm);
    out.factor = in.op == Op::div ? 1 / by : by;
    int exponent = 0;
    if (!(out.factor > 1e-30F) || !(out.factor < 1e30F)) return {};
    if (out.rounded != DType::f32 && std::frexp(out.factor, &exponent) != 0.5F) return {};
    value = in.args[first ? 1 : 0];
    if (!without_roundings()) return {};
  }
  if (at(value).op != Op::acc_f) return {};
  return out;
}

/// The matrix [.., first, second] of a tensor: lines along the second dimension, or where it may be turned along the first.
Result<Lines> lines_of(const AttentionShape& a, const region::TensorRef& t, const char* what, bool may_be_turned) {
  const std::size_t n = t.dims.size();
  Reasons why;
  for (const bool turned : {true, false}) {
    if (turned && !may_be_turned) continue;
    const std::size_t along = turned ? n - 2 : n - 1, across = turned ? n - 1 : n - 2;
    if (t.dims[along] != 1 && t.strides[along] != 1) {
      why = unmet(fmt::format("elements between neighbours of the {}", what), ir::to_string(t.strides),
                  may_be_turned ? "1 along one of both dimensions" : "1 along the features");
      continue;
    }
    const Lines out{t.dims[across] == 1 ? 0 : 2 * t.strides[across], 2 * a.batch_strides(t)[0], 2 * a.batch_strides(t)[1], turned};
    bool aligned = true;
    for (const std::int64_t at : {t.offset, out.line, out.outer, out.inner}) {
      if (at % kPiece == 0) continue;
      aligned = false;
      why = unmet(fmt::format("bytes to a line of the {}", what), at, fmt::format("a multiple of {}", kPiece));
    }
    if (aligned) return out;
  }
  return refuse(std::move(why));
}

/// What the first program adds last, if it is such a constant.
std::optional<Forbidding> forbidding(const HalvesShape& a, const region::Plan& plan) {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;  // elements to look at
  const program::Program& p = a.scores.program;
  const auto at = [&](int value) -> const program::Instr& { return p.code[static_cast<std::size_t>(value)]; };
  int value = p.outputs[0].value;
  while (at(value).op == Op::to_f16 || at(value).op == Op::to_bf16) value = at(value).args[0];
  if (at(value).op != Op::add || a.queries * a.keys > kMost) return {};
  for (const int k : {0, 1}) {
    const program::Instr& in = at(at(value).args[static_cast<std::size_t>(k)]);
    if (in.op != Op::load_f) continue;
    const ElementAccess& of = a.scores.operands[static_cast<std::size_t>(in.imm)];
    const region::Buffer& buffer = plan.buffers[static_cast<std::size_t>(of.buffer)];
    const bool alike =
        std::all_of(a.batch.begin(), a.batch.end(), [&](std::size_t d) { return d >= a.rank || of.strides[d] == 0; });
    if (alike && buffer.kind == region::BufferKind::constant) return Forbidding{buffer.data, of};
  }
  return {};
}

Result<HalvesShape> halves_shape(const region::Region& r, const region::Plan& plan, DType type) {
  OCTAVO_TRY(AttentionShape read, read_attention(r, plan));
  HalvesShape a{std::move(read), {}, {}, {}, {}, {}, {}};
  for (const region::TensorRef* t : {&a.q, &a.k, &a.p, &a.v}) {
    if (t->dtype != type) return refuse("type of a matrix", ir::name_of(t->dtype), ir::name_of(type));
  }
  if (r.stages[2].anchor.integer) return refuse("products of codes", "one", "none");
  for (const auto& [what, extent] : {std::pair{"features", a.features}, {"columns of the values", a.columns}}) {
    if (extent % 8 != 0 || extent > kMostFeatures)
      return refuse(what, extent, fmt::format("a multiple of 8, at most {}", kMostFeatures));
  }
  OCTAVO_TRY(a.left, lines_of(a, a.q, "queries", false));
  OCTAVO_TRY(const Lines keys, lines_of(a, a.k, "keys", true));  // [features, keys]
  OCTAVO_TRY(a.last, lines_of(a, a.v, "values", true));          // [keys, columns]
  a.right = keys;
  a.right.turned = !keys.turned;  // lines of neighbouring features are the usual way
  program::Program& scores = a.scores.program;
  if (scores.outputs.size() != 1 || !ir::is_float(scores.outputs[0].type) || load_function(scores.outputs[0].type).empty())
    return refuse("type of the scores", ir::name_of(r.stages[0].stores[0].dtype), "f32, f16 or bf16");
  a.scaled = only_scaled(scores);
  if (!a.scaled && scores.outputs[0].type != DType::f32) {
    const Op narrow = scores.outputs[0].type == DType::f16 ? Op::to_f16 : Op::to_bf16;
    if (scores.code[static_cast<std::size_t>(scores.outputs[0].value)].op != narrow)
      scores.outputs[0].value = scores.push(narrow, scores.outputs[0].value);
  }
  const auto rows = of_rows(a.softmax.program, type);
  if (!rows || (rows->operand >= 0 && a.softmax.operands[static_cast<std::size_t>(rows->operand)].strides[a.rank - 1] != 0))
    return refuse("what follows softmax", program::print(a.softmax.program),
                  "factors of whole rows, NaN to zero, and the rounding to the type");
  a.rows = *rows;
  a.mask = forbidding(a, plan);
  a.open = a.open && !a.mask;
  return a;
}

struct Sizes {
  std::int64_t rows = 16, steps = 1, column_tiles = 2, registers = 0, shared = 0, blocks = 1;
  std::int64_t copies = 1;  ///< of a thread, for one side of a tile
  bool held = false;        ///< queries in registers
};
Sizes sizes_of(const HalvesShape& a, const HalvesTile& t) {
  const auto pitch = [](std::int64_t chunks) { return (chunks | 1) * kPiece; };
  Sizes z;
  z.rows = t.queries / t.warps, z.steps = parts(a.features, 16), z.column_tiles = parts(a.columns, 16) * 2;
  const std::int64_t keys = a.right.turned ? 16 * z.steps * pitch(t.keys / 8) : t.keys * pitch(2 * z.steps);
  const std::int64_t values = a.last.turned ? 8 * z.column_tiles * pitch(t.keys / 8) : t.keys * pitch(z.column_tiles);
  z.shared = t.queries * pitch(2 * z.steps) + 2 * (keys + values);
  z.copies = parts(t.keys * std::max(2 * z.steps, z.column_tiles), 32 * t.warps);
  z.blocks = parts(a.queries, t.queries) * a.matrices();
  z.registers = 60 + z.rows / 16 * (t.keys / 2 + 4 * z.column_tiles) + (z.column_tiles > 16 ? 8 : 0) +
                z.rows / 16 * 20 * std::min<std::int64_t>(std::ssize(a.scores.operands), 2);
  const std::int64_t queries = z.rows / 16 * 4 * z.steps;
  z.held = z.registers + queries <= 232;
  z.registers += z.held ? queries : 0;
  return z;
}
/// Blocks that a multiprocessor is to hold, as shared memory and the registers of its four parts allow.
std::int64_t blocks_at_once(const Sizes& z, const HalvesTile& t, const Target& target) {
  const std::int64_t warps = 4 * (65536 / 4 / (32 * up(z.registers, 8)));
  return std::clamp<std::int64_t>(std::min(target.shared_bytes / (z.shared + 1024), warps / t.warps), 1, std::max(1, 16 / t.warps));
}

Reasons why_not_tile(const HalvesShape& a, const HalvesTile& t, const Target& target) {
  if (t.warps < 1 || t.warps > 16 || t.queries % t.warps != 0 || (t.queries / t.warps != 16 && t.queries / t.warps != 32))
    return unmet("queries and warps", fmt::format("{} and {}", t.queries, t.warps), "16 or 32 queries a warp, at most 16 warps");
  if (t.keys != 16 && t.keys != 32 && t.keys != 64 && t.keys != 128) return unmet("keys", t.keys, "16, 32, 64 or 128");
  const Sizes z = sizes_of(a, t);
  if (z.registers > 248) return unmet("registers of a thread", z.registers, "at most 248 by the estimate");
  if (z.copies > 16) return unmet("copies of a thread", z.copies, "at most 16, which it prepares at once");
  if (z.blocks > INT32_MAX) return unmet("blocks", z.blocks, "less than 2^31");
  return why_not_shared(z.shared, 1, target);
}

/// An estimate of an H100: products of mma.sync, what they read of shared memory (a right side for every 16 or 32 rows), and instructions, counted in machine
/// code: about 10 a score. Warps of a multiprocessor overlap them, eight or more do so well; where blocks are few, a tile of keys takes as long as its chain
/// of loads, products and exponentials.
double seconds_of(const HalvesShape& a, const HalvesTile& t, const Target& target) {
  constexpr double kInstructions = 10, kWait = 3000, kTile = 700;
  const Sizes z = sizes_of(a, t);
  const auto rows = static_cast<double>(t.queries), tiles = static_cast<double>(parts(a.keys, t.keys)), keys = tiles * t.keys;
  const auto depth = static_cast<double>(16 * z.steps + 8 * z.column_tiles);
  const double program =
      a.scaled ? (a.scaled->rounded == DType::f32 ? 0 : 2) : 2 * static_cast<double>(a.scores.program.code.size());
  const double rescaled = static_cast<double>(8 * z.column_tiles) / t.keys;
  const std::array clocks{rows * keys * depth / (cost::kMacs / 2), keys * depth * 2 * t.warps / cost::kLanes,
                          rows * keys * (kInstructions + program + rescaled) / cost::kLanes};
  const double most = *std::max_element(clocks.begin(), clocks.end()), all = clocks[0] + clocks[1] + clocks[2];
  const auto at_once = static_cast<double>(blocks_at_once(z, t, target));
  const double work = most + (at_once * t.warps >= 8 ? 0.3 : 0.8) * (all - most);
  const double rounds = std::max(1.0, static_cast<double>(z.blocks) / (at_once * target.multiprocessors));
  const double alone = kWait + tiles * kTile + all * 4 / std::min(4, t.warps);
  const double bytes = static_cast<double>(region::tensor_bytes(a.q) + region::tensor_bytes(a.k) + region::tensor_bytes(a.v));
  return std::max(rounds * std::max(work * at_once, alone) / cost::kClock, bytes / cost::kMemory) + cost::kLaunch;
}

/// Is the stride along a dimension of the batch open?
bool open_stride(const HalvesShape& a, const ElementAccess& at, std::size_t which) {
  return a.batch[which] < a.rank && at.open[a.batch[which]] != 0;
}

/// `octavo_score_pair`: the first program, of two neighbouring keys of a row that exists. Where `partial`, keys may not exist.
struct PairText {
  std::string text, parameters, names;  ///< parameters of functions, and how they are handed on
  std::string places;                   ///< where those of the block's matrix begin
  std::vector<Argument> arguments;
};
PairText pair_text(const HalvesShape& a, OpenNumbers& numbers) {
  PairText out;
  const std::string_view keys = a.open ? ", int kKeys" : "";
  if (a.scaled) {
    const std::string name(ir::name_of(a.scaled->rounded));
    out.text =
        fmt::format("template <bool partial>\nOCTAVO_DEVICE void octavo_score_pair(float (&s)[2], int, int{}) {{\n{}}}\n",
                    a.open ? ", int" : "",
                    a.scaled->rounded == DType::f32
                        ? "  (void)s;\n"
                        : fmt::format("  const unsigned both = octavo_{0}_pair(s[0], s[1]);\n  s[0] = octavo_{0}_value((unsigned "
                                      "short)both), s[1] = octavo_{0}_value((unsigned short)(both >> 16));\n",
                                      name));
    return out;
  }
  const program::Program& p = a.scores.program;
  const std::vector<char> used = loaded(p);
  const bool sums = program::uses(p, Op::acc_f);
  std::string loads, call = sums ? "s[e]" : "0";
  for (std::size_t i = 0; i < a.scores.operands.size(); ++i) {
    if (used[i] == 0) continue;
    const ElementAccess& at = a.scores.operands[i];
    const auto size = static_cast<std::int64_t>(ir::size_of(at.dtype));
    const auto stride = [&](std::size_t d) { return d < a.rank ? at.strides[d] * size : 0; };
    const std::int64_t row = stride(a.rank - 2), key = stride(a.rank - 1), outer = stride(a.batch[0]), inner = stride(a.batch[1]);
    std::int64_t common = at.offset;
    for (const std::int64_t v : {row, outer, inner}) common = std::gcd(common, v);
    const bool pairs = key == size && common % (2 * size) == 0;
    const std::string function = load_function(at.dtype), place = fmt::format("score{} + (octavo_offset)row * {}", i, row);
    const auto type = register_type(at.dtype);
    loads += fmt::format("  {} l{}[2];\n", type, i);
    const std::string one_by_one = fmt::format(
        "    OCTAVO_UNROLL\n    for (int e = 0; e < 2; ++e) {{\n      {0} one[1];\n      {1}(one, {2} + (octavo_offset)(partial && "
        "key + e >= kKeys ? kKeys - 1 : key + e) * {3});\n      l{4}[e] = one[0];\n    }}\n",
        type, function, place, key, i);
    if (key == 0) {
      loads +=
          fmt::format("  {{\n    {} one[1];\n    {}(one, {});\n    l{}[0] = l{}[1] = one[0];\n  }}\n", type, function, place, i, i);
    } else if (pairs) {
      loads += fmt::format("  if (!partial) {{\n    {}(l{}, {} + (octavo_offset)key * {});\n  }} else {{\n{}  }}\n", function, i,
                           place, key, one_by_one);
    } else {
      loads += "  {\n" + one_by_one + "  }\n";
    }
    call += fmt::format(", l{}[e]", i);
    out.parameters += fmt::format(", const unsigned char* score{}", i);
    out.names += fmt::format(", score{}", i);
    if (outer != 0 || inner != 0)
      out.places += fmt::format("  score{} += outer * {} + inner * {};\n", i, numbers.put({outer, open_stride(a, at, 0)}, "ll"),
                                numbers.put({inner, open_stride(a, at, 1)}, "ll"));
    out.arguments.push_back({Argument::Kind::buffer, at.buffer, at.offset});
  }
  out.text =
      emit_function(p, "octavo_score") +
      fmt::format(
          "template <bool partial>\nOCTAVO_DEVICE void octavo_score_pair(float (&s)[2], int row, int key{}{}) {{\n  (void)row, "
          "(void)key;\n"
          "{}  OCTAVO_UNROLL\n  for (int e = 0; e < 2; ++e) {{\n    float r;\n    octavo_score({}, r);\n    s[e] = r;\n  }}\n}}\n",
          out.parameters, keys, loads, call);
  return out;
}

/// `octavo_row_factor`: of a row that exists.
PairText row_text(const HalvesShape& a, OpenNumbers& numbers) {
  PairText out;
  std::string value = "1.0f";
  if (a.rows.operand >= 0) {
    const ElementAccess& at = a.softmax.operands[static_cast<std::size_t>(a.rows.operand)];
    const auto size = static_cast<std::int64_t>(ir::size_of(at.dtype));
    const auto stride = [&](std::size_t d) { return d < a.rank ? at.strides[d] * size : 0; };
    out.text = fmt::format("  float one[1];\n  {}(one, factors + (octavo_offset)row * {});\n", load_function(at.dtype),
                           stride(a.rank - 2));
    out.parameters = ", const unsigned char* factors", out.names = ", factors", value = "one[0]";
    out.places =
        fmt::format("  factors += outer * {} + inner * {};\n", numbers.put({stride(a.batch[0]), open_stride(a, at, 0)}, "ll"),
                    numbers.put({stride(a.batch[1]), open_stride(a, at, 1)}, "ll"));
    out.arguments.push_back({Argument::Kind::buffer, at.buffer, at.offset});
  }
  out.text = fmt::format("OCTAVO_DEVICE float octavo_row_factor(int row{}) {{\n  (void)row;\n{}  return {};\n}}\n", out.parameters,
                         out.text, value);
  return out;
}

/// For each tile of queries the first tile of keys of which some key counts for some query, and the one behind the last.
std::vector<std::array<std::int32_t, 2>> spans_of(const HalvesShape& a, const HalvesTile& t) {
  const std::int64_t tiles = parts(a.keys, t.keys), row = a.mask->at.strides[a.rank - 2], key = a.mask->at.strides[a.rank - 1];
  std::vector<std::array<std::int32_t, 2>> out(static_cast<std::size_t>(parts(a.queries, t.queries)),
                                               {static_cast<std::int32_t>(tiles), 0});
  const auto size = static_cast<std::int64_t>(ir::size_of(a.mask->at.dtype));
  const std::byte* const from = a.mask->data.bytes().data() + a.mask->at.offset;
  const bool known = a.mask->data.bytes().size() >=
                     static_cast<std::size_t>(a.mask->at.offset + ((a.queries - 1) * row + (a.keys - 1) * key + 1) * size);
  const auto counts = [&](std::int64_t q, std::int64_t k) {
    const std::byte* const p = from + (q * row + k * key) * size;
    std::uint32_t word = 0;
    std::uint16_t half = 0;
    if (a.mask->at.dtype == DType::f32) {
      std::memcpy(&word, p, 4);
      return word != 0xff800000U;
    }
    std::memcpy(&half, p, 2);
    return half != (a.mask->at.dtype == DType::f16 ? 0xfc00U : 0xff80U);
  };
  for (std::int64_t q = 0; q < a.queries; ++q) {
    auto& [first, end] = out[static_cast<std::size_t>(q / t.queries)];
    for (std::int64_t k = 0; k < a.keys; ++k) {
      const auto tile = static_cast<std::int32_t>(k / t.keys);
      if ((tile >= first && tile < end) || (known && !counts(q, k))) continue;
      first = std::min(first, tile), end = std::max(end, tile + 1);
    }
  }
  return out;
}

EpilogueShape epilogue_shape(const HalvesShape& a, const HalvesTile& t) {
  EpilogueShape e;
  e.rows = t.queries / t.warps / 8, e.run = kRun;
  e.piece = piece_for(a.product, e.run);
  e.padded_channels = up(a.columns, 16);
  e.threads = 32 * t.warps, e.real = true;
  return e;
}

class AttentionHalves final : public FamilyOf<HalvesShape, HalvesTile> {
 public:
  AttentionHalves(std::string_view name, DType type) : name_(name), type_(type) {}
  std::string_view name() const override { return name_; }
  bool about(const region::Region& r) const override {
    return is_attention(r) && product_of_halves(r) && r.stages[0].anchor.inputs[0].dtype == type_;
  }
  Result<HalvesShape> match(const region::Region& r, const region::Plan& plan, const Target& target) const override {
    if (type_ == DType::bf16) {
      if (auto why = why_no_wide_products(target); !why.empty()) return refuse(std::move(why));
    }
    OCTAVO_TRY(HalvesShape a, halves_shape(r, plan, type_));
    const HalvesTile least{16, 1, 16};
    if (auto why = why_not_tile(a, least, target); !why.empty()) return refuse(std::move(why));
    if (auto why = emit_epilogue(a.product, epilogue_shape(a, least), 0).refusal; !why.empty()) return refuse(std::move(why));
    return a;
  }
  std::vector<Choice<HalvesTile>> tactics(const HalvesShape& a, const Target& target) const override {
    std::vector<Choice<HalvesTile>> out;
    std::vector<std::pair<int, int>> blocks{{64, 4}, {128, 8}, {128, 4}, {64, 2}, {32, 2}, {32, 1}, {16, 1}};
    const auto all = static_cast<int>(std::min<std::int64_t>(parts(a.queries, 32), 9));  // warps that have all queries of a matrix
    if (all > 4 && all < 8) blocks.emplace_back(32 * all, all);
    for (const auto& [queries, warps] : blocks) {
      if (queries > 16 && queries >= 2 * a.queries) continue;
      for (const int keys : {64, 32, 128, 16}) {
        if (keys > 16 && keys >= 2 * a.keys) continue;
        const HalvesTile t{queries, warps, keys};
        if (why_not_tile(a, t, target).empty()) out.push_back({t, seconds_of(a, t, target)});
      }
    }
    put_in_order(out, [](const HalvesTile& t) { return std::pair{t.queries, t.warps}; });
    return out;
  }
  Result<KernelText> emit(const HalvesShape& a, const HalvesTile& t, const Target& target) const override {
    if (auto why = why_not_tile(a, t, target); !why.empty()) return refuse(std::move(why));
    const Sizes z = sizes_of(a, t);
    const EpilogueShape shape = epilogue_shape(a, t);
    const EmittedEpilogue e = emit_epilogue(a.product, shape, shape.padded_channels * 4);
    if (!e.refusal.empty()) return refuse(e.refusal);
    OpenNumbers numbers;
    const PairText scores = pair_text(a, numbers);
    const PairText rows = row_text(a, numbers);
    ir::Tensor constants = constants_with_start({}, e, shape.padded_channels);
    const std::int64_t spans_at = a.mask ? up(static_cast<std::int64_t>(constants.bytes().size()), 16) : 0;
    if (a.mask) {
      const auto spans = spans_of(a, t);
      ir::Tensor more(DType::u8, {spans_at + static_cast<std::int64_t>(spans.size() * sizeof spans[0])});
      std::memcpy(more.mutable_bytes().data(), constants.bytes().data(), constants.bytes().size());
      std::memcpy(more.mutable_bytes().data() + spans_at, spans.data(), spans.size() * sizeof spans[0]);
      constants = std::move(more);
    }
    const std::string_view type = ir::name_of(type_);

    KernelText out;
    out.text = fmt::format("typedef {} octavo_offset;\n#define OCTAVO_PRODUCT octavo_mma_{}\n#define OCTAVO_PAIR octavo_{}_pair\n",
                           a.wide_offsets() ? "long long" : "int", type, type);
    if (a.open) {
      numbers.name("kM", a.queries), numbers.name("kKeys", a.keys);
      numbers.name("kTiles", parts(a.queries, t.queries)), numbers.name("kKeyTiles", parts(a.keys, t.keys));
      for (const auto& [name, lines] : {std::pair{"Query", &a.left}, {"Key", &a.right}, {"Value", &a.last}}) {
        numbers.name(fmt::format("k{}Outer", name), lines->outer, "long long");
        numbers.name(fmt::format("k{}Inner", name), lines->inner, "long long");
      }
    } else {
      out.text += declare({{"kM", a.queries}, {"kKeys", a.keys}});
    }
    out.text += declare({{"kFeatures", a.features},
                         {"kColumns", a.columns},
                         {"kInner", a.inner},
                         {"kTileM", t.queries},
                         {"kTileN", t.keys},
                         {"kWarps", t.warps},
                         {"kSpansAt", spans_at},
                         {"kBlocksPerProcessor", blocks_at_once(z, t, target)}});
    if (!a.open)
      out.text += fmt::format(
          "constexpr long long kQueryOuter = {}, kQueryInner = {}, kKeyOuter = {}, kKeyInner = {}, kValueOuter = {}, kValueInner = "
          "{};\n",
          a.left.outer, a.left.inner, a.right.outer, a.right.inner, a.last.outer, a.last.inner);
    out.text += fmt::format(
        "constexpr octavo_offset kQueryLine = {}, kKeyLine = {}, kValueLine = {};\n"
        "constexpr bool kKeysTurned = {}, kValuesTurned = {}, kHeld = {}, kNanIsZero = {};\n"
        "constexpr float kScale = {}, kFactor = {};\n",
        a.left.line, a.right.line, a.last.line, a.right.turned, a.last.turned, z.held, a.rows.nan_is_zero,
        float_constant(static_cast<double>(a.scaled ? a.scaled->factor : 1.0F) * std::numbers::log2e),
        float_constant(a.rows.factor));
    std::string text = text_for(kText, a.open);
    replace_mark(
        text, "@PARAMETERS@",
        "const unsigned char* queries, const unsigned char* keys, const unsigned char* values, const unsigned char* constants" +
            scores.parameters + rows.parameters + e.parameters + numbers.parameters());
    replace_mark(text, "@SCORE_PARAMETERS@", scores.parameters);
    replace_mark(text, "@PLACES@", scores.places + rows.places);
    replace_mark(text, "@ROW_OPERANDS@", rows.names);
    replace_mark(text, "@POINTERS@", e.pointers);
    for (int k = 0; k < 3; ++k) replace_mark(text, fmt::format("@SCORE_OPERANDS{}@", k), scores.names);
    out.text += std::string(elements_functions()) + scores.text + rows.text + e.text + text;

    Launch launch = launch_of("octavo_attention", z.blocks, 32 * t.warps, z.shared);
    for (const region::TensorRef* side : {&a.q, &a.k, &a.v})
      launch.arguments.push_back({Argument::Kind::buffer, side->buffer, side->offset});
    launch.arguments.push_back({Argument::Kind::constant, 0, 0});
    for (const auto* more : {&scores.arguments, &rows.arguments, &e.arguments})
      launch.arguments.insert(launch.arguments.end(), more->begin(), more->end());
    numbers.add_to(launch);
    out.launches.push_back(std::move(launch));
    out.constants.push_back(std::move(constants));
    return out;
  }

 private:
  /// Six digits would not do.
  static std::string float_constant(double v) { return fmt::format("{:.9e}f", static_cast<float>(v)); }

  std::string_view name_;
  DType type_;
};

}  // namespace

OCTAVO_DEFINE_FAMILY(attention_f16, AttentionHalves, "attention.f16.mma", DType::f16)
OCTAVO_DEFINE_FAMILY(attention_bf16, AttentionHalves, "attention.bf16.mma", DType::bf16)

}  // namespace octavo::cuda
