// Weights of a few bits with a scale for each block: what models for language carry instead of floats.
#pragma once

#include <cstdint>
#include <memory>

#include "ir/tensor.h"

namespace octavo::ir {

/// A constant matrix [rows, columns]. Element (i, j) is (codes[j, i] - zeros[j, i / block]) * scales[j, i / block], the difference and the product
/// each rounded to float32.
struct BlockCodes {
  int bits = 4;            ///< 2, 4 or 8: codes are less than 2^bits
  std::int64_t block = 1;  ///< rows that share a scale; the last block may have fewer
  Tensor codes;            ///< u8 [columns, rows], one a byte
  Tensor scales, zeros;    ///< f32 [columns, blocks]

  [[nodiscard]] std::int64_t columns() const { return codes.shape()[0]; }
  [[nodiscard]] std::int64_t rows() const { return codes.shape()[1]; }
  [[nodiscard]] std::int64_t blocks() const { return scales.shape()[1]; }
  /// Have all blocks one zero point?
  [[nodiscard]] bool one_zero() const;
};

/// The elements, f32 [rows, columns]: a tensor that keeps its codes (Tensor::codes).
[[nodiscard]] Tensor values_of(std::shared_ptr<const BlockCodes> codes);

}  // namespace octavo::ir
