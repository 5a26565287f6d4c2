// Programs as CUDA C++: the GPU's form of an epilogue, from the same table of operations as every other form.
//
// Every operation is written with the intrinsic that rounds once (__fmaf_rn, __fdiv_rn, ...), so the compiler has nothing to
// contract or approximate; compiled with `compile_options` the results are the oracle's, bit for bit (NaN payloads aside).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/tensor.h"
#include "program/program.h"

namespace octavo::cuda {

/// The right-hand side for one operation, "$0".."$3" standing for its operands and "$k" for its immediate; empty for sources.
[[nodiscard]] std::string_view expression(program::Op op);

/// Text that stands once in front of the other pieces: prelude.inc (everything that is not plain C++) and the argument structures.
[[nodiscard]] std::string emit_prelude();

/// `OCTAVO_DEVICE void NAME(T acc, T0 x0, ..., R0& r0, ...)`: T is int or float by the accumulator that the program
/// reads (int if none), Tk by how operand k is loaded (operands that are never loaded are left out), Rj int or float before the
/// narrowing store. Tables become arrays in global memory named NAME_tableK. `p` must verify.
[[nodiscard]] std::string emit_function(const program::Program& p, std::string_view name);

/// A program to run over a strided space. operand_types[k]: how operand k is stored (u8, s8, s32 for load_i; f32, f16, bf16 for
/// load_f).
struct KernelSpec {
  std::string name;
  program::Program program;
  std::vector<ir::DType> operand_types;
};
/// The function and `OCTAVO_KERNEL(256, 1) NAME(Args)`: one thread an element of a space of four dimensions, arrays addressed
/// by element strides as in region::TensorRef. Args is laid out as struct `Args` below, with operands before stores. Simple on
/// purpose: it shows that the function computes the right bits; convolution kernels inline the same function behind their
/// accumulators.
[[nodiscard]] std::string emit_kernel(const KernelSpec& spec);

/// Argument structures of emitted kernels, as the host sees them.
struct Array {
  std::uint64_t base = 0;        ///< device address of element 0
  std::int64_t strides[4] = {};  ///< elements
};
inline constexpr int kMaxArrays = 24;
struct Args {
  std::int64_t dims[4] = {1, 1, 1, 1};
  Array acc;                 ///< s32 or f32, by the program
  Array arrays[kMaxArrays];  ///< operands, then stores
};

/// Options that keep the arithmetic as written, and the target: "sm_80", "sm_90a", ... Unread values of a program are no warning.
[[nodiscard]] std::vector<std::string> compile_options(std::string_view architecture);

}  // namespace octavo::cuda
