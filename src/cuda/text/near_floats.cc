#include "cuda/text/near_floats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <variant>
#include <vector>

#include "cuda/text/emit_cuda.h"
#include "cuda/text/near_gelu.h"

namespace octavo::cuda {
namespace {

using program::Function;
using program::Instr;
using program::Op;
using program::Program;

constexpr std::string_view kGelu = OCTAVO_NEAR_GELU("octavo_near_float_gelu", "fabsf(fminf(x, 1e4f))");
// The formula of erfc in near_gelu.h.
constexpr std::string_view kErf = R"cuda(OCTAVO_DEVICE float octavo_near_float_erf(float x) {
  const float a = fabsf(x), t = octavo_inverse(__fmaf_rn(a, 0.327591091f, 1.0f));
  float p = __fmaf_rn(t, 1.06140542f, -1.45315206f);
  p = __fmaf_rn(t, p, 1.42141378f);
  p = __fmaf_rn(t, p, -0.284496725f);
  p = __fmul_rn(t, __fmaf_rn(t, p, 0.254829586f));
  const float y = __fmaf_rn(-p, octavo_exp2(__fmul_rn(__fmul_rn(x, x), -1.44269502f)), 1.0f);
  return __int_as_float(__float_as_int(y) | (__float_as_int(x) & (int)0x80000000u));
}
)cuda";
constexpr std::string_view kSilu = R"cuda(OCTAVO_DEVICE float octavo_near_float_silu(float x) {
  return __fmul_rn(x, octavo_inverse(__fadd_rn(octavo_exp2(__fmul_rn(x, -1.44269502f)), 1.0f)));
}
)cuda";
// x/2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr std::string_view kGeluTanh = R"cuda(OCTAVO_DEVICE float octavo_near_float_gelu_tanh(float x) {
  const float u = __fmul_rn(x, __fmaf_rn(__fmul_rn(x, x), -0.102943234f, -2.30220819f));
  return __fmul_rn(x, octavo_inverse(__fadd_rn(octavo_exp2(u), 1.0f)));
}
)cuda";

struct Form {
  Function function;
  NearText text;
  int instructions;
};
/// In order of preference: erf is part of a GELU.
constexpr std::array<Form, 5> kForms{{{Function::gelu, {"octavo_near_float_gelu", kGelu}, 15},
                                      {Function::gelu_of_erf, {"octavo_near_float_gelu", kGelu}, 15},
                                      {Function::gelu_tanh, {"octavo_near_float_gelu_tanh", kGeluTanh}, 9},
                                      {Function::silu, {"octavo_near_float_silu", kSilu}, 6},
                                      {Function::erf, {"octavo_near_float_erf", kErf}, 16}}};

const Form& form_of(Function f) {
  return *std::find_if(kForms.begin(), kForms.end(), [&](const Form& form) { return form.function == f; });
}

/// Quotients by constants as products with their inverses, which are one rounding further from the exact quotient.
Program with_products(const Program& p) {
  constexpr float kLeast = 0x1p-100F, kMost = 0x1p+100F;
  Program out = p;
  out.code.clear(), out.spans.clear();
  std::vector<int> at;  // where each value is in `out`, in which inverses are written in front of what reads them
  for (Instr in : p.code) {
    const float c = in.op == Op::div && p.code[static_cast<std::size_t>(in.args[1])].op == Op::imm_f
                        ? std::bit_cast<float>(p.code[static_cast<std::size_t>(in.args[1])].imm)
                        : 0;
    for (int& a : in.args) a = a < 0 ? a : at[static_cast<std::size_t>(a)];
    if (std::fabs(c) >= kLeast && std::fabs(c) <= kMost) in.op = Op::mul, in.args[1] = out.imm_f(1 / c);
    at.push_back(static_cast<int>(out.code.size()));
    out.code.push_back(in);
  }
  for (program::Output& o : out.outputs) o.value = at[static_cast<std::size_t>(o.value)];
  return program::simplify(out);
}

/// By operand: how it is loaded, 0 where it is not.
std::vector<char> kinds_of(const Program& p) {
  std::vector<char> kinds(static_cast<std::size_t>(p.operand_count), 0);
  for (const Instr& i : p.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) kinds[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
  }
  return kinds;
}

}  // namespace

NearText near_floats_text(Function f) {
  return form_of(f).text;
}

std::optional<NearFloats> near_floats(const Program& p) {
  const auto is_16_bit = [](const program::Output& o) { return o.type == ir::DType::f16 || o.type == ir::DType::bf16; };
  if (p.outputs.empty() || !std::all_of(p.outputs.begin(), p.outputs.end(), is_16_bit)) return std::nullopt;
  for (const Form& form : kForms) {
    for (const program::Span& s : p.spans) {
      const auto* f = std::get_if<program::FunctionSpan>(&s);
      if (f == nullptr || f->function != form.function) continue;
      NearFloats out{p, p, f->function};
      out.front.outputs = {{f->x, ir::DType::f32}};
      Instr& result = out.back.code[static_cast<std::size_t>(f->result)];
      result = Instr{};
      result.op = Op::load_f, result.imm = p.operand_count;
      ++out.back.operand_count;
      for (Program* part : {&out.front, &out.back}) *part = with_products(*part);
      return out;
    }
  }
  return std::nullopt;
}

std::string near_floats_function(const NearFloats& near, const Program& p, std::string_view name) {
  const std::vector<char> kinds = kinds_of(p), front = kinds_of(near.front), back = kinds_of(near.back);
  std::string parameters = "float acc", to_front, to_back, results;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k] == 0) continue;
    parameters += fmt::format(", {} x{}", kinds[k] == 'i' ? "int" : "float", k);
    if (front[k] != 0) to_front += fmt::format(", x{}", k);
    if (back[k] != 0) to_back += fmt::format(", x{}", k);
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j) {
    parameters += fmt::format(", float& r{}", j);
    results += fmt::format(", r{}", j);
  }
  const auto acc = [](const Program& part) { return program::uses(part, Op::acc_f) ? "acc" : "0"; };
  const NearText text = near_floats_text(near.function);
  return std::string(text.text) + emit_function(near.front, fmt::format("{}_front", name)) +
         emit_function(near.back, fmt::format("{}_back", name)) +
         fmt::format("OCTAVO_DEVICE void {0}({1}) {{\n  float x;\n  {0}_front({2}{3}, x);\n  {0}_back({4}{5}, {6}(x){7});\n}}\n",
                     name, parameters, acc(near.front), to_front, acc(near.back), to_back, text.name, results);
}

int near_floats_instructions(const NearFloats& near) {
  int count = form_of(near.function).instructions;
  for (const Program* part : {&near.front, &near.back}) {
    for (const Instr& i : part->code) {
      if (i.op != Op::imm_f && i.op != Op::imm_i && i.op != Op::acc_f) count += i.op == Op::div ? 12 : 1;
    }
  }
  return count;
}

}  // namespace octavo::cuda
