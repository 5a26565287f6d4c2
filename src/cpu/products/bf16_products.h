// Products of two matrices of bfloat16 that are both computed at run time, with sums in float32. Compiled for two levels (avx512bf16.cc,
// amx_bf16.cc) from bf16_packing.inc and a loop of each level's own; plain data and no inline functions, as in block/block.h.
//
//   sums[r][c] = sum over k < depth of left[r][k] * right[k][c], k and k + 1 at a time, from 0 on
//
// Both matrices are packed in dwords along the depth, two elements each, the first in the low half: left [row][pair], right [pair][column].
// Behind the end of the depth both are packed as zeros: a zero times what is no number would be none. Rows of a left matrix and columns of a right
// one that do not exist may be anything, because they are sums of their own.
#pragma once

#include <cstdint>

namespace octavo::cpu {

/// Columns of packed right matrices and of sums are a multiple of this.
constexpr std::int64_t kBf16Columns = 16;

/// A matrix in memory: element (i, j) at data[i * row + j * col].
struct Bf16Matrix {
  const std::uint16_t* data;
  std::int64_t row, col;
};

// Steps count dwords, or floats.
struct Bf16Products {
  std::int64_t depth_step;  ///< matrices are packed with a multiple of so many pairs
  std::int64_t row_step;    ///< so many rows, or a multiple, of left matrices and of sums are read and written

  // to[r * step + g]: row r of the left matrix (rows x depth), `pairs` of them; pairs * 2 >= depth
  void (*pack_left)(std::uint32_t* to, std::int64_t step, const Bf16Matrix& from, std::int64_t rows, std::int64_t depth,
                    std::int64_t pairs);
  // to[g * step + c]: the right matrix (depth x columns); zeros up to a multiple of kBf16Columns
  void (*pack_right)(std::uint32_t* to, std::int64_t step, const Bf16Matrix& from, std::int64_t depth, std::int64_t columns,
                     std::int64_t pairs);
  // The right matrix of x[k * step + c] / by[c], k < depth, c < columns (a multiple of kBf16Columns), rounded to bfloat16. x: as RowKernels::exp_columns
  // leaves it, and `by` its sums.
  void (*pack_quotients)(std::uint32_t* to, const float* x, std::int64_t step, const float* by, std::int64_t depth,
                         std::int64_t columns, std::int64_t pairs);
  // to[r * to_step + c] = x[r * step + c], r < rows, c < columns, rounded to bfloat16. Steps count elements.
  void (*store_rounded)(std::uint16_t* to, std::int64_t to_step, const float* x, std::int64_t step, std::int64_t rows,
                        std::int64_t columns);
  // sums[r * step + c]; columns a multiple of kBf16Columns
  void (*multiply)(float* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, std::int64_t rows,
                   const std::uint32_t* right, std::int64_t right_step, std::int64_t columns, std::int64_t pairs);
  // Around calls of multiply on a thread
  void (*begin)();
  void (*end)();
};
#if defined(__x86_64__)
const Bf16Products& avx512bf16_products();
const Bf16Products& amx_bf16_products();
#endif

}  // namespace octavo::cpu
