// Programs as CUDA C++: the GPU's form of an epilogue, from the same table of operations as every other form.
//
// Every operation is written with the intrinsic that rounds once (__fmaf_rn, __fdiv_rn, ...), so the compiler has nothing to
// contract or approximate; compiled with `compile_options` the results are the oracle's, bit for bit (NaN payloads aside).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/text/architecture.h"
#include "ir/tensor.h"
#include "program/program.h"

namespace octavo::cuda {

/// The right-hand side for one operation, "$0".."$3" standing for its operands and "$k" for its immediate; empty for sources.
[[nodiscard]] std::string_view expression(program::Op op);

/// Text that stands once in front of the other pieces: prelude.inc (everything that is not plain C++).
[[nodiscard]] std::string emit_prelude();
/// The part of it in which functions that sm_75 does not have are made of those that it has: for the emulation, which has its own prelude.
[[nodiscard]] std::string_view turing_functions();

/// `OCTAVO_DEVICE void NAME(T acc, T0 x0, ..., R0& r0, ...)`: T is int or float by the accumulator that the program
/// reads (int if none), Tk by how operand k is loaded (operands that are never loaded are left out), Rj int or float before the
/// narrowing store. Tables become arrays in global memory named NAME_tableK. `p` must verify.
[[nodiscard]] std::string emit_function(const program::Program& p, std::string_view name);

/// Does the program divide floats in a way that emit_function_of_several has a form without branches for?
[[nodiscard]] bool divides(const program::Program& p);
/// The same function for `count` elements at a time, every parameter an array of so many: `const T (&acc)[4], ..., R0 (&r0)[4], ...`. Quotients are rounded
/// once as well, but by the functions of quotients.inc, so that the elements are computed side by side; their text comes with it.
[[nodiscard]] std::string emit_function_of_several(const program::Program& p, std::string_view name, int count);

/// Options that keep the arithmetic as written, and the target: "sm_80", "sm_90a", ... Unread values of a program are no warning.
[[nodiscard]] std::vector<std::string> compile_options(Architecture architecture);

}  // namespace octavo::cuda
