// What attention on codes does to a tile of scores, [key][query], in one pass each: integer sums become scores, exponentials become the packed codes of
// probabilities. The same bits as the stage's program gives, one operation after the other. Compiled three times, as rows.h.
#pragma once

#include <cstdint>

namespace octavo::cpu {

/// score = after(rounded(float(sum) * unit)):
///   rounded (where `rounds`)   n = clamp(round(x / step), lo, hi), then n * grid
///   after                      a product with `by`, or the quotient
struct ScoreForm {
  float unit = 1;
  bool rounds = false;
  float step = 1, high = 0, low = 0;  ///< high > 0: round(fma(x, high, x * low)) is the same for every x (program/reciprocal.h)
  float lo = 0, hi = 0, grid = 1;
  enum class After : std::uint8_t { nothing, product, quotient } after = After::nothing;
  float by = 1;
};
/// code = clamp(round(e / sum / step), lo, hi) + zero, which is in [0, 255]; 0 in place of a NaN where `nan_is_zero`.
struct ProbabilityForm {
  float step = 1, lo = 0, hi = 0;
  std::int32_t zero = 0;
  bool nan_is_zero = true;
};

/// The right matrix of a product of codes (products/products.h) that probabilities become.
struct PackedCodes {
  std::uint32_t* to;  ///< [group * step + column]
  std::int64_t step, groups;
  int group;                      ///< codes of a dword: 4 bytes, each the code - 128, or 2 words, each the code - zero
  std::int32_t zero, other_zero;  ///< zero points of this matrix and of the left one
  std::int32_t* terms;            ///< one a column, as CodeProducts::column_terms gives them
};

struct AttentionRows {
  // rows x cols sums in place, cols a multiple of kColumns; row_terms[r] and column_terms[c] are added to them first. Both or row_terms may be null
  void (*scores)(float* tile, std::int64_t step, std::int64_t rows, std::int64_t cols, const std::int32_t* row_terms,
                 const std::int32_t* column_terms, const ScoreForm& form);
  // The codes of x[i * step + c], i < n, c < cols, a multiple of kColumns, packed; sums[c] as RowKernels::exp_columns leaves them
  void (*pack_codes)(const PackedCodes& to, const float* x, std::int64_t step, std::int64_t n, std::int64_t cols, const float* sums,
                     const ProbabilityForm& form);
};
const AttentionRows& portable_attention();
#if defined(__x86_64__)
const AttentionRows& avx2_attention();
const AttentionRows& avx512_attention();
#endif

}  // namespace octavo::cpu
