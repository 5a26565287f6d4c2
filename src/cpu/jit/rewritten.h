// The code of an epilogue written anew: what passes have in common that put other instructions in the place of some.
#pragma once

#include <vector>

#include "cpu/jit/lower.h"

namespace octavo::cpu::jit {

/// New code, and where the values of the old one are in it.
class Rewritten {
 public:
  explicit Rewritten(const LoweredEpilogue& of) : moved_(of.code.size(), -1) {}
  /// Appends an instruction of the new code, and returns its value.
  int push(const Instr& in) {
    code_.push_back(in);
    return static_cast<int>(code_.size()) - 1;
  }
  /// Value i of the old code is v of the new one.
  void put(std::size_t i, int v) { moved_[i] = v; }
  /// Where a value of the old code is; -1: nowhere.
  [[nodiscard]] int of(int v) const { return v < 0 ? -1 : moved_[static_cast<std::size_t>(v)]; }
  /// An instruction of the old code with the operands that it has in the new one.
  [[nodiscard]] Instr follow(Instr in) const {
    for (int& a : in.args) a = of(a);
    return in;
  }
  [[nodiscard]] const Instr& at(int v) const { return code_[static_cast<std::size_t>(v)]; }
  /// The epilogue gets the code. Its outputs, packed value and spans, so far of the old code, follow.
  void finish(LoweredEpilogue& e) &&;
  /// The code alone.
  [[nodiscard]] std::vector<Instr> code() && { return std::move(code_); }

 private:
  std::vector<Instr> code_;
  std::vector<int> moved_;
};

/// Appends to `to` the spans whose ends `moved` keeps; -1: dropped.
void move_spans(const std::vector<program::Span>& from, const std::vector<int>& moved, std::vector<program::Span>& to);
/// Which values the outputs need; not what value `without` is computed of.
[[nodiscard]] std::vector<char> needed_values(const LoweredEpilogue& e, int without = -1);
/// Drops what no output needs.
void remove_dead(LoweredEpilogue& e);

[[nodiscard]] Instr imm_f(float f);

}  // namespace octavo::cpu::jit
