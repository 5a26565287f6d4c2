#include "report/epilogue.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace octavo::report {

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::none: return "NONE";
    case Activation::relu: return "RELU";
    case Activation::clipped_relu: return "CLIPPED_RELU";
  }
  return "";
}

EpilogueSummary epilogue_of(const region::Stage& s, const region::Plan& plan) {
  using program::Op;
  const auto& code = s.program.code;
  const auto at = [&](int v) -> const program::Instr& { return code[static_cast<std::size_t>(v)]; };
  // Values that are the sum times and plus something: what other functions make of it is no longer a lower bound of the sum.
  std::vector<char> linear(code.size(), 0);
  std::vector<int> readers(code.size(), -1);
  EpilogueSummary e;
  const auto elements = [&](int v) -> std::int64_t {  // of a constant of one element, or one a channel
    const program::Instr& i = at(v);
    if (i.op != Op::load_f && i.op != Op::load_i) return 0;
    const region::TensorRef& t = s.operands[static_cast<std::size_t>(i.imm)].ref;
    if (plan.buffers[static_cast<std::size_t>(t.buffer)].kind != region::BufferKind::constant) return 0;
    std::int64_t n = 1;
    for (std::size_t k = 0; k < t.dims.size(); ++k) n *= t.strides[k] == 0 ? 1 : t.dims[k];
    return n <= s.space[1] ? n : 0;
  };
  const auto zero = [&](int v) { return at(v).op == Op::imm_f && std::bit_cast<float>(at(v).imm) == 0; };
  for (std::size_t k = 0; k < code.size(); ++k) {
    const program::Instr& i = code[k];
    const auto from = [&](int a) { return a >= 0 && linear[static_cast<std::size_t>(a)] != 0; };
    for (const int a : i.args) {
      if (a >= 0) readers[static_cast<std::size_t>(a)] = static_cast<int>(k);
    }
    switch (i.op) {
      case Op::acc_i:
      case Op::acc_f: linear[k] = 1; break;
      case Op::i2f:
      case Op::mul:
      case Op::div: linear[k] = from(i.args[0]) || from(i.args[1]); break;
      case Op::add:
      case Op::add_i:
      case Op::fma: {
        const bool fma = i.op == Op::fma;
        const bool sum = from(i.args[0]) || from(i.args[1]) || (fma && from(i.args[2]));
        linear[k] = sum;
        if (!sum || e.bias > 0) break;
        for (const int a : fma ? std::vector<int>{i.args[2]} : std::vector<int>{i.args[0], i.args[1]}) {
          e.bias = std::max(e.bias, elements(a));
        }
        break;
      }
      case Op::max:
        linear[k] = from(i.args[0]) || from(i.args[1]);
        if (linear[k] && (zero(i.args[0]) || zero(i.args[1])) && e.activation == Activation::none) e.activation = Activation::relu;
        break;
      default: break;
    }
  }
  for (std::size_t k = 0; k < code.size() && e.activation == Activation::relu; ++k) {  // a limit that is not the end of quantizing
    const program::Instr& i = code[k];
    if (i.op != Op::min || !(linear[static_cast<std::size_t>(i.args[0])] || linear[static_cast<std::size_t>(i.args[1])])) continue;
    if (readers[k] >= 0 && at(readers[k]).op != Op::f2i) e.activation = Activation::clipped_relu;
  }
  return e;
}

}  // namespace octavo::report
