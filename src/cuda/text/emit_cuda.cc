#include "cuda/text/emit_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/text/bounds.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using program::Instr;
using program::Op;
using program::Program;

constexpr std::string_view kPrelude =
#include "cuda/text/prelude.inc"
    ;
constexpr std::string_view kTuring =
#include "cuda/text/turing.inc"
    ;

/// Quotients of operands between these magnitudes take the short way: its steps round as a division does.
constexpr double kLeastPlain = 0x1p-60, kMostPlain = 0x1p60;
constexpr std::string_view kQuotients =
#include "cuda/text/quotients.inc"
    ;

std::string_view c_type(char type) {
  return type == 'i' ? "int" : "float";
}

/// How each operand is read: 'i', 'f', or 0 when it never is.
std::vector<char> operand_kinds(const Program& p) {
  std::vector<char> kinds(static_cast<std::size_t>(p.operand_count), 0);
  for (const Instr& i : p.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) kinds[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
  }
  return kinds;
}

char result_kind(const Program& p, std::size_t output) {
  return program::info(p.code[static_cast<std::size_t>(p.outputs[output].value)].op).result;
}

/// A bound for which the GPU's own maximum (minimum) of floats is the operation: a constant second operand, no NaN, and no zero that
/// could meet the other zero. A NaN as the first operand gives the second in both.
bool plain_bound(const Program& p, const Instr& instr) {
  if (instr.op != Op::max && instr.op != Op::min) return false;
  const Instr& bound = p.code[static_cast<std::size_t>(instr.args[1])];
  if (bound.op != Op::imm_f) return false;
  const auto v = std::bit_cast<float>(bound.imm);
  if (v == 0) return instr.op == Op::max && bound.imm == 0;  // the greater of -0 and +0 is +0, as written
  return v == v;
}

/// Is operand k the constant?
bool is_constant(const Program& p, const Instr& instr, std::size_t k, float value) {
  const Instr& i = p.code[static_cast<std::size_t>(instr.args[k])];
  return i.op == Op::imm_f && std::bit_cast<float>(i.imm) == value;
}

/// The expression of an operation, with special cases that a GPU has shorter ways for: 1 / x is rounded once as well.
std::string_view expression_of(const Program& p, const Instr& instr) {
  if (instr.op == Op::div && is_constant(p, instr, 0, 1)) return "__frcp_rn($1)";
  if (instr.op == Op::mul && is_constant(p, instr, 1, -1)) return "-$0";
  if (plain_bound(p, instr)) return instr.op == Op::max ? "fmaxf($0, $1)" : "fminf($0, $1)";
  return expression(instr.op);
}

/// A constant first operand that is neither zero nor NaN, so that the result is NaN where the second one is.
bool first_is_bound(const Program& p, const Instr& instr) {
  if (instr.op != Op::max && instr.op != Op::min) return false;
  const Instr& bound = p.code[static_cast<std::size_t>(instr.args[0])];
  const auto v = std::bit_cast<float>(bound.imm);
  return bound.op == Op::imm_f && v == v && v != 0;
}

bool divides(const Program& p, const Instr& instr) {
  return instr.op == Op::div && !is_constant(p, instr, 0, 1);
}

/// Is zero a usual value? A sum of an accumulator and something else seldom is.
bool often_zero(const Program& p, int value) {
  const Instr& in = p.code[static_cast<std::size_t>(value)];
  switch (in.op) {
    case Op::acc_f: return false;
    case Op::imm_f: return std::bit_cast<float>(in.imm) == 0;
    case Op::add:
    case Op::sub: return often_zero(p, in.args[0]) && often_zero(p, in.args[1]);
    case Op::fma: return (often_zero(p, in.args[0]) || often_zero(p, in.args[1])) && often_zero(p, in.args[2]);
    case Op::mul:
    case Op::max:
    case Op::min: return often_zero(p, in.args[0]) || often_zero(p, in.args[1]);
    case Op::div:
    case Op::to_f16:
    case Op::to_bf16: return often_zero(p, in.args[0]);
    default: return true;
  }
}

/// Fills "$0".."$3" and "$k". `names`: of values, where they are not v0, v1, ...
std::string filled(std::string_view text, const Instr& instr, std::string_view immediate,
                   const std::vector<std::string>* names = nullptr) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const char what = text[++i];
    if (what == 'k') {
      out += immediate;
      continue;
    }
    const int arg = instr.args[static_cast<std::size_t>(what - '0')];
    out += names == nullptr ? fmt::format("v{}", arg) : (*names)[static_cast<std::size_t>(arg)];
  }
  return out;
}

