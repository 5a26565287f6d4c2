// Loops over elements that lie side by side, for the operators of program/elements.def on every element type. Compiled three times (portable.cc,
// avx2.cc, avx512.cc) from elements.inc; plain data and no inline functions, as in block/block.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {

enum class ElementOp : std::uint8_t {
#define ELEMENT(id, operands, types, result) id,
#include "program/elements.def"
  count
};
constexpr int kElementOps = static_cast<int>(ElementOp::count);
/// ir::DType's first rows under the same numbers: f32 f16 bf16 f64 s8 u8 s16 u16 s32 u32 s64 u64 bool.
constexpr int kElementTypes = 13;
/// Sizes of elements that are only moved: 1, 2, 4, 8 bytes.
constexpr int kElementSizes = 4;

/// to[i] = op(a[i], b[i]), i < n; b is not read by operators of one operand. `to` may be an operand, and overlaps none otherwise.
using ElementLoop = void (*)(void* to, const void* a, const void* b, std::int64_t n);
using CastLoop = void (*)(void* to, const void* x, std::int64_t n);

struct ElementKernels {
  ElementLoop of[kElementOps][kElementTypes];  ///< null: not on this type
  /// Cast[to][from]: integers wrap; floats are cut towards zero and saturate, NaN gives 0; to bool: is it not 0? Through float32, except between
  /// float64 and integers.
  CastLoop cast[kElementTypes][kElementTypes];
  /// to[i] = min(max(x[i], lo), hi) on integers, by type; null for others. The bounds are elements of it.
  void (*clip[kElementTypes])(void* to, const void* x, const void* lo, const void* hi, std::int64_t n);
  // By size. to[i] = condition[i] != 0 ? a[i] : b[i]
  void (*where[kElementSizes])(void* to, const std::uint8_t* condition, const void* a, const void* b, std::int64_t n);
  // to[i] = from[i * step]; to[i * step] = from[i]; to[i] = *one
  void (*collect[kElementSizes])(void* to, const void* from, std::int64_t step, std::int64_t n);
  void (*spread[kElementSizes])(void* to, std::int64_t step, const void* from, std::int64_t n);
  void (*fill[kElementSizes])(void* to, const void* one, std::int64_t n);
  // sums[i] = fma(x[i], weight, sums[i]); sums[i] = fma(x[at[i]], weight[i], sums[i]), with 0 for x[-1]
  void (*add_scaled)(float* sums, const float* x, float weight, std::int64_t n);
  void (*add_collected)(float* sums, const float* x, const std::int32_t* at, const float* weight, std::int64_t n);
};
const ElementKernels& portable_elements();
#if defined(__x86_64__)
const ElementKernels& avx2_elements();
const ElementKernels& avx512_elements();
#endif

}  // namespace octavo::cpu
