// Shorter forms of a convolution's epilogue, equal to the written one bit for bit.
//
// An epilogue that is requantization, or that goes on with the code of one (an Add with another tensor's codes): the code is one
// fma of the sum, or a quotient computed by products (requant.h), proven for every channel of a block when the engine is built.
// What an Add makes of two codes,
//
//   written:  code = clamp(round((s1 * c1 + s2 * (c2 - z2)) / s) + zero)       every operation rounded
//   computed: code = clamp(round(fma(c1, a, fma(c2, b, c))) + zero)
//
// is proven here for all pairs of codes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cpu/jit/requant.h"

namespace octavo::cpu::jit {

/// How a block of channels computes the code, as the packed constants say.
enum class Form : std::int32_t { written = 0, line = 1, quotient = 2 };

/// What find_forms finds in an epilogue.
struct Forms {
  Requant requant;
  int code = -1;  ///< the value that the line replaces: the packed one or one before it
};
[[nodiscard]] Reasons find_forms(const LoweredEpilogue& e, Forms& out);

/// An epilogue of another form. Its operands are two f32 values a channel, m and b of its first fma, then `operands` of the written
/// one; its stores are the written ones.
struct FormEpilogue {
  LoweredEpilogue epilogue;
  std::vector<int> operands;
};
[[nodiscard]] FormEpilogue form_epilogue(const LoweredEpilogue& e, const Forms& forms, Form form);

/// f32[2 * init_count], the m of all blocks at their `init`, then the b; s32[init_count / 16]: the blocks' Form at init / 16.
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_forms(const ChannelValues& values, const Requant& r,
                                                         const std::vector<LineBlock>& blocks, std::int64_t init_count);

/// The operand of constants (s32, or f32 where sums are floats), one a channel, that the program adds to the accumulator, and nothing else uses either; the sum is
/// then the accumulator. -1: none.
[[nodiscard]] int take_bias(const region::Stage& stage, const region::Plan& plan, LoweredEpilogue& e);

/// Rewrites `mul(i2f(code - zero), scale)` as one fma wherever zero * scale is exact (any power of two): the same rounding.
void fold_zero_points(LoweredEpilogue& e);

/// Replaces the last operations of an epilogue whose packed value is an Add of the code `c1`, from `first` to `last`, and the codes
/// of an operand. False: no such Add, or no fmas were found.
bool add_by_fmas(LoweredEpilogue& e, int c1, std::int32_t first, std::int32_t last);

}  // namespace octavo::cpu::jit
