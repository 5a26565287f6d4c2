// Products of rows of floats with matrices of codes (ir/block_codes.h), as kernels hold them. Compiled three times from coded.inc; plain data, as in rows.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows/rows.h"

namespace octavo::cpu {

/// Groups of kColumns columns. Of each: codes of 4 bits, kColumns bytes for two rows, the first row in the low halves; codes of 8 bits, kColumns bytes
/// a row; then kColumns scales, and zero points, for each block of rows. An odd last row of 4 bits has zeros beside it.
struct CodedMatrix {
  const std::uint8_t* codes;
  const float* scales;
  const float* zeros;  ///< null: all are `zero`
  float zero;
  std::int64_t code_step, scale_step;  ///< bytes, floats from group to group
  std::int64_t rows, block;            ///< of 4 bits, blocks are even, or there is one
  int bits;                            ///< 4 or 8
};

struct CodedRowKernels {
  // y[r * y_step + j] = sum over i of x[r * x_step + i] * m[i, j], r < rows, j < groups * kColumns
  void (*multiply)(float* y, std::int64_t y_step, const float* x, std::int64_t x_step, std::int64_t rows, const CodedMatrix& m,
                   std::int64_t groups);
  // to[(i - first) * to_step + j] = m[i, j] for `count` rows from `first` on, even for 4 bits, and so many groups
  void (*unpack)(float* to, std::int64_t to_step, const CodedMatrix& m, std::int64_t first, std::int64_t count,
                 std::int64_t groups);
};
const CodedRowKernels& portable_coded();
#if defined(__x86_64__)
const CodedRowKernels& avx2_coded();
const CodedRowKernels& avx512_coded();
#endif

}  // namespace octavo::cpu
