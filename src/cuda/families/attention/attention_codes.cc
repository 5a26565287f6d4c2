#include "cuda/families/attention/attention_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/families/float_function.h"
#include "cuda/text/elements.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/pieces.h"
#include "cuda/text/shorten.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::string_view kSoftmax =
#include "cuda/families/attention/softmax.inc"
    ;
constexpr float kTiny = 0x1p-60F;  // as softmax.inc has it

ProductSide side_of(const AttentionShape& a, const region::TensorRef& t, std::int64_t rows, std::int64_t row, std::int64_t depth,
                    std::int64_t k) {
  ProductSide x;
  x.ref = t;
  x.rows = rows, x.row = rows == 1 ? 0 : row, x.depth = depth;
  x.outer = a.batch_strides(t)[0], x.inner = a.batch_strides(t)[1];
  x.set_zero(t.quantizer->zero_point[0]);
  choose_way(x, k, 1);
  return x;
}

/// Gives the program one result for all accumulators from 0 to `most`? Operations that never turn back, of the accumulator and numbers alone, do where they
/// give one at both ends.
bool is_constant_up_to(const program::Program& p, float most) {
  using program::Op;
  std::vector<char> follows;  // the accumulator
  for (const program::Instr& in : p.code) {
    int from = 0;
    for (const int a : in.args) from += a >= 0 && follows[static_cast<std::size_t>(a)] != 0 ? 1 : 0;
    const auto number = [&](int a) {
      return p.code[static_cast<std::size_t>(a)].op == Op::imm_f || p.code[static_cast<std::size_t>(a)].op == Op::imm_i;
    };
    const bool first = in.args[0] >= 0 && follows[static_cast<std::size_t>(in.args[0])] != 0;
    bool known = in.op == Op::acc_f || from == 0;
    switch (in.op) {
      case Op::mul:
      case Op::add:
      case Op::max:
      case Op::min:
      case Op::add_i:
      case Op::max_i:
      case Op::min_i: known = known || (from == 1 && number(in.args[first ? 1 : 0])); break;
      case Op::div:
      case Op::sub:
      case Op::sub_i: known = known || (from == 1 && first && number(in.args[1])); break;
      case Op::nan0:
      case Op::f2i:
      case Op::i2f:
      case Op::round: known = known || from == 1; break;
      case Op::load_i:
      case Op::load_f: known = false; break;
      default: break;
    }
    if (!known) return false;
    follows.push_back(in.op == Op::acc_f || from > 0 ? 1 : 0);
  }
  std::vector<program::Scalar> least(p.outputs.size()), greatest(p.outputs.size()), scratch;
  const std::vector<program::Scalar> none(static_cast<std::size_t>(p.operand_count));
  program::Scalar acc{};
  acc.f = 0;
  program::interpret(p, acc, none, least, scratch);
  acc.f = most;
  program::interpret(p, acc, none, greatest, scratch);
  return least[0].i == greatest[0].i;
}

/// program::exp from -86 to 0, where no result is subnormal and no clamp does anything: 2^n times the polynomial, n added to the exponent.
template <class M>
typename M::F near_exp(M& m, typename M::F x) {
  const auto biased = program::fma_k(m, x, program::kLog2E, program::kRoundBias);
  const auto bias = m.imm(program::kRoundBias);
  const auto n = m.sub(biased, bias);
  const auto head = program::fma_ky(m, n, -program::kLn2Hi, x);
  const auto r = program::fma_ky(m, n, -program::kLn2Lo, head);
  const auto p = program::exp_poly(m, r);
  const auto n_bits = m.bits_i(biased), exponent = m.shl_i(n_bits, 23), bits = m.bits_i(p);
  return m.bits_f(m.add_i(bits, exponent));
}

}  // namespace

/// The least power of two that is not less than v, within bounds that are powers of two.
std::int64_t pow2_from(std::int64_t v, std::int64_t least, std::int64_t most) {
  return std::clamp(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(v))), least, most);
}

Result<CodesShape> codes_shape(const region::Region& r, const region::Plan& plan) {
  OCTAVO_TRY(AttentionShape read, read_attention(r, plan));
  CodesShape a{std::move(read), {}, {}, {}, {}};
  if (!r.stages[0].anchor.integer || !r.stages[2].anchor.integer)
    return refuse("products of codes", "one or none", "both: the probabilities are codes too");
  for (const region::TensorRef* t : {&a.q, &a.k, &a.p, &a.v}) {
    if (Reasons why = why_no_codes(*t); !why.empty()) return refuse(std::move(why));
  }
  if (r.stages[0].stores[0].dtype != ir::DType::f32)
    return refuse("type of the scores", ir::name_of(r.stages[0].stores[0].dtype), "f32");
  if (a.features > 256) return refuse("features", a.features, "at most 256");
  if (a.columns > 128) return refuse("columns of the values", a.columns, "at most 128");
  const auto step = [](const region::TensorRef& t, std::size_t from_last) { return t.strides[t.dims.size() - from_last]; };
  a.left = side_of(a, a.q, a.queries, step(a.q, 2), step(a.q, 1), a.features);
  a.right = side_of(a, a.k, a.keys, step(a.k, 1), step(a.k, 2), a.features);
  a.last = side_of(a, a.v, a.columns, step(a.v, 1), step(a.v, 2), a.keys);
  a.between.set_zero(a.p.quantizer->zero_point[0]);
  return a;
}

