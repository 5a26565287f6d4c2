// Our named transcendental functions, written once over an abstract scalar: evaluated on floats by the reference, and emitted as
// program operations by the planner. Same operations in the same order, so the same bits everywhere.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ir/facts.h"
#include "program/program.h"

namespace octavo::program {

/// Plain floats: each member is exactly the program operation of the same name. at_least and at_most (x not below, above a bound) and larger and
/// smaller (of two values) are what ONNX's Relu, Clip, Max and Min do: of a NaN they give NaN.
struct FloatOps {
  using F = float;
  using I = std::int32_t;
  static F imm(float v) { return v; }
  static I imm_i(std::int32_t v) { return v; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return std::fma(a, b, c); }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F at_least(F x, F bound) { return bound > x ? bound : x; }
  static F at_most(F x, F bound) { return bound < x ? bound : x; }
  static F larger(F a, F b) { return a == a ? max(a, b) : a; }
  static F smaller(F a, F b) { return a == a ? min(a, b) : a; }
  static F sqrt(F a) { return std::sqrt(a); }
  static F round(F a) { return std::nearbyint(a); }
  static F floor(F a) { return std::floor(a); }
  static F ceil(F a) { return std::ceil(a); }
  static F sel_lt(F a, F b, F c, F d) { return a < b ? c : d; }
  static F sel_eq(F a, F b, F c, F d) { return a == b ? c : d; }
  static I f2i(F a) { return static_cast<I>(std::nearbyint(a)); }
  static F i2f(I a) { return static_cast<F>(a); }
  static F bits_f(I a) { return std::bit_cast<F>(a); }
  static I bits_i(F a) { return std::bit_cast<I>(a); }
  static I add_i(I a, I b) { return static_cast<I>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b)); }
  static I sub_i(I a, I b) { return static_cast<I>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b)); }
  static I and_i(I a, I b) { return a & b; }
  static I or_i(I a, I b) { return a | b; }
  static I shl_i(I a, int n) { return static_cast<I>(static_cast<std::uint32_t>(a) << n); }
  static I sra_i(I a, int n) { return a >> n; }
};

/// The same interface, appending to a program; F and I are value indices.
struct ProgramOps {
  using F = int;
  using I = int;
  Program& p;
  /// The arguments of the next at_least, at_most, larger, smaller are no NaN; nor -0, which a bound of 0 second would turn into 0. max and min then have
  /// the constant second, which is the order that the patterns of quantized layers have.
  bool nan_free = false, no_minus_zero = false;
  F imm(float v) { return p.imm_f(v); }
  I imm_i(std::int32_t v) { return p.imm_i(v); }
  F add(F a, F b) { return p.push(Op::add, a, b); }
  F sub(F a, F b) { return p.push(Op::sub, a, b); }
  F mul(F a, F b) { return p.push(Op::mul, a, b); }
  F div(F a, F b) { return p.push(Op::div, a, b); }
  F fma(F a, F b, F c) { return p.push(Op::fma, a, b, c); }
  F max(F a, F b) { return p.push(Op::max, a, b); }
  F min(F a, F b) { return p.push(Op::min, a, b); }
  F at_least(F x, F bound) { return second(bound) ? max(x, bound) : max(bound, x); }
  F at_most(F x, F bound) { return second(bound) ? min(x, bound) : min(bound, x); }
  F larger(F a, F b) { return propagates(Op::max, a, b); }
  F smaller(F a, F b) { return propagates(Op::min, a, b); }
  F sqrt(F a) { return p.push(Op::sqrt, a); }
  F round(F a) { return p.push(Op::round, a); }
  F floor(F a) { return p.push(Op::floor, a); }
  F ceil(F a) { return p.push(Op::ceil, a); }
  F sel_lt(F a, F b, F c, F d) { return p.push(Op::sel_lt, a, b, c, d); }
  F sel_eq(F a, F b, F c, F d) { return p.push(Op::sel_eq, a, b, c, d); }
  I f2i(F a) { return p.push(Op::f2i, a); }
  F i2f(I a) { return p.push(Op::i2f, a); }
  F bits_f(I a) { return p.push(Op::bits_f, a); }
  I bits_i(F a) { return p.push(Op::bits_i, a); }
  I add_i(I a, I b) { return p.push(Op::add_i, a, b); }
  I sub_i(I a, I b) { return p.push(Op::sub_i, a, b); }
  I and_i(I a, I b) { return p.push(Op::and_i, a, b); }
  I or_i(I a, I b) { return p.push(Op::or_i, a, b); }
  I shl_i(I a, int n) { return p.push_imm(Op::shl_i, n, a); }
  I sra_i(I a, int n) { return p.push_imm(Op::sra_i, n, a); }

 private:
  [[nodiscard]] bool second(F bound) const {
    const Instr& i = p.code[static_cast<std::size_t>(bound)];
    return nan_free && (no_minus_zero || (i.op == Op::imm_f && std::bit_cast<float>(i.imm) != 0));
  }
  /// max and min give their second operand when either is NaN: only a first one that may be NaN needs a selection.
  F propagates(Op op, F a, F b) {
    const auto number = [this](F v, bool zero_too) {
      const Instr& i = p.code[static_cast<std::size_t>(v)];
      const float value = std::bit_cast<float>(i.imm);
      return i.op == Op::imm_f && value == value && (zero_too || value != 0);
    };
    if (nan_free || number(a, true)) return p.push(op, a, b);
    if (number(b, false)) return p.push(op, b, a);  // of 0 and -0 the second is given
    return p.push(Op::sel_eq, a, a, p.push(op, a, b), a);
  }
};

// Functions are in math.inc: exp, log, sigmoid, tanh, erf, gelu, mish, softplus, hard_sigmoid, hard_swish, ... Each:
//   template <class M> typename M::F exp(M& m, typename M::F x);
// and one generic entry used by both sides, so a unary IR op has one definition:
//   template <class M> typename M::F unary(M& m, ir::Op op, const ir::Facts& facts, typename M::F x);   (every unary pointwise
//   float op) template <class M> typename M::F binary(M& m, ir::Op op, typename M::F a, typename M::F b);         (add, sub, mul,
//   div, max, min, prelu, pow)

}  // namespace octavo::program

#include "program/math.inc"
