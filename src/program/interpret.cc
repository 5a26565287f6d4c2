// The oracle: one element, one operation after the other. Speed does not matter here; being obviously right does.
#include <bit>
#include <cmath>

#include "base/half.h"
#include "program/program.h"

namespace octavo::program {
namespace {

std::int32_t wrap(std::uint32_t v) {
  return static_cast<std::int32_t>(v);
}
std::uint32_t bits(std::int32_t v) {
  return static_cast<std::uint32_t>(v);
}

}  // namespace

std::int32_t to_int32(float v) {
  const float r = std::nearbyint(v);  // the default rounding mode: half to even
  return r >= -2147483648.0F && r < 2147483648.0F ? static_cast<std::int32_t>(r) : INT32_MIN;
}

Scalar evaluate_op(const Program& p, const Instr& instr, Scalar a, Scalar b, Scalar c, Scalar d) {
  Scalar r{};
  r.i = 0;
  switch (instr.op) {
    case Op::acc_i:
    case Op::acc_f:
    case Op::load_i:
    case Op::load_f: break;  // sources: the caller's
    case Op::imm_i:
    case Op::imm_f: r.i = instr.imm; break;
    case Op::i2f: r.f = static_cast<float>(a.i); break;
    case Op::f2i: r.i = to_int32(a.f); break;
    case Op::bits_f:
    case Op::bits_i: r = a; break;
    case Op::to_f16: r.f = f16_to_f32(f32_to_f16(a.f)); break;
    case Op::to_bf16: r.f = bf16_to_f32(f32_to_bf16(a.f)); break;
    case Op::add: r.f = a.f + b.f; break;
    case Op::sub: r.f = a.f - b.f; break;
    case Op::mul: r.f = a.f * b.f; break;
    case Op::div: r.f = a.f / b.f; break;
    case Op::fma: r.f = std::fma(a.f, b.f, c.f); break;
    case Op::max: r.f = a.f > b.f ? a.f : b.f; break;
    case Op::min: r.f = a.f < b.f ? a.f : b.f; break;
    case Op::sqrt: r.f = std::sqrt(a.f); break;
    case Op::round: r.f = std::nearbyint(a.f); break;
    case Op::floor: r.f = std::floor(a.f); break;
    case Op::ceil: r.f = std::ceil(a.f); break;
    case Op::nan0: r.f = std::isnan(a.f) ? 0.0F : a.f; break;
    case Op::sel_lt: r.f = a.f < b.f ? c.f : d.f; break;
    case Op::sel_eq: r.f = a.f == b.f ? c.f : d.f; break;
    case Op::add_i: r.i = wrap(bits(a.i) + bits(b.i)); break;
    case Op::sub_i: r.i = wrap(bits(a.i) - bits(b.i)); break;
    case Op::mul_i: r.i = wrap(bits(a.i) * bits(b.i)); break;
    case Op::max_i: r.i = a.i > b.i ? a.i : b.i; break;
    case Op::min_i: r.i = a.i < b.i ? a.i : b.i; break;
    case Op::and_i: r.i = a.i & b.i; break;
    case Op::or_i: r.i = a.i | b.i; break;
    case Op::shl_i: r.i = wrap(bits(a.i) << instr.imm); break;
    case Op::sra_i: r.i = a.i >> instr.imm; break;
    case Op::table: r.i = p.tables[static_cast<std::size_t>(instr.imm)][static_cast<std::size_t>(a.i & 255)]; break;
  }
  return r;
}

void interpret(const Program& p, Scalar acc, std::span<const Scalar> operands, std::span<Scalar> results,
               std::vector<Scalar>& scratch) {
  scratch.resize(p.code.size());
  const auto arg = [&scratch](int v) { return v < 0 ? Scalar{} : scratch[static_cast<std::size_t>(v)]; };
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    switch (instr.op) {
      case Op::acc_i:
      case Op::acc_f: scratch[i] = acc; break;
      case Op::load_i:
      case Op::load_f: scratch[i] = operands[static_cast<std::size_t>(instr.imm)]; break;
      default: scratch[i] = evaluate_op(p, instr, arg(instr.args[0]), arg(instr.args[1]), arg(instr.args[2]), arg(instr.args[3]));
    }
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j) results[j] = scratch[static_cast<std::size_t>(p.outputs[j].value)];
}

}  // namespace octavo::program
