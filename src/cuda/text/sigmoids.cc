#include "cuda/text/sigmoids.h"

#include "program/math.h"

namespace octavo::cuda {

using program::Instr;
using program::Op;

Sigmoids::Sigmoids(const program::Program& p) : p_(p) {
  program::ProgramOps m{pattern_};
  x_ = pattern_.push(Op::acc_f);
  result_ = program::sigmoid(m, x_);
}

int Sigmoids::of(int v) const {
  if (p_.code[static_cast<std::size_t>(v)].op != Op::div) return -1;
  std::vector<int> bound(pattern_.code.size(), -1);
  return same(result_, v, bound) ? bound[static_cast<std::size_t>(x_)] : -1;
}

bool Sigmoids::same(int pattern, int v, std::vector<int>& bound) const {
  const int known = bound[static_cast<std::size_t>(pattern)];
  if (known >= 0) return known == v;
  if (pattern != x_) {
    const Instr &a = pattern_.code[static_cast<std::size_t>(pattern)], &b = p_.code[static_cast<std::size_t>(v)];
    if (a.op != b.op || a.imm != b.imm) return false;
    for (std::size_t k = 0; k < a.args.size(); ++k) {
      if ((a.args[k] < 0) != (b.args[k] < 0) || (a.args[k] >= 0 && !same(a.args[k], b.args[k], bound))) return false;
    }
  }
  bound[static_cast<std::size_t>(pattern)] = v;
  return true;
}

}  // namespace octavo::cuda
