#include "cpu/jit/division.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/jit/rewritten.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

struct Codes {
  std::int32_t first = 0, last = 0;
};

class Chains {
 public:
  explicit Chains(const LoweredEpilogue& e) : e_(e), uses_(e.code.size()), stored_(e.code.size(), 0) {
    for (std::size_t i = 0; i < e.code.size(); ++i) {
      for (const int a : e.code[i].args) {
        if (a >= 0) uses_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
      }
    }
    for (std::size_t j = 0; j < e.outputs.size(); ++j) {
      if (!e.pack.packs(j)) stored_[static_cast<std::size_t>(e.outputs[j].value)] = 1;
    }
  }

  /// The codes that the quotient `v` becomes, if it becomes nothing else.
  [[nodiscard]] std::optional<Codes> codes(int v) const {
    float lo = -INFINITY, hi = INFINITY;
    for (;;) {
      const auto& uses = uses_[static_cast<std::size_t>(v)];
      if (uses.size() != 1 || stored_[static_cast<std::size_t>(v)] != 0 || v == e_.pack.value) return std::nullopt;
      const int user = uses.front();
      const Instr& in = at(user);
      if (in.op == Op::f2i) {
        if (user == e_.pack.value && only_packed(user)) {  // saturated there
          lo = std::max(lo, static_cast<float>(e_.pack.lo - e_.pack.zero));
          hi = std::min(hi, static_cast<float>(e_.pack.hi - e_.pack.zero));
        }
        break;
      }
      if (in.op == Op::max || in.op == Op::min) {
        const Instr& bound = at(in.args[0] == v ? in.args[1] : in.args[0]);
        if (bound.op != Op::imm_f || std::isnan(std::bit_cast<float>(bound.imm))) return std::nullopt;
        const float f = std::bit_cast<float>(bound.imm);
        if (in.op == Op::max) lo = std::max(lo, f);
        if (in.op == Op::min) hi = std::min(hi, f);
      } else if (in.op != Op::nan0) {
        return std::nullopt;
      }
      v = user;
    }
    if (!(lo >= -2048 && hi <= 2048)) return std::nullopt;
    return Codes{static_cast<std::int32_t>(std::floor(lo)), static_cast<std::int32_t>(std::ceil(hi))};
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return e_.code[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool only_packed(int v) const {
    return uses_[static_cast<std::size_t>(v)].empty() && stored_[static_cast<std::size_t>(v)] == 0;
  }

  const LoweredEpilogue& e_;
  std::vector<std::vector<int>> uses_;
  std::vector<char> stored_;
};

}  // namespace

int multiply_where_exact(LoweredEpilogue& e) {
  const Chains chains(e);
  Rewritten out(e);
  int replaced = 0;
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    Instr in = out.follow(e.code[i]);
    if (in.op == Op::div && out.at(in.args[1]).op == Op::imm_f) {
      const float s = std::bit_cast<float>(out.at(in.args[1]).imm);
      const auto codes = chains.codes(static_cast<int>(i));
      if (codes && same_codes(s, codes->first, codes->last)) {
        const Reciprocal r = Reciprocal::of(s);
        const int x = in.args[0], low = out.push({Op::mul, {x, out.push(imm_f(r.low)), -1, -1}});
        in = {Op::fma, {x, out.push(imm_f(r.high)), low, -1}};
        ++replaced;
      }
    }
    out.put(i, out.push(in));
  }
  if (replaced == 0) return 0;
  std::move(out).finish(e);
  remove_dead(e);  // the divisors
  return replaced;
}

}  // namespace octavo::cpu::jit