std::string immediate_of(const Instr& instr, std::string_view name) {
  const auto bits = static_cast<std::uint32_t>(instr.imm);
  switch (instr.op) {
    case Op::imm_i: return fmt::format("(int)0x{:08x}u", bits);
    case Op::imm_f: return fmt::format("__int_as_float((int)0x{:08x}u)", bits);
    case Op::table: return fmt::format("{}_table{}", name, instr.imm);
    default: return std::to_string(instr.imm);
  }
}

std::string tables_of(const Program& p, std::string_view name) {
  std::string out;
  for (std::size_t k = 0; k < p.tables.size(); ++k) {
    out += fmt::format("OCTAVO_TABLE {}_table{}[256] = {{", name, k);
    for (std::size_t i = 0; i < p.tables[k].size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", p.tables[k][i]);
    out += "};\n";
  }
  return out;
}

}  // namespace

std::string_view expression(Op op) {
  switch (op) {
    case Op::acc_i:
    case Op::acc_f:
    case Op::load_i:
    case Op::load_f: return "";
    case Op::imm_i:
    case Op::imm_f: return "$k";
    case Op::i2f: return "__int2float_rn($0)";
    case Op::f2i: return "__float2int_rn($0)";
    case Op::bits_f: return "__int_as_float($0)";
    case Op::bits_i: return "__float_as_int($0)";
    case Op::to_f16: return "octavo_f16_value(octavo_f16_bits($0))";
    case Op::to_bf16: return "octavo_bf16_value(octavo_bf16_bits($0))";
    case Op::add: return "__fadd_rn($0, $1)";
    case Op::sub: return "__fsub_rn($0, $1)";
    case Op::mul: return "__fmul_rn($0, $1)";
    case Op::div: return "__fdiv_rn($0, $1)";
    case Op::fma: return "__fmaf_rn($0, $1, $2)";
    case Op::max: return "octavo_gt($0, $1, $0, $1)";
    case Op::min: return "octavo_lt($0, $1, $0, $1)";
    case Op::sqrt: return "__fsqrt_rn($0)";
    case Op::round: return "rintf($0)";
    case Op::floor: return "floorf($0)";
    case Op::ceil: return "ceilf($0)";
    case Op::nan0: return "octavo_eq($0, $0, $0, 0.0f)";
    case Op::sel_lt: return "octavo_lt($0, $1, $2, $3)";
    case Op::sel_eq: return "octavo_eq($0, $1, $2, $3)";
    case Op::add_i: return "(int)((unsigned)$0 + (unsigned)$1)";
    case Op::sub_i: return "(int)((unsigned)$0 - (unsigned)$1)";
    case Op::mul_i: return "(int)((unsigned)$0 * (unsigned)$1)";
    case Op::max_i: return "$0 > $1 ? $0 : $1";
    case Op::min_i: return "$0 < $1 ? $0 : $1";
    case Op::and_i: return "$0 & $1";
    case Op::or_i: return "$0 | $1";
    case Op::shl_i: return "(int)((unsigned)$0 << $k)";
    case Op::sra_i: return "$0 >> $k";
    case Op::table: return "(int)$k[$0 & 255]";
  }
  return "";
}

std::string emit_prelude() {
  return std::string(kPrelude) + std::string(kTuring);
}

std::string_view turing_functions() {
  return kTuring;
}

std::string emit_function(const Program& p, std::string_view name) {
  const char acc = program::uses(p, Op::acc_f) ? 'f' : 'i';
  const std::vector<char> kinds = operand_kinds(p);
  std::string parameters = fmt::format("{} acc", c_type(acc));
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k]) parameters += fmt::format(", {} x{}", c_type(kinds[k]), k);
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j) parameters += fmt::format(", {}& r{}", c_type(result_kind(p, j)), j);
  std::string body;
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    std::string value = filled(expression_of(p, instr), instr, immediate_of(instr, name));
    if (instr.op == Op::acc_i || instr.op == Op::acc_f) value = "acc";
    if (instr.op == Op::load_i || instr.op == Op::load_f) value = fmt::format("x{}", instr.imm);
    body += fmt::format("  const {} v{} = {};\n", c_type(program::info(instr.op).result), i, value);
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j) body += fmt::format("  r{} = v{};\n", j, p.outputs[j].value);
  return tables_of(p, name) + fmt::format("OCTAVO_DEVICE void {}({}) {{\n{}}}\n", name, parameters, body);
}

bool divides(const Program& p) {
  return std::any_of(p.code.begin(), p.code.end(), [&](const Instr& i) { return divides(p, i); });
}

