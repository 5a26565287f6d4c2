// Replaces divisions by a constant by multiplications where that is exact (program/reciprocal.h).
#pragma once

#include "cpu/jit/lower.h"
#include "program/reciprocal.h"

namespace octavo::cpu::jit {

using program::Reciprocal;
using program::same_codes;

/// Replaces the divisions whose quotients become nothing but clamped codes. Returns how many.
int multiply_where_exact(LoweredEpilogue& e);

}  // namespace octavo::cpu::jit
