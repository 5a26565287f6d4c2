#include "cpu/jit/erf_division.h"

#include <bit>

#include "cpu/jit/rewritten.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

constexpr float kRoot = 1.41421354F, kInverse = 0.707106769F, kBeyond = 6.0F;

class Users {
 public:
  explicit Users(const LoweredEpilogue& e) : e_(e), uses_(e.code.size(), 0), user_(e.code.size(), -1) {
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

  /// The division of an erf that 1 is added to, n / q in max(-1, min(1, n / q)); -1: others read it too.
  [[nodiscard]] int division_of(const program::FunctionSpan& erf) const {
    const int below = at(erf.result).args[1], added = single_user(erf.result);
    if (!is(at(erf.result), Op::max) || !is(at(below), Op::min) || single_user(below) != erf.result) return -1;
    const int division = at(below).args[1];
    if (!is(at(division), Op::div) || single_user(division) != below || added < 0 || !is(at(added), Op::add)) return -1;
    return is_number(at(added).args[0], 1.0F) || is_number(at(added).args[1], 1.0F) ? division : -1;
  }
  /// The division by sqrt 2 that nothing but the erf reads; -1: none.
  [[nodiscard]] int divided_argument(const program::FunctionSpan& erf) const {
    if (!is(at(erf.x), Op::div) || !is_number(at(erf.x).args[1], kRoot)) return -1;
    return uses_[static_cast<std::size_t>(erf.x)] == 1 ? erf.x : -1;
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

  const LoweredEpilogue& e_;
  std::vector<int> uses_, user_;
};

}  // namespace

int multiply_in_erf(LoweredEpilogue& e) {
  if (e.lanes != 16) return 0;
  const Users users(e);
  std::vector<char> quotient(e.code.size(), 0), argument(e.code.size(), 0);
  int replaced = 0;
  for (const program::Span& s : e.spans) {
    const auto* erf = std::get_if<program::FunctionSpan>(&s);
    const int q = erf != nullptr && erf->function == program::Function::erf ? users.division_of(*erf) : -1;
    if (q < 0) continue;
    quotient[static_cast<std::size_t>(q)] = 1, ++replaced;
    if (const int d = users.divided_argument(*erf); d >= 0) argument[static_cast<std::size_t>(d)] = 1, ++replaced;
  }
  if (replaced == 0) return 0;

  Rewritten out(e);
  const auto push = [&](Op op, int a, int b = -1, int c = -1, Special special = Special::none) {
    return out.push({op, {a, b, c, -1}, 0, false, special});
  };
  const auto number = [&](float f) { return out.push(imm_f(f)); };
  // n / q of r, about 1 / q.
  const auto corrected = [&](int n, int q, int r) {
    const int y = push(Op::mul, n, r), rest = push(Op::fma, q, y, n, Special::minus_product);
    return push(Op::fma, rest, r, y);
  };
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    const Instr in = out.follow(e.code[i]);
    if (quotient[i] != 0) {
      const int q = in.args[1], near = push(Op::sqrt, q, -1, -1, Special::approximate_inverse),
                rest = push(Op::fma, q, near, number(1.0F), Special::minus_product);
      out.put(i, corrected(in.args[0], q, push(Op::fma, near, rest, near)));
    } else if (argument[i] != 0) {
      const int below = push(Op::min, number(kBeyond), in.args[0]), x = push(Op::max, number(-kBeyond), below);
      out.put(i, corrected(x, in.args[1], number(kInverse)));
    } else {
      out.put(i, out.push(in));
    }
  }
  e.spans.clear();
  std::move(out).finish(e);
  return replaced;
}

}  // namespace octavo::cpu::jit
