// A kernel that runs a program over a strided space, to be launched by itself: for checks of what a GPU makes of programs.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/text/emit_cuda.h"

namespace octavo::cuda {

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
[[nodiscard]] inline std::string emit_kernel(const KernelSpec& spec);

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
/// The same as text, which stands behind the prelude.
[[nodiscard]] inline std::string argument_structures() {
  return fmt::format(R"(struct OctavoArray {{ unsigned long long base; long long strides[4]; }};
struct OctavoArgs {{ long long dims[4]; OctavoArray acc; OctavoArray arrays[{}]; }};
struct OctavoIndex {{ long long i[4]; }};
OCTAVO_DEVICE long long octavo_at(const OctavoArray& a, const OctavoIndex& x) {{
  return x.i[0] * a.strides[0] + x.i[1] * a.strides[1] + x.i[2] * a.strides[2] + x.i[3] * a.strides[3];
}}
)",
                     kMaxArrays);
}

/// An array element as int or float.
inline std::string load_text(ir::DType type, std::string_view array) {
  switch (type) {
    case ir::DType::u8:
    case ir::DType::boolean: return fmt::format("(int)((const unsigned char*){0}.base)[octavo_at({0}, i)]", array);
    case ir::DType::s8: return fmt::format("(int)((const signed char*){0}.base)[octavo_at({0}, i)]", array);
    case ir::DType::s32: return fmt::format("((const int*){0}.base)[octavo_at({0}, i)]", array);
    case ir::DType::f16: return fmt::format("octavo_f16_value(((const unsigned short*){0}.base)[octavo_at({0}, i)])", array);
    case ir::DType::bf16: return fmt::format("octavo_bf16_value(((const unsigned short*){0}.base)[octavo_at({0}, i)])", array);
    default: return fmt::format("((const float*){0}.base)[octavo_at({0}, i)]", array);
  }
}

inline std::string store_text(ir::DType type, std::string_view array, std::string_view value) {
  switch (type) {
    case ir::DType::u8:
    case ir::DType::boolean:
      return fmt::format("((unsigned char*){0}.base)[octavo_at({0}, i)] = (unsigned char){1};", array, value);
    case ir::DType::s8: return fmt::format("((signed char*){0}.base)[octavo_at({0}, i)] = (signed char){1};", array, value);
    case ir::DType::s32: return fmt::format("((int*){0}.base)[octavo_at({0}, i)] = {1};", array, value);
    case ir::DType::f16: return fmt::format("((unsigned short*){0}.base)[octavo_at({0}, i)] = octavo_f16_bits({1});", array, value);
    case ir::DType::bf16:
      return fmt::format("((unsigned short*){0}.base)[octavo_at({0}, i)] = octavo_bf16_bits({1});", array, value);
    default: return fmt::format("((float*){0}.base)[octavo_at({0}, i)] = {1};", array, value);
  }
}

inline std::string emit_kernel(const KernelSpec& spec) {
  const program::Program& p = spec.program;
  assert(p.operand_count + static_cast<int>(p.outputs.size()) <= kMaxArrays);
  const std::string function = spec.name + "_program";
  std::vector<char> kinds(static_cast<std::size_t>(p.operand_count),
                          0);  // how each operand is read: 'i', 'f', or 0 when it never is
  for (const program::Instr& i : p.code) {
    if (i.op == program::Op::load_i || i.op == program::Op::load_f)
      kinds[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
  }
  std::string call =
      fmt::format("{}({}", function, load_text(program::uses(p, program::Op::acc_f) ? ir::DType::f32 : ir::DType::s32, "a.acc"));
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k]) call += ", " + load_text(spec.operand_types[k], fmt::format("a.arrays[{}]", k));
  }
  std::string results, stores;
  for (std::size_t j = 0; j < p.outputs.size(); ++j) {
    results += fmt::format(
        "  {} r{};\n", (program::info(p.code[static_cast<std::size_t>(p.outputs[j].value)].op).result == 'i' ? "int" : "float"), j);
    call += fmt::format(", r{}", j);
    stores += "  " + store_text(p.outputs[j].type, fmt::format("a.arrays[{}]", kinds.size() + j), fmt::format("r{}", j)) + "\n";
  }
  return emit_function(p, function) + fmt::format(R"(OCTAVO_KERNEL(256, 1) {}(const OctavoArgs a) {{
  long long flat = (long long)octavo_block() * 256 + octavo_thread();
  if (flat >= a.dims[0] * a.dims[1] * a.dims[2] * a.dims[3]) return;
  OctavoIndex i;
  for (int d = 3; d >= 0; --d) {{
    i.i[d] = flat % a.dims[d];
    flat /= a.dims[d];
  }}
{}  {});
{}}}
)",
                                                  spec.name, results, call, stores);
}

}  // namespace octavo::cuda
