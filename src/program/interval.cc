#include "program/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace octavo::program {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Interval kAnyInt{-2147483648.0, 2147483647.0, false};
constexpr Interval kAnyFloat{-kInf, kInf, true};

/// An int32 result: "any" if the exact bounds leave int32, where the operation wraps.
Interval wrapped(double lo, double hi) {
  return lo >= kAnyInt.lo && hi <= kAnyInt.hi ? Interval{lo, hi, false} : kAnyInt;
}

Interval joined(const Interval& a, const Interval& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

Interval product(const Interval& a, const Interval& b) {
  const auto [lo, hi] = std::minmax({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi});
  return wrapped(lo, hi);
}

/// Applies a monotone float function to both bounds.
template <class F>
Interval monotone(const Interval& a, F f) {
  return {static_cast<double>(f(static_cast<float>(a.lo))), static_cast<double>(f(static_cast<float>(a.hi))), a.nan};
}

Interval bounds_of(const Program& p, const Instr& instr, const std::vector<Interval>& known,
                   const std::vector<bool>& operand_is_u8) {
  const auto arg = [&](int k) -> const Interval& {
    return known[static_cast<std::size_t>(instr.args[static_cast<std::size_t>(k)])];
  };
  switch (instr.op) {
    case Op::acc_i:
    case Op::load_i: {  // the accumulator is described after the operands
      const auto k = static_cast<std::size_t>(instr.op == Op::acc_i ? p.operand_count : instr.imm);
      return k < operand_is_u8.size() && operand_is_u8[k] ? Interval{0, 255, false} : kAnyInt;
    }
    case Op::imm_i: return {static_cast<double>(instr.imm), static_cast<double>(instr.imm), false};
    case Op::imm_f: {
      const auto v = std::bit_cast<float>(instr.imm);
      return std::isnan(v) ? kAnyFloat : Interval{v, v, false};
    }
    case Op::i2f: return monotone(arg(0), [](float v) { return v; });  // the bounds round as the value does
    case Op::f2i: {
      const Interval& a = arg(0);
      if (a.nan || a.lo < -2147483648.0 || a.hi >= 2147483648.0) return kAnyInt;
      return wrapped(to_int32(static_cast<float>(a.lo)), to_int32(static_cast<float>(a.hi)));
    }
    case Op::round: return monotone(arg(0), [](float v) { return std::nearbyint(v); });
    case Op::floor: return monotone(arg(0), [](float v) { return std::floor(v); });
    case Op::ceil: return monotone(arg(0), [](float v) { return std::ceil(v); });
    case Op::nan0: {
      const Interval& a = arg(0);
      return a.nan ? Interval{std::min(a.lo, 0.0), std::max(a.hi, 0.0), false} : a;
    }
    case Op::max: {  // a > b ? a : b
      const Interval &a = arg(0), &b = arg(1);
      Interval r{std::max(a.lo, b.lo), std::max(a.hi, b.hi), b.nan};
      if (a.nan) r.lo = std::min(r.lo, b.lo);  // a NaN selects b
      if (b.nan && a.lo < r.lo) r.lo = a.lo;
      return r;
    }
    case Op::min: {
      const Interval &a = arg(0), &b = arg(1);
      Interval r{std::min(a.lo, b.lo), std::min(a.hi, b.hi), b.nan};
      if (a.nan) r.hi = std::max(r.hi, b.hi);
      if (b.nan && a.hi > r.hi) r.hi = a.hi;
      return r;
    }
    case Op::sel_lt:
    case Op::sel_eq: return joined(arg(2), arg(3));
    case Op::add_i: return wrapped(arg(0).lo + arg(1).lo, arg(0).hi + arg(1).hi);
    case Op::sub_i: return wrapped(arg(0).lo - arg(1).hi, arg(0).hi - arg(1).lo);
    case Op::mul_i: return product(arg(0), arg(1));
    case Op::max_i: return {std::max(arg(0).lo, arg(1).lo), std::max(arg(0).hi, arg(1).hi), false};
    case Op::min_i: return {std::min(arg(0).lo, arg(1).lo), std::min(arg(0).hi, arg(1).hi), false};
    case Op::and_i: {  // with a non-negative operand the result is between 0 and it
      const double hi = std::min(arg(0).lo >= 0 ? arg(0).hi : kAnyInt.hi, arg(1).lo >= 0 ? arg(1).hi : kAnyInt.hi);
      return arg(0).lo >= 0 || arg(1).lo >= 0 ? Interval{0, hi, false} : kAnyInt;
    }
    case Op::shl_i: return wrapped(std::ldexp(arg(0).lo, instr.imm), std::ldexp(arg(0).hi, instr.imm));
    case Op::sra_i: return {std::floor(std::ldexp(arg(0).lo, -instr.imm)), std::floor(std::ldexp(arg(0).hi, -instr.imm)), false};
    case Op::table: {
      const Table& t = p.tables[static_cast<std::size_t>(instr.imm)];
      const auto [lo, hi] = std::minmax_element(t.begin(), t.end());
      return {static_cast<double>(*lo), static_cast<double>(*hi), false};
    }
    default: return info(instr.op).result == 'i' ? kAnyInt : kAnyFloat;
  }
}

}  // namespace

std::vector<Interval> find_intervals(const Program& p, const std::vector<bool>& operand_is_u8) {
  std::vector<Interval> known;
  known.reserve(p.code.size());
  for (const Instr& instr : p.code) known.push_back(bounds_of(p, instr, known, operand_is_u8));
  return known;
}

}  // namespace octavo::program