ElementText element_text(const AttentionShape& a, const ElementProgram& s, const std::string& name, const std::string& prefix,
                         bool real, double largest, bool saturates) {
  ElementText out;
  const std::size_t rank = a.rank;
  Magnitudes magnitudes{largest, {}};
  magnitudes.operands.assign(s.operands.size(), std::numeric_limits<double>::infinity());
  const Shortened shortened = shorten(s.program, magnitudes, std::vector<char>(s.operands.size(), 0));
  out.acc_offset = shortened.acc_offset;
  const program::Program p = saturates ? without_store_clamps(shortened.program) : shortened.program;
  const std::vector<char> used = loaded(p);
  const bool sums = program::uses(p, program::Op::acc_f) || program::uses(p, program::Op::acc_i);
  std::string loads, call = sums ? "acc" : "0", parameters;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    if (used[i] == 0) continue;
    const ElementAccess& at = s.operands[i];
    const auto size = static_cast<std::int64_t>(ir::size_of(at.dtype));
    const auto stride = [&](std::size_t d) { return d < rank ? at.strides[d] * size : 0; };
    parameters += fmt::format(", const unsigned char* {}{}", prefix, i);
    out.names += fmt::format(", {}{}", prefix, i);
    loads += fmt::format(
        "  {} l{}[1] = {{0}};\n  if (inside) {}(l{}, {}{} + ((long long)outer * {}ll + (long long)inner * {}ll + (long long)row * "
        "{}ll + "
        "(long long)key * {}ll));\n",
        register_type(at.dtype), i, load_function(at.dtype), i, prefix, i, stride(a.batch[0]), stride(a.batch[1]), stride(rank - 2),
        stride(rank - 1));
    call += fmt::format(", l{}[0]", i);
    out.arguments.push_back({Argument::Kind::buffer, at.buffer, at.offset});
  }
  const bool floats = p.outputs[0].type == ir::DType::f32;
  out.parameters = parameters;
  out.text = emit_function(p, name + "_program") +
             fmt::format(
                 "OCTAVO_DEVICE {0} {1}({2} acc, int outer, int inner, int row, int key{3}) {{\n  const bool inside = row < kM && "
                 "key < kKeys;\n"
                 "  (void)inside, (void)acc, (void)outer, (void)inner;\n{4}  {0} r;\n  {1}_program({5}, r);\n  return r;\n}}\n",
                 floats ? "float" : "int", name, real ? "float" : "int", parameters, loads, call);
  return out;
}

void CodesPrograms::fill(std::string& kernel) const {
  replace_mark(
      kernel, "@PARAMETERS@",
      "const unsigned char* queries, const unsigned char* keys, const unsigned char* values, const unsigned char* constants" +
          scores.parameters + probabilities.parameters + epilogue.parameters);
  replace_mark(kernel, "@POINTERS@", epilogue.pointers);
  replace_mark(kernel, "@SCORE_OPERANDS@", scores.names);
  replace_mark(kernel, "@PROBABILITY_OPERANDS@", probabilities.names);
}

Launch CodesPrograms::launch(const CodesShape& a, std::int64_t blocks, int threads, std::int64_t shared) const {
  Launch out = launch_of("octavo_attention", blocks, threads, shared);
  for (const ProductSide* side : {&a.left, &a.right, &a.last})
    out.arguments.push_back({Argument::Kind::buffer, side->ref.buffer, side->ref.offset});
  out.arguments.push_back({Argument::Kind::constant, 0, 0});
  for (const auto* more : {&scores.arguments, &probabilities.arguments, &epilogue.arguments})
    out.arguments.insert(out.arguments.end(), more->begin(), more->end());
  return out;
}

Result<CodesPrograms> codes_programs(const CodesShape& a, const EpilogueShape& shape, bool scores_saturate) {
  CodesPrograms out;
  out.epilogue = emit_epilogue(a.product, shape, shape.padded_channels * 4);
  if (!out.epilogue.refusal.empty()) return refuse(out.epilogue.refusal);
  const double largest_sum = std::min(static_cast<double>(a.features) * a.left.largest() * a.right.largest(), 2147483648.0);
  out.scores = element_text(a, a.scores, "octavo_score", "s", false, largest_sum, scores_saturate);
  out.probabilities = element_text(a, a.softmax, "octavo_probability", "p", true, 0);
  return out;
}

std::string batch_offsets(const CodesShape& a) {
  return fmt::format(
      "constexpr long long kQueryOuter = {}, kQueryInner = {}, kKeyOuter = {}, kKeyInner = {}, kValueOuter = {}, kValueInner = "
      "{};\n",
      a.left.outer, a.left.inner, a.right.outer, a.right.inner, a.last.outer, a.last.inner);
}

std::string softmax_text(const program::Program& program) {
  return std::string(share_text()) + float_function("octavo_exp", [](auto& m, int v) { return program::exp(m, v); }) +
         float_function("octavo_near_exp", [](auto& m, int v) { return near_exp(m, v); }) +
         fmt::format("constexpr bool kTinyIsNothing = {};\n", is_constant_up_to(program, kTiny)) + std::string(kSoftmax);
}

}  // namespace octavo::cuda
