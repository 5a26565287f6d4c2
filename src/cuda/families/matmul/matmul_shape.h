// A product of two computed matrices, read off a region: what its kernels need to know, in bytes and elements.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/families/families.h"
#include "cuda/text/epilogue.h"

namespace octavo::cuda {

/// What products are of. f32: products of float32 as three products in tf32 (split.inc). All types lie in memory in their own size: u8 codes, two bytes, four.
enum class ProductType : std::uint8_t { u8, bf16, f16, tf32, f32 };
[[nodiscard]] constexpr int bytes_of(ProductType t) {
  return t == ProductType::u8 ? 1 : t == ProductType::bf16 || t == ProductType::f16 ? 2 : 4;
}

/// How an operand comes into shared memory.
enum class Way : std::uint8_t {
  copied,  ///< neighbours in depth, rows aligned: asynchronous copies of `unit` bytes
  packed,  ///< neighbours in depth from any byte on: words, shifted into place in registers
  turned,  ///< vectors of `unit` elements of neighbouring rows, turned in registers; one element at a time where neither are neighbours
};

/// One of the two matrices, as rows of the depth that both are summed over: the left one, or the right one turned. Strides in bytes.
struct ProductSide {
  region::TensorRef ref;
  std::int64_t rows = 1, row = 0, depth = 0, outer = 0,
               inner = 0;  ///< row, depth: from one to the next; outer, inner: of the batch
  std::int32_t zero = 0;   ///< of codes, less 128 where they are `flipped`
  bool flipped = false;  ///< codes are multiplied as signed ones, less 128: then nothing is to be taken off for a zero point of 128
  Way way = Way::copied;
  int unit = 16;
  /// The largest magnitude that a code less its zero point has as it is multiplied.
  [[nodiscard]] double largest() const { return flipped ? 128 : zero > 127 ? zero : 255 - zero; }
  void set_zero(std::int32_t zero_point) { flipped = zero_point == 128, zero = flipped ? 0 : zero_point; }
};

struct ProductShape {
  ProductType type = ProductType::u8;
  std::int64_t outer = 1, inner = 1, k = 1;  ///< two dimensions of the batch; k: elements
  ProductSide a, b;
  bool swapped = false;  ///< a is the right side
  /// What follows the sums as an epilogue of convolutions sees it, over [outer, rows of b, inner, rows of a].
  Tail tail;
  [[nodiscard]] std::int64_t m() const { return a.rows; }
  [[nodiscard]] std::int64_t n() const { return b.rows; }
  [[nodiscard]] std::int64_t batch() const { return outer * inner; }
  [[nodiscard]] std::int64_t depth_bytes() const { return k * bytes_of(type); }
  [[nodiscard]] bool wide_offsets() const;  ///< some tensor reaches 2^31 bytes
};

/// Why a tensor holds no codes of one quantizer; empty: it does.
[[nodiscard]] Reasons why_no_codes(const region::TensorRef& t);

/// Sets how the side comes into shared memory (way, unit) from its strides; `k` elements of `size` bytes are its depth.
void choose_way(ProductSide& side, std::int64_t k, int size);

/// The type that the stage, a matmul or gemm of two inputs, is computed in by kernels on matrix units; nothing: in none.
[[nodiscard]] std::optional<ProductType> product_type(const region::Stage& stage);

/// Of a stage of that type: dimensions of the batch that lie evenly are joined, with the left rows too where all of them meet one right matrix;
/// left and right change places where results are neighbours along the left rows. Error: why kernels cannot take it.
[[nodiscard]] Result<ProductShape> read_product(const region::Stage& stage, const region::Plan& plan, ProductType type);

}  // namespace octavo::cuda
