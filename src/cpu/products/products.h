// Products of two matrices of 8-bit codes that are both computed at run time. Compiled once a level of instructions (portable.cc, avx2.cc,
// avx512vnni.cc, amx.cc) from packing.inc and a loop of each level's own; plain data and no inline functions, as in block/block.h.
//
//   sums[r][c] = sum over k < depth of (left[r][k] - zero of left) * (right[k][c] - zero of right)       exact in 32 bits
//
// Both matrices are packed in dwords along the depth, `group` codes each: left [row][group], right [group][column].
//   bytes (group 4)   left as the code (u8), right as the code - 128 (s8): what vpdpbusd and tdpbusd multiply. What the zero points add
//                     is a term a row and a term a column, which the sums begin with.
//   words (group 2)   both as the code - its zero point, as vpmaddwd multiplies them: no terms.
// Codes behind the end of the depth are packed as zeros, whose products are 0.
#pragma once

#include <cstdint>

namespace octavo::cpu {

/// Columns of packed right matrices and of sums are a multiple of this.
constexpr std::int64_t kDotColumns = 16;

/// A matrix of codes in memory: element (i, j) at data[i * row + j * col].
struct CodeMatrix {
  const std::uint8_t* data;
  std::int64_t row, col;
  std::int32_t zero;
};

// Steps count dwords.
struct CodeProducts {
  int group;                ///< codes of a dword: 4 or 2
  std::int64_t depth_step;  ///< matrices are packed with a multiple of so many groups
  std::int64_t row_step;    ///< so many rows, or a multiple, of left matrices and of sums are read and written

  // to[r * step + g]: row r of the left matrix (rows x depth), `groups` of them; groups * group >= depth
  void (*pack_left)(std::uint32_t* to, std::int64_t step, const CodeMatrix& from, std::int64_t rows, std::int64_t depth,
                    std::int64_t groups, std::uint32_t* scratch);
  // to[g * step + c]: the right matrix (depth x columns); zeros up to a multiple of kDotColumns. Scratch of both: as large as the result
  void (*pack_right)(std::uint32_t* to, std::int64_t step, const CodeMatrix& from, std::int64_t depth, std::int64_t columns,
                     std::int64_t groups, std::uint32_t* scratch);
  // What the sums of a row begin with, and what those of a column do; without terms: 0
  void (*row_terms)(std::int32_t* to, const std::uint32_t* left, std::int64_t step, std::int64_t rows, std::int64_t groups,
                    std::int32_t right_zero);
  void (*column_terms)(std::int32_t* to, const std::uint32_t* right, std::int64_t step, std::int64_t columns, std::int64_t groups,
                       std::int64_t depth, std::int32_t left_zero, std::int32_t right_zero);
  // sums[r * step + c] = row_terms[r] + column_terms[c] + the products; columns a multiple of kDotColumns
  void (*multiply)(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms,
                   const std::uint32_t* left, std::int64_t left_step, std::int64_t rows, const std::uint32_t* right,
                   std::int64_t right_step, std::int64_t columns, std::int64_t groups);
  // The products alone, for sums whose reader adds the terms; null where multiply adds them at no cost
  void (*multiply_alone)(std::int32_t* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step,
                         std::int64_t rows, const std::uint32_t* right, std::int64_t right_step, std::int64_t columns,
                         std::int64_t groups);
  // Around calls of multiply on a thread
  void (*begin)();
  void (*end)();
};
const CodeProducts& portable_products();
#if defined(__x86_64__)
const CodeProducts& avx2_products();
const CodeProducts& avx512vnni_products();
const CodeProducts& amx_products();
#endif

}  // namespace octavo::cpu
