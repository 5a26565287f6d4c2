// Building programs: the table of operations and the push helpers.
#include "program/program.h"

#include <algorithm>
#include <bit>

namespace octavo::program {
namespace {

constexpr std::array kOps{
#define PROGRAM_OP(id, text, operands, result, meaning) OpInfo{Op::id, text, operands, result, meaning},
#include "program/ops.def"
};

}  // namespace

const OpInfo& info(Op op) {
  return kOps[static_cast<std::size_t>(op)];
}
std::span<const OpInfo> all_ops() {
  return kOps;
}

bool has_immediate(Op op) {
  switch (op) {
    case Op::imm_i:
    case Op::imm_f:
    case Op::load_i:
    case Op::load_f:
    case Op::shl_i:
    case Op::sra_i:
    case Op::table: return true;
    default: return false;
  }
}

bool commutes(Op op) {
  switch (op) {
    case Op::add:
    case Op::mul:
    case Op::fma:
    case Op::add_i:
    case Op::mul_i:
    case Op::max_i:
    case Op::min_i:
    case Op::and_i:
    case Op::or_i: return true;
    default: return false;
  }
}

int Program::push(Op op, int a, int b, int c, int d) {
  code.push_back(Instr{op, {a, b, c, d}, 0});
  return static_cast<int>(code.size()) - 1;
}

int Program::push_imm(Op op, std::int32_t imm, int a) {
  code.push_back(Instr{op, {a, -1, -1, -1}, imm});
  return static_cast<int>(code.size()) - 1;
}

int Program::imm_f(float v) {
  const Instr wanted{Op::imm_f, {-1, -1, -1, -1}, std::bit_cast<std::int32_t>(v)};
  const auto it = std::find(code.begin(), code.end(), wanted);
  return it != code.end() ? static_cast<int>(it - code.begin()) : push_imm(Op::imm_f, wanted.imm);
}

int Program::imm_i(std::int32_t v) {
  const Instr wanted{Op::imm_i, {-1, -1, -1, -1}, v};
  const auto it = std::find(code.begin(), code.end(), wanted);
  return it != code.end() ? static_cast<int>(it - code.begin()) : push_imm(Op::imm_i, v);
}

int Program::load(Op op, int operand) {
  operand_count = std::max(operand_count, operand + 1);
  return push_imm(op, operand);
}

bool uses(const Program& p, Op op) {
  return std::any_of(p.code.begin(), p.code.end(), [op](const Instr& i) { return i.op == op; });
}

}  // namespace octavo::program