std::string emit_function_of_several(const Program& p, std::string_view name, int count) {
  const char acc = program::uses(p, Op::acc_f) ? 'f' : 'i';
  const std::vector<char> kinds = operand_kinds(p);
  const std::vector<Bounds> bounds = bounds_of(p);
  std::string parameters = fmt::format("const {} (&acc)[{}]", c_type(acc), count);
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k]) parameters += fmt::format(", const {} (&x{})[{}]", c_type(kinds[k]), k, count);
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j)
    parameters += fmt::format(", {} (&r{})[{}]", c_type(result_kind(p, j)), j, count);
  std::vector<std::string> names;  // of values, as an element's operations spell them
  std::string body, loop;
  const auto finish_loop = [&] {
    if (!loop.empty()) body += fmt::format("  OCTAVO_UNROLL\n  for (int j = 0; j < {}; ++j) {{\n{}  }}\n", count, loop);
    loop.clear();
  };
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    const std::string_view type = c_type(program::info(instr.op).result);
    if (instr.op == Op::imm_i || instr.op == Op::imm_f) {
      body += fmt::format("  const {} v{} = {};\n", type, i, immediate_of(instr, name));
      names.push_back(fmt::format("v{}", i));
      continue;
    }
    names.push_back(fmt::format("v{}[j]", i));
    body += fmt::format("  {} v{}[{}];\n", type, i, count);
    if (!divides(p, instr)) {
      std::string value =
          filled(first_is_bound(p, instr) ? instr.op == Op::min ? "octavo_at_most($1, $0)" : "octavo_at_least($1, $0)"
                                          : expression_of(p, instr),
                 instr, immediate_of(instr, name), &names);
      if (instr.op == Op::acc_i || instr.op == Op::acc_f) value = "acc[j]";
      if (instr.op == Op::load_i || instr.op == Op::load_f) value = fmt::format("x{}[j]", instr.imm);
      loop += fmt::format("    v{}[j] = {};\n", i, value);
      continue;
    }
    finish_loop();
    const Bounds &a = bounds[static_cast<std::size_t>(instr.args[0])], &b = bounds[static_cast<std::size_t>(instr.args[1])];
    const bool small = a.least < kLeastPlain && a.most > -kLeastPlain, large = a.least < -kMostPlain || a.most > kMostPlain,
               any = !((b.least >= kLeastPlain && b.most <= kMostPlain) || (b.most <= -kLeastPlain && b.least >= -kMostPlain));
    std::string checks = "0";
    if (small) checks += " | kSmallDividend";
    if (small && often_zero(p, instr.args[0])) checks += " | kZeroDividend";
    if (large) checks += " | kLargeDividend";
    if (any) checks += " | kAnyDivisor";
    if (b.least < 0) checks += " | kNegativeDivisor";
    const auto array = [&](int value) {
      const Instr& in = p.code[static_cast<std::size_t>(value)];
      if (in.op != Op::imm_f) return fmt::format("v{}", value);
      body += fmt::format("  float v{0}_of_{1}[{2}];\n  OCTAVO_UNROLL\n  for (int j = 0; j < {2}; ++j) v{0}_of_{1}[j] = v{0};\n",
                          value, i, count);
      return fmt::format("v{}_of_{}", value, i);
    };
    const Instr& divisor = p.code[static_cast<std::size_t>(instr.args[1])];
    if (divisor.op == Op::imm_f && b.least > 0 && !any) {
      const float inverse = static_cast<float>(1 / static_cast<double>(std::bit_cast<float>(divisor.imm)));
      const std::string dividends = array(instr.args[0]);
      body += fmt::format("  octavo_divide_by<{}>(v{}, {}, v{}, __int_as_float((int)0x{:08x}u));\n", checks, i, dividends,
                          instr.args[1], std::bit_cast<std::uint32_t>(inverse));
    } else {
      const std::string dividends = array(instr.args[0]), divisors = array(instr.args[1]);
      body += fmt::format("  octavo_divide<{}>(v{}, {}, {});\n", checks, i, dividends, divisors);
    }
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j)
    loop += fmt::format("    r{}[j] = {};\n", j, names[static_cast<std::size_t>(p.outputs[j].value)]);
  finish_loop();
  return fmt::format("constexpr float kLeastPlain = {:a}f, kMostPlain = {:a}f;\n", kLeastPlain, kMostPlain) +
         std::string(kQuotients) + tables_of(p, name) + fmt::format("OCTAVO_DEVICE void {}({}) {{\n{}}}\n", name, parameters, body);
}

std::vector<std::string> compile_options(Architecture architecture) {
  return {fmt::format("--gpu-architecture={}", architecture.text()),
          "--std=c++17",
          "--fmad=false",
          "--ftz=false",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--diag-suppress=177"};
}

}  // namespace octavo::cuda
