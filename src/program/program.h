// Epilogue programs: straight-line typed SSA over scalars, evaluated once for every element of a region's iteration space.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"
#include "program/span.h"

namespace octavo::program {

enum class Op : std::uint8_t {
#define PROGRAM_OP(id, text, operands, result, meaning) id,
#include "program/ops.def"
};
struct OpInfo {
  Op op;
  std::string_view name, operands;  ///< operand types, one letter each
  char result;
  std::string_view meaning;
};
[[nodiscard]] const OpInfo& info(Op op);
[[nodiscard]] std::span<const OpInfo> all_ops();  ///< the rows of ops.def
[[nodiscard]] bool has_immediate(Op op);          ///< Instr::imm means something
[[nodiscard]] bool commutes(Op op);               ///< the first two operands may change places

/// One instruction; its index in Program::code is the value it defines.
struct Instr {
  Op op = Op::imm_f;
  std::array<int, 4> args{-1, -1, -1, -1};  ///< values (earlier indices)
  std::int32_t imm =
      0;  ///< imm_i: the constant; imm_f: the float's bits; load_*: operand index; shl_i/sra_i: n; table: table index
  bool operator==(const Instr&) const = default;
};

inline float Step::operator()(float y) const {
  const float a = constant_first ? constant : y, b = constant_first ? y : constant;
  switch (op) {
    case Op::div: return y / constant;
    case Op::max: return a > b ? a : b;
    case Op::min: return a < b ? a : b;
    case Op::nan0: return y != y ? 0.0F : y;
    default: return y < 0 ? y * constant : y;
  }
}

/// One result leaving the program. `type`: u8, s8 (the int32 value, already within range), s32, f32, f16, bf16 (rounded from the
/// float), boolean (int32 0/1).
struct Output {
  int value = -1;
  ir::DType type = ir::DType::f32;
  bool operator==(const Output&) const = default;
};

using Table = std::array<std::uint8_t, 256>;

struct Program {
  std::vector<Instr> code;
  std::vector<Output> outputs;  ///< output j goes to the region's store j
  std::vector<Table> tables;
  int operand_count = 0;    ///< load_* indices are below this
  std::vector<Span> spans;  ///< of what the code already says: equal programs need not be marked alike
  bool operator==(const Program& o) const {
    return code == o.code && outputs == o.outputs && tables == o.tables && operand_count == o.operand_count;
  }

  int push(Op op, int a = -1, int b = -1, int c = -1, int d = -1);
  int push_imm(Op op, std::int32_t imm, int a = -1);
  int imm_f(float v);  ///< reuses an equal constant
  int imm_i(std::int32_t v);
  int load(Op op, int operand);
};

/// Types agree, args refer backwards, operand/table indices in range, outputs defined, spans hold. Run on everything read from a file.
[[nodiscard]] Status verify(const Program& p);
/// "v0 = acc_i; v1 = i2f v0; ... ; store0 u8 v7"; parse(print(p)) == p. Spans are not written; parse marks.
[[nodiscard]] std::string print(const Program& p);
[[nodiscard]] Result<Program> parse(std::string_view text);

/// A scalar in a program: float or int32 by the op that made it.
union Scalar {
  float f;
  std::int32_t i;
};

/// The oracle: evaluates the program for one element. `acc` is the anchor's accumulator (by acc_i or acc_f), `operands` one scalar
/// an operand (already widened as load_* says). Writes one scalar an output (before the narrowing store).
void interpret(const Program& p, Scalar acc, std::span<const Scalar> operands, std::span<Scalar> results,
               std::vector<Scalar>& scratch);
/// The oracle for one operation that is no source; `p` is asked for its tables only.
[[nodiscard]] Scalar evaluate_op(const Program& p, const Instr& instr, Scalar a, Scalar b, Scalar c, Scalar d);
/// f2i. Outside int32 and for NaN, which programs must exclude by clamping before, the oracle gives -2^31 (as x86 does; a GPU does
/// not).
[[nodiscard]] std::int32_t to_int32(float v);

/// Exact clean-ups: constant folding by the oracle, common sub-expressions, dead code.
/// Then tables: an int32 value that interval analysis proves to lie in 0..255 and that depends, through any operations with
/// immediates, on one other such value only becomes one `table` of it (the first one, so inner quantize/dequantize pairs vanish
/// into the table; a table of a table is one table). Quantize results are recognised by their clamps; `operand_is_u8[k]` tells that
/// operand k is loaded from u8 codes, and its entry number operand_count, if there is one, that the accumulator is a u8 code
/// (pooling); empty: unknown. Slices of one or two operations stay as they are; identity tables are dropped. Equal tables are
/// shared. The result is marked (span.h).
[[nodiscard]] Program simplify(const Program& p, const std::vector<bool>& operand_is_u8 = {});

/// True if every operand is element-wise evaluable with these ops only ("no table", ...) helpers used by emitters:
[[nodiscard]] bool uses(const Program& p, Op op);

}  // namespace octavo::program
