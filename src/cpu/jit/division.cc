#include "cpu/jit/division.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace octavo::cpu::jit {
namespace {

using program::Op;

struct Codes {
  std::int32_t first = 0, last = 0;
};

class Chains {
 public:
  explicit Chains(const Epilogue& e) : e_(e), uses_(e.code.size()), stored_(e.code.size(), 0) {
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

  const Epilogue& e_;
  std::vector<std::vector<int>> uses_;
  std::vector<char> stored_;
};

}  // namespace

int multiply_where_exact(Epilogue& e) {
  const Chains chains(e);
  std::vector<Instr> code;
  std::vector<int> moved(e.code.size(), -1);
  const auto push = [&](Instr in) {
    code.push_back(in);
    return static_cast<int>(code.size()) - 1;
  };
  const auto imm = [&](float f) { return push({Op::imm_f, {-1, -1, -1, -1}, std::bit_cast<std::int32_t>(f)}); };
  int replaced = 0;
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    Instr in = e.code[i];
    for (int& a : in.args) {
      if (a >= 0) a = moved[static_cast<std::size_t>(a)];
    }
    if (in.op == Op::div && code[static_cast<std::size_t>(in.args[1])].op == Op::imm_f) {
      const float s = std::bit_cast<float>(code[static_cast<std::size_t>(in.args[1])].imm);
      const auto codes = chains.codes(static_cast<int>(i));
      if (codes && same_codes(s, codes->first, codes->last)) {
        const Reciprocal r = Reciprocal::of(s);
        const int x = in.args[0], low = push({Op::mul, {x, imm(r.low), -1, -1}});
        in = {Op::fma, {x, imm(r.high), low, -1}};
        ++replaced;
      }
    }
    moved[i] = push(in);
  }
  if (replaced == 0) return 0;
  const auto follow = [&](int& v) {
    if (v >= 0) v = moved[static_cast<std::size_t>(v)];
  };
  for (auto& o : e.outputs) follow(o.value);
  follow(e.pack.value);
  std::vector<program::Span> spans = std::exchange(e.spans, {}), followed;
  move_spans(spans, moved, followed);
  // The divisors are left behind.
  std::vector<char> live(code.size(), 0);
  for (std::size_t j = 0; j < e.outputs.size(); ++j)
    live[static_cast<std::size_t>(e.pack.packs(j) ? e.pack.value : e.outputs[j].value)] = 1;
  for (std::size_t i = code.size(); i-- > 0;) {
    for (const int a : code[i].args) {
      if (live[i] != 0 && a >= 0) live[static_cast<std::size_t>(a)] = 1;
    }
  }
  e.code.clear();
  std::vector<int> last(code.size(), -1);
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (live[i] == 0) continue;
    for (int& a : code[i].args) {
      if (a >= 0) a = last[static_cast<std::size_t>(a)];
    }
    last[i] = static_cast<int>(e.code.size());
    e.code.push_back(code[i]);
  }
  for (auto& o : e.outputs) o.value = o.value < 0 ? -1 : last[static_cast<std::size_t>(o.value)];
  if (e.pack.value >= 0) e.pack.value = last[static_cast<std::size_t>(e.pack.value)];
  move_spans(followed, last, e.spans);
  return replaced;
}

}  // namespace octavo::cpu::jit
