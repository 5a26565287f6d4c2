#include "cuda/text/near.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <variant>
#include <vector>

#include "cuda/text/emit_cuda.h"
#include "cuda/text/near_gelu.h"

namespace octavo::cuda {
namespace {

using program::Function;
using program::Op;
using program::Program;

constexpr std::string_view kGelu = OCTAVO_NEAR_GELU("octavo_near_gelu", "a");
constexpr std::string_view kSilu = R"cuda(OCTAVO_DEVICE float octavo_near_silu(float x) {
  const float a = fminf(fmaxf(x, -80.0f), 1e6f);  // so that no inverse is zero
  return __fmul_rn(a, octavo_inverse(__fadd_rn(octavo_exp2(__fmul_rn(a, -1.44269502f)), 1.0f)));
}
)cuda";

bool is_gelu(Function f) {
  return f == Function::gelu || f == Function::gelu_of_erf;
}

/// The distance from the middle between two integers, in codes, within which both ways may round differently.
float doubtful(const Rounded& r) {
  const double codes = std::max(std::abs(r.first), r.last) + 1.0;
  return static_cast<float>(NearCodes::kWorst * std::max(1.0, codes * static_cast<double>(r.step)) / static_cast<double>(r.step) +
                            codes * 0x1p-21);
}

}  // namespace

std::optional<Rounded> rounded_by(const program::RequantizeSpan& span) {
  Rounded r;
  bool divides = false;
  for (const program::Step& s : span.steps) {
    if (s.op == Op::sel_lt || (s.op == Op::div && divides)) return std::nullopt;
    if (s.op == Op::div) divides = true, r.step = s.constant;
  }
  const auto code = [&](float y) {
    for (const program::Step& s : span.steps) y = s(y);
    return y;
  };
  const float first = code(-3e38F), last = code(3e38F);
  if (!(first >= -2048 && last <= 2048 && first <= last)) return std::nullopt;
  r.first = program::to_int32(first), r.last = program::to_int32(last), r.zero = span.zero;
  return r;
}

std::optional<NearCodes> near_codes(const Program& p) {
  if (p.outputs.size() != 1 || !ir::is_int8(p.outputs[0].type)) return std::nullopt;
  for (const program::Span& last : p.spans) {
    const auto* requantize = std::get_if<program::RequantizeSpan>(&last);
    if (requantize == nullptr || requantize->result != p.outputs[0].value) continue;
    for (const program::Span& s : p.spans) {
      const auto* f = std::get_if<program::FunctionSpan>(&s);
      if (f == nullptr || f->result != requantize->x || (!is_gelu(f->function) && f->function != Function::silu)) continue;
      const auto rounded = rounded_by(*requantize);
      // Where approximations of SiLU stop to grow, at 1e6, all codes are reached.
      if (!rounded || !(rounded->step >= 1e-5F && rounded->step <= 100) || !(doubtful(*rounded) < 0.02F)) return std::nullopt;
      NearCodes out{p, {}, f->function, *rounded};
      out.front.outputs = {{f->x, ir::DType::f32}};
      out.front = program::simplify(out.front);
      Program& b = out.back;
      const int x = b.push(Op::acc_f);
      b.outputs = {{program::expand(b, last, program::expand(b, s, x)), p.outputs[0].type}};
      b = program::simplify(b);
      return out;
    }
  }
  return std::nullopt;
}

std::string near_text(Function f) {
  return std::string(is_gelu(f) ? kGelu : kSilu);
}

std::string near_function(const NearCodes& codes, const Program& front, std::string_view name, int count) {
  const bool real = program::uses(front, Op::acc_f);
  std::vector<char> kinds(static_cast<std::size_t>(front.operand_count), 0);
  for (const program::Instr& i : front.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) kinds[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
  }
  std::string parameters, names;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k] == 0) continue;
    parameters += fmt::format(", const {} (&x{})[{}]", kinds[k] == 'i' ? "int" : "float", k, count);
    names += fmt::format(", x{}[j]", k);
  }
  const Rounded& r = codes.rounded;
  const double inverse = 1 / static_cast<double>(r.step);
  return near_text(codes.function) + emit_function(front, fmt::format("{}_front", name)) +
         emit_function(codes.back, fmt::format("{}_back", name)) +
         fmt::format(
             R"cuda(OCTAVO_DEVICE void {0}(const {1} (&acc)[{2}]{3}, int (&r0)[{2}]) {{
  constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23: floats around it are the integers
  float x[{2}], beyond[{2}];
  bool plain = true;
  OCTAVO_UNROLL
  for (int j = 0; j < {2}; ++j) {{
    {0}_front(acc[j]{4}, x[j]);
    const float y = octavo_near_{5}(x[j]), rounded = __fmaf_rn(y, {6:a}f, kIntegers);
    beyond[j] = __fmaf_rn(y, {6:a}f, -__fsub_rn(rounded, kIntegers));
    plain = plain && fabsf(beyond[j]) < {7:a}f;  // false of NaN
    r0[j] = (int)((unsigned)__float_as_int(rounded) - {8}u);
    {9}
  }}
  if (plain) return;
  OCTAVO_NO_UNROLL
  for (int turn = 0; turn < {2}; ++turn) {{  // registers take turns, so that the text is there once
    const float v = x[0], far = beyond[0];
    int code = r0[0];
    if (!(fabsf(far) < {7:a}f)) {0}_back(v, code);
    OCTAVO_UNROLL
    for (int j = 0; j + 1 < {2}; ++j) x[j] = x[j + 1], beyond[j] = beyond[j + 1], r0[j] = r0[j + 1];
    r0[{2} - 1] = code;
  }}
}}
)cuda",
             name, real ? "float" : "int", count, parameters, names, is_gelu(codes.function) ? "gelu" : "silu",
             static_cast<float>(inverse), 0.5F - doubtful(r), static_cast<std::uint32_t>(0x4b400000 - r.zero),
             [&] {  // the store bounds bytes; others are bounded here
               std::string bounds;
               const ir::DType type = codes.back.outputs[0].type;
               const std::int32_t lo = type == ir::DType::u8 ? 0 : -128;
               if (r.first + r.zero > lo) bounds += fmt::format("r0[j] = r0[j] > {0} ? r0[j] : {0};", r.first + r.zero);
               if (r.last + r.zero < lo + 255) bounds += fmt::format(" r0[j] = r0[j] < {0} ? r0[j] : {0};", r.last + r.zero);
               return bounds;
             }());
}

}  // namespace octavo::cuda
