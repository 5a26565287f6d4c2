// Structural checks of a program: everything that the interpreter and the emitters rely on.
#include <fmt/format.h>

#include "program/program.h"

namespace octavo::program {
namespace {

Status bad(std::string text) {
  return fail(ErrorKind::internal, "program: " + text);
}

Status check_instr(const Program& p, std::size_t index) {
  const Instr& instr = p.code[index];
  if (static_cast<std::size_t>(instr.op) >= all_ops().size()) {
    return bad(fmt::format("v{} has operation number {}, the table has {}", index, static_cast<int>(instr.op), all_ops().size()));
  }
  const OpInfo& row = info(instr.op);
  for (std::size_t k = 0; k < instr.args.size(); ++k) {
    const int arg = instr.args[k];
    if (k >= row.operands.size()) {
      if (arg != -1)
        return bad(fmt::format("v{} = {} takes {} operands, but operand {} is v{}", index, row.name, row.operands.size(), k, arg));
      continue;
    }
    if (arg < 0 || static_cast<std::size_t>(arg) >= index) {
      return bad(fmt::format("v{} = {}: operand {} is v{}, which is not defined before v{}", index, row.name, k, arg, index));
    }
    const char type = info(p.code[static_cast<std::size_t>(arg)].op).result;
    if (type != row.operands[k]) {
      return bad(fmt::format("v{} = {}: operand {} is v{} of type {}, needs {}", index, row.name, k, arg, type, row.operands[k]));
    }
  }
  switch (instr.op) {
    case Op::load_i:
    case Op::load_f:
      if (instr.imm < 0 || instr.imm >= p.operand_count) {
        return bad(fmt::format("v{} = {} {}: there are {} operands", index, row.name, instr.imm, p.operand_count));
      }
      break;
    case Op::shl_i:
    case Op::sra_i:
      if (instr.imm < 0 || instr.imm > 31)
        return bad(fmt::format("v{} = {}: shift {} is not in 0..31", index, row.name, instr.imm));
      break;
    case Op::table:
      if (instr.imm < 0 || static_cast<std::size_t>(instr.imm) >= p.tables.size()) {
        return bad(fmt::format("v{} = table {}: there are {} tables", index, instr.imm, p.tables.size()));
      }
      break;
    default:
      if (!has_immediate(instr.op) && instr.imm != 0)
        return bad(fmt::format("v{} = {} has an immediate, {}", index, row.name, instr.imm));
  }
  return {};
}

}  // namespace

Status verify(const Program& p) {
  if (p.operand_count < 0) return bad(fmt::format("operand count {} is negative", p.operand_count));
  for (std::size_t i = 0; i < p.code.size(); ++i) OCTAVO_CHECK(check_instr(p, i));
  for (std::size_t j = 0; j < p.outputs.size(); ++j) {
    const Output& out = p.outputs[j];
    if (out.value < 0 || static_cast<std::size_t>(out.value) >= p.code.size()) {
      return bad(fmt::format("store{} writes v{}, the program has {} values", j, out.value, p.code.size()));
    }
    char needed = 0;
    switch (out.type) {
      case ir::DType::u8:
      case ir::DType::s8:
      case ir::DType::s32:
      case ir::DType::boolean: needed = 'i'; break;
      case ir::DType::f32:
      case ir::DType::f16:
      case ir::DType::bf16: needed = 'f'; break;
      default: return bad(fmt::format("store{} has type {}, which programs do not write", j, ir::name_of(out.type)));
    }
    const char type = info(p.code[static_cast<std::size_t>(out.value)].op).result;
    if (type != needed)
      return bad(fmt::format("store{} of type {} writes v{} of type {}", j, ir::name_of(out.type), out.value, type));
  }
  for (const Span& s : p.spans) {
    if (!holds(p, s)) return bad(fmt::format("the span from v{} to v{} is not what the code computes", first_of(s), last_of(s)));
  }
  return {};
}

}  // namespace octavo::program
