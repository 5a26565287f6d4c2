#include "cpu/families/sum_form.h"

#include <algorithm>
#include <bit>

namespace octavo::cpu {
namespace {

using program::Instr;
using program::Op;

bool neighbours(const Access& a, const Space& space, std::size_t channel) {
  return a.elem == Elem::f32 && (a.strides[channel] == 4 || space.dims[channel] == 1) &&
         std::all_of(a.div.begin(), a.div.end(), [](std::int64_t d) { return d == 1; });
}
bool only_along(const Access& a, std::size_t channel) {
  for (std::size_t k = 0; k < a.strides.size(); ++k) {
    if (k != channel && a.strides[k] != 0) return false;
  }
  return true;
}

/// The other argument of an operation one of whose arguments is a constant; -1: there is none. Of a NaN, max and min give the second.
int beside_constant(const program::Program& p, const Instr& i, float& constant) {
  const Instr& second = p.code[static_cast<std::size_t>(i.args[1])];
  if (second.op != Op::imm_f) return -1;
  constant = std::bit_cast<float>(second.imm);
  return i.args[0];
}

}  // namespace

std::optional<SumForm> sum_form(const program::Program& p, const Space& space, std::size_t channel) {
  if (p.outputs.size() != 1 || p.outputs[0].type != ir::DType::f32 || !neighbours(space.stores[0], space, channel))
    return std::nullopt;
  const auto at = [&](int v) -> const Instr& { return p.code[static_cast<std::size_t>(v)]; };
  SumForm f;
  int v = p.outputs[0].value;
  if (at(v).op == Op::min) {
    v = beside_constant(p, at(v), f.most);
    f.high = true;
  }
  if (v >= 0 && at(v).op == Op::max) {
    v = beside_constant(p, at(v), f.least);
    f.low = true;
  }
  while (v >= 0 && at(v).op == Op::add) {
    const bool second = at(at(v).args[1]).op == Op::load_f;
    const Instr& load = at(at(v).args[second ? 1 : 0]);
    if (load.op != Op::load_f) return std::nullopt;
    const Access& a = space.loads[static_cast<std::size_t>(load.imm)];
    if (!neighbours(a, space, channel)) return std::nullopt;
    // The last one added is found first: a bias is added before a residual.
    if (only_along(a, channel)) {
      if (f.bias >= 0) return std::nullopt;
      f.bias = load.imm;
    } else {
      if (f.bias >= 0 || f.residual >= 0) return std::nullopt;
      f.residual = load.imm;
    }
    v = at(v).args[second ? 0 : 1];
  }
  if (v < 0 || at(v).op != Op::acc_f || (f.high && !f.low)) return std::nullopt;
  return f;
}

FinishedSums SumForm::at(const Space& space, const region::Memory& memory, const Index& origin, std::size_t pixel) const {
  const auto floats = [&](const Access& a) {
    std::int64_t offset = a.offset;
    for (std::size_t k = 0; k < a.strides.size(); ++k) offset += origin[k] * a.strides[k];
    return reinterpret_cast<float*>(memory.base[static_cast<std::size_t>(a.buffer)] + offset);
  };
  FinishedSums f;
  f.to = floats(space.stores[0]);
  f.to_step = space.stores[0].strides[pixel] / 4;
  if (bias >= 0) f.bias = floats(space.loads[static_cast<std::size_t>(bias)]);
  if (residual >= 0) {
    const Access& a = space.loads[static_cast<std::size_t>(residual)];
    f.residual = floats(a);
    f.residual_step = a.strides[pixel] / 4;
  }
  f.low = low, f.high = high, f.least = least, f.most = most;
  return f;
}

}  // namespace octavo::cpu
