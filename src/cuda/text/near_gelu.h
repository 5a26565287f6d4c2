// The approximation of GELU that codes (cuda/text/near.h) and 16-bit results (cuda/text/near_floats.h) are made of.
#pragma once

// x/2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x|/2 erfc(|x| / sqrt 2), erfc by 7.1.26 of Abramowitz and Stegun.
// NAME: of the function. SIZE: the |x| in front of erfc; for codes it is "a", and where infinity shall give infinity it needs a bound, as erfc is 0 there.
// A macro, because the texts are literals.
#define OCTAVO_NEAR_GELU(NAME, SIZE)                                                    \
  "OCTAVO_DEVICE float " NAME                                                           \
  "(float x) {\n"                                                                       \
  "  const float a = fabsf(x), t = octavo_inverse(__fmaf_rn(a, 0.231641889f, 1.0f));\n" \
  "  float p = __fmaf_rn(t, 0.530702710f, -0.726576030f);\n"                            \
  "  p = __fmaf_rn(t, p, 0.710706890f);\n"                                              \
  "  p = __fmaf_rn(t, p, -0.142248362f);\n"                                             \
  "  p = __fmul_rn(t, __fmaf_rn(t, p, 0.127414793f));\n"                                \
  "  const float g = octavo_exp2(__fmul_rn(__fmul_rn(x, x), -0.721347511f));\n"         \
  "  return __fmaf_rn(-" SIZE                                                           \
  ", __fmul_rn(p, g), fmaxf(x, 0.0f));\n"                                               \
  "}\n"
