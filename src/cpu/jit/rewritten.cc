#include "cpu/jit/rewritten.h"

#include <bit>
#include <utility>
#include <variant>

namespace octavo::cpu::jit {

void Rewritten::finish(LoweredEpilogue& e) && {
  e.code = std::move(code_);
  for (auto& o : e.outputs) o.value = of(o.value);
  e.pack.value = of(e.pack.value);
  move_spans(std::exchange(e.spans, {}), moved_, e.spans);
}

void move_spans(const std::vector<program::Span>& from, const std::vector<int>& moved, std::vector<program::Span>& to) {
  const auto follow = [&](int& v) { v = v < 0 ? -1 : moved[static_cast<std::size_t>(v)]; };
  for (program::Span s : from) {
    std::visit(
        [&](auto& of) {
          using Kind = std::decay_t<decltype(of)>;
          if constexpr (std::is_same_v<Kind, program::DequantizeSpan>) {
            follow(of.code), follow(of.shifted);
          } else {
            follow(of.x);
          }
          if constexpr (std::is_same_v<Kind, program::RequantizeSpan>) {
            follow(of.rounded);
            for (program::Step& step : of.steps) follow(step.from);
          }
          follow(of.result);
        },
        s);
    if (program::first_of(s) >= 0 && program::last_of(s) >= 0) to.push_back(std::move(s));
  }
}

std::vector<char> needed_values(const LoweredEpilogue& e, int without) {
  std::vector<char> needed(e.code.size(), 0);
  for (std::size_t j = 0; j < e.outputs.size(); ++j)
    needed[static_cast<std::size_t>(e.pack.packs(j) ? e.pack.value : e.outputs[j].value)] = 1;
  for (std::size_t i = e.code.size(); i-- > 0;) {
    if (needed[i] == 0 || static_cast<int>(i) == without) continue;
    for (const int a : e.code[i].args) {
      if (a >= 0) needed[static_cast<std::size_t>(a)] = 1;
    }
  }
  return needed;
}

void remove_dead(LoweredEpilogue& e) {
  const std::vector<char> needed = needed_values(e);
  Rewritten kept(e);
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (needed[i] != 0) kept.put(i, kept.push(kept.follow(e.code[i])));
  }
  std::move(kept).finish(e);
}

Instr imm_f(float f) {
  return {program::Op::imm_f, {-1, -1, -1, -1}, std::bit_cast<std::int32_t>(f)};
}

}  // namespace octavo::cpu::jit
