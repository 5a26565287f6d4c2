// Kernels over rows: statistics, ranges, products of a few rows with a matrix, positions of maxima. Compiled three times (portable.cc, avx2.cc,
// avx512.cc) from rows.inc, detection.inc and the vectors of block/; plain data and no inline functions, as in block/block.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {

/// Most elements that arg_max compares where they are codes: a code and a position are one 31-bit integer.
constexpr std::int64_t kMostCodes = std::int64_t{1} << 23;

/// Matrices that rows are multiplied with have a multiple of so many columns.
constexpr std::int64_t kColumns = 16;

/// Most rows that `statistics` takes at once.
constexpr std::int64_t kStatisticsRows = 16;

/// Boxes side by side: their corners and areas, each a row of `step` floats, a multiple of kBoxes; where there is no box, zeros.
constexpr std::int64_t kBoxes = 16;
struct BoxRows {
  float* rows;  ///< y0, x0, y1, x1, area
  std::int64_t step;
};

// Steps count elements. Rows may lie anywhere; `cols` and `n` may be anything, 0 too.
struct RowKernels {
  // sums[c] += x[r * step + c], row after row
  void (*add)(float* sums, const float* x, std::int64_t rows, std::int64_t step, std::int64_t cols);
  // sums[c] = fma(d, d, sums[c]) with d = x[r * step + c] - mean[c]
  void (*add_squares)(float* sums, const float* x, const float* mean, std::int64_t rows, std::int64_t step, std::int64_t cols);
  // The same of n neighbours: their sum, and the sum of the squares of their distances from `mean`. Several partial sums at a time.
  float (*sum)(const float* x, std::int64_t n);
  float (*squares)(const float* x, float mean, std::int64_t n);
  // Of each of `rows` rows of n neighbours, at most kStatisticsRows, `step` floats apart: the mean, and 1 / sqrt(variance + epsilon). The sums
  // have the order of `sum` and `squares`; what follows them is done for all rows at once.
  void (*statistics)(float* mean, float* inverse, const float* x, std::int64_t rows, std::int64_t step, std::int64_t n,
                     float epsilon);
  // to[r * n + i] = fma((x[r * step + i] - mean[r]) * inverse[r], scale[i], bias[i])
  void (*normalize)(float* to, const float* x, std::int64_t rows, std::int64_t step, std::int64_t n, const float* mean,
                    const float* inverse, const float* scale, const float* bias);
  // to[i] = (x[i] - mean[i]) * inverse[i], n of them
  void (*centre)(float* to, const float* x, const float* mean, const float* inverse, std::int64_t n);
  // to[i] = fma(to[i], scale[i], bias[i])
  void (*scale)(float* to, const float* scale, const float* bias, std::int64_t n);
  // to[i] = fma(to[i], scale, bias)
  void (*scale_all)(float* to, float scale, float bias, std::int64_t n);
  // to[i] = (x[i] - mean) * inverse
  void (*centre_all)(float* to, const float* x, float mean, float inverse, std::int64_t n);
  // y[r * y_step + j] += sum over i < k of x[r * x_step + i] * w[i * w_step + j], j < n; n is a multiple of kColumns
  void (*multiply)(float* y, std::int64_t y_step, const float* x, std::int64_t x_step, std::int64_t rows, const float* w,
                   std::int64_t w_step, std::int64_t k, std::int64_t n);
  // The same of x[i * x_step + r]: the factors of a column's products are neighbours
  void (*multiply_turned)(float* y, std::int64_t y_step, const float* x, std::int64_t x_step, std::int64_t rows, const float* w,
                          std::int64_t w_step, std::int64_t k, std::int64_t n);
  // to[c * to_step + r] = from[r * from_step + c]
  void (*transpose)(float* to, std::int64_t to_step, const float* from, std::int64_t from_step, std::int64_t rows,
                    std::int64_t cols);
  // Widens [*least, *most] until it holds all of x that are no NaN
  void (*range)(const float* x, std::int64_t n, float* least, float* most);
  // The largest of x that is no NaN, or minus infinity
  float (*largest)(const float* x, std::int64_t n);
  // to[i] = exp(x[i] - less), the operations of program/math.inc in their order
  void (*exp_differences)(float* to, const float* x, float less, std::int64_t n);
  // to[r] = the sum of x[r * step + i], i < n, in the blocks of reference/sums.h
  void (*sums_in_blocks)(float* to, const float* x, std::int64_t rows, std::int64_t step, std::int64_t n);
  // sums[c] += x[c * step] (`product`: *=), and to[c] = sums[c], or what it was before (`exclusive`)
  void (*cumulate)(float* sums, float* to, const float* x, std::int64_t step, std::int64_t cols, bool product, bool exclusive);
  // to[i] = x[i] / by
  void (*divide)(float* to, const float* x, float by, std::int64_t n);
  // Softmax of columns x[i * step + c], i < n, c < cols, a multiple of kColumns: exp of the differences from the largest, in place, and
  // sums[c] of these in blocks; then the division of each column by its own
  void (*exp_columns)(float* x, std::int64_t step, std::int64_t n, std::int64_t cols, float* sums);
  void (*divide_columns)(float* x, std::int64_t step, std::int64_t n, std::int64_t cols, const float* by);
  // to[i] = QuantizeLinear(x[i]) to u8 with a scale and a zero point
  void (*quantize)(std::uint8_t* to, const float* x, std::int64_t n, float scale, std::int32_t zero);
  // Where the maximum is: the first, or the last of equal ones. A NaN is never greater and nothing is greater than it, so a row that
  // begins with one gives 0. Of n >= 1 neighbours:
  std::int32_t (*arg_max)(const float* x, std::int64_t n, bool last);
  std::int32_t (*arg_max_codes)(const std::uint8_t* x, std::int64_t n, bool last);
  // and to[c] of x[r * step + c], r < rows
  void (*arg_max_columns)(std::int32_t* to, const float* x, std::int64_t rows, std::int64_t step, std::int64_t cols, bool last);
  void (*arg_max_code_columns)(std::int32_t* to, const std::uint8_t* x, std::int64_t rows, std::int64_t step, std::int64_t cols,
                               bool last);
  // Integers in the order of x (of -x with `smallest`): both zeros are equal, and NaN is greater than all (with `smallest`: less)
  void (*order)(std::int32_t* to, const float* x, std::int64_t n, bool smallest);
  // The first position from `at` on whose element is greater than `least`; n where there is none
  std::int64_t (*next_greater)(const std::int32_t* x, std::int64_t at, std::int64_t n, std::int32_t least);
  std::int64_t (*next_greater_float)(const float* x, std::int64_t at, std::int64_t n, float least);
  // Has one of the first n boxes an intersection with `box` (y0, x0, y1, x1) of more than `most` of their union?
  bool (*overlaps)(const BoxRows& boxes, std::int64_t n, const float* box, float most);
};
const RowKernels& portable_rows();
#if defined(__x86_64__)
const RowKernels& avx2_rows();
const RowKernels& avx512_rows();
#endif

}  // namespace octavo::cpu
