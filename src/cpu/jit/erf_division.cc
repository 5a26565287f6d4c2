#include "cpu/jit/erf_division.h"

#include <array>
#include <bit>
#include <optional>

namespace octavo::cpu::jit {
namespace {

using program::Op;

// erf of program/math.inc: the coefficients of its numerator and denominator, from the constant one up.
constexpr std::array<float, 6> kNumerator{1.12837911F,    0.190685973F,    0.052789323F,
                                          0.00377964834F, 0.000285550312F, 2.05185597e-06F};
constexpr std::array<float, 6> kDenominator{1.0F, 0.502323449F, 0.11422845F, 0.0149955694F, 0.00116668281F, 3.81465798e-05F};
constexpr float kRoot = 1.41421354F, kInverse = 0.707106769F, kBeyond = 6.0F;

class Matcher {
 public:
  explicit Matcher(const Epilogue& e) : e_(e), uses_(e.code.size(), 0), user_(e.code.size(), -1) {
    for (std::size_t i = 0; i < e.code.size(); ++i) {
      for (const int a : e.code[i].args) {
        if (a >= 0) ++uses_[static_cast<std::size_t>(a)], user_[static_cast<std::size_t>(a)] = static_cast<int>(i);
      }
    }
    for (const auto& o : e.outputs) {
      if (o.value >= 0) ++uses_[static_cast<std::size_t>(o.value)];
    }
    if (e.pack.value >= 0) ++uses_[static_cast<std::size_t>(e.pack.value)];
  }

  /// Is the division `v` erf's, and 1 added to what becomes of it?
  [[nodiscard]] bool is_erf(int v) const {
    const Instr& div = at(v);
    if (!is(div, Op::div)) return false;
    const Instr& numerator = at(div.args[0]);
    if (!is(numerator, Op::mul)) return false;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const int x = numerator.args[side], u = argument(numerator.args[1 - side], kNumerator);
      if (u < 0 || u != argument(div.args[1], kDenominator)) continue;
      const Instr& square = at(u);
      if (!is(square, Op::mul) || square.args[0] != x || square.args[1] != x || clamped(x, 4.0F) < 0) continue;
      const int added = single_user(clamp_of(v, 1.0F));
      return added >= 0 && is(at(added), Op::add) && (is_number(at(added).args[0], 1.0F) || is_number(at(added).args[1], 1.0F));
    }
    return false;
  }
  /// The division by sqrt 2 that an erf whose division is `v` takes its argument from; -1: none, or others read it too.
  [[nodiscard]] int divided_argument(int v) const {
    const Instr& numerator = at(at(v).args[0]);
    for (const int x : {numerator.args[0], numerator.args[1]}) {
      const int inner = clamped(x, 4.0F);
      if (inner < 0 || !is(at(inner), Op::div) || !is_number(at(inner).args[1], kRoot)) continue;
      return uses_[static_cast<std::size_t>(inner)] == 1 ? inner : -1;
    }
    return -1;
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return e_.code[static_cast<std::size_t>(v)]; }
  static bool is(const Instr& in, Op op) { return in.op == op && in.special == Special::none && !in.reversed; }
  [[nodiscard]] bool is_number(int v, float f) const {
    return v >= 0 && at(v).op == Op::imm_f && at(v).block < 0 && at(v).imm == std::bit_cast<std::int32_t>(f);
  }
  [[nodiscard]] int single_user(int v) const {
    return v >= 0 && uses_[static_cast<std::size_t>(v)] == 1 ? user_[static_cast<std::size_t>(v)] : -1;
  }

  /// u of c0 + u (c1 + u (..)); -1: `v` is no such polynomial.
  [[nodiscard]] int argument(int v, const std::array<float, 6>& coefficients) const {
    int u = -1;
    for (std::size_t k = 0; k + 1 < coefficients.size(); ++k) {
      const Instr& in = at(v);
      if (!is(in, Op::fma) || !is_number(in.args[2], coefficients[k]) || (u >= 0 && in.args[1] != u)) return -1;
      u = in.args[1];
      v = in.args[0];
    }
    return is_number(v, coefficients.back()) ? u : -1;
  }
  /// x of max(-bound, min(bound, x)), or -1.
  [[nodiscard]] int clamped(int v, float bound) const {
    const Instr& outer = at(v);
    if (!is(outer, Op::max) || !is_number(outer.args[0], -bound)) return -1;
    const Instr& inner = at(outer.args[1]);
    return is(inner, Op::min) && is_number(inner.args[0], bound) ? inner.args[1] : -1;
  }
  /// The clamp that alone reads v, or -1.
  [[nodiscard]] int clamp_of(int v, float bound) const {
    const int outer = single_user(single_user(v));
    return outer >= 0 && clamped(outer, bound) == v ? outer : -1;
  }

  const Epilogue& e_;
  std::vector<int> uses_, user_;
};

}  // namespace

int multiply_in_erf(Epilogue& e) {
  if (e.lanes != 16) return 0;
  const Matcher matcher(e);
  std::vector<char> quotient(e.code.size(), 0), argument(e.code.size(), 0);
  int replaced = 0;
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (!matcher.is_erf(static_cast<int>(i))) continue;
    quotient[i] = 1, ++replaced;
    if (const int d = matcher.divided_argument(static_cast<int>(i)); d >= 0) argument[static_cast<std::size_t>(d)] = 1, ++replaced;
  }
  if (replaced == 0) return 0;

  std::vector<Instr> code;
  std::vector<int> moved(e.code.size(), -1);
  const auto push = [&](Op op, int a, int b = -1, int c = -1, Special special = Special::none) {
    Instr in;
    in.op = op, in.args = {a, b, c, -1}, in.special = special;
    code.push_back(in);
    return static_cast<int>(code.size()) - 1;
  };
  const auto number = [&](float f) {
    Instr in;
    in.op = Op::imm_f, in.imm = std::bit_cast<std::int32_t>(f);
    code.push_back(in);
    return static_cast<int>(code.size()) - 1;
  };
  // n / q of r, about 1 / q.
  const auto corrected = [&](int n, int q, int r) {
    const int y = push(Op::mul, n, r), rest = push(Op::fma, q, y, n, Special::minus_product);
    return push(Op::fma, rest, r, y);
  };
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    Instr in = e.code[i];
    for (int& a : in.args) {
      if (a >= 0) a = moved[static_cast<std::size_t>(a)];
    }
    if (quotient[i] != 0) {
      const int q = in.args[1], near = push(Op::sqrt, q, -1, -1, Special::approximate_inverse),
                rest = push(Op::fma, q, near, number(1.0F), Special::minus_product);
      moved[i] = corrected(in.args[0], q, push(Op::fma, near, rest, near));
    } else if (argument[i] != 0) {
      const int below = push(Op::min, number(kBeyond), in.args[0]), x = push(Op::max, number(-kBeyond), below);
      moved[i] = corrected(x, in.args[1], number(kInverse));
    } else {
      code.push_back(in);
      moved[i] = static_cast<int>(code.size()) - 1;
    }
  }
  e.code = std::move(code);
  for (auto& o : e.outputs) o.value = o.value < 0 ? -1 : moved[static_cast<std::size_t>(o.value)];
  if (e.pack.value >= 0) e.pack.value = moved[static_cast<std::size_t>(e.pack.value)];
  return replaced;
}

}  // namespace octavo::cpu::jit
