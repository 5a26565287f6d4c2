// The two divisions of a GELU that exporters spell out, 1 + erf(x / sqrt 2), by multiplications.
//
//   n / q:       r = r0 + r0 (1 - q r0) with r0 = vrcp14ps(q);  y = n r;  n / q = y + (n - q y) r
//   x / sqrt 2:  the same with r = 1 / sqrt 2, of x within -6..6: what lies outside is clamped behind the division all the same
//
// Why: a division of 16 lanes keeps its unit for 16 clocks on Intel's processors, the products take three to four; in bfloat16 the two divisions are most of what a
// GELU costs. Exact: every remainder is, so the last fma rounds the quotient correctly; proven for every x by trying all (tests/cpu/erf_division_test.cc).
// The sign of a quotient that is 0 may be another: it is left only where 1 is added.
#pragma once

#include "cpu/jit/lower.h"

namespace octavo::cpu::jit {

/// Replaces them, for vectors of 16 lanes. Returns how many divisions went.
int multiply_in_erf(LoweredEpilogue& e);

}  // namespace octavo::cpu::jit
