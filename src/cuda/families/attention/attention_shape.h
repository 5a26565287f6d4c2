// What kernels of attention, whatever they compute in, need to know of their region: softmax of a product, times a third matrix.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cuda/families/families.h"
#include "cuda/text/elements.h"
#include "cuda/text/epilogue.h"

namespace octavo::cuda {

/// A program of one element; its operands over the space of the scores.
struct ElementProgram {
  program::Program program;
  std::vector<ElementAccess> operands;
};

/// Of a batch there are two dimensions, [outer, inner].
struct AttentionShape {
  std::size_t rank = 2;  ///< of the region's spaces
  std::int64_t outer = 1, inner = 1, queries = 1, keys = 1, features = 1, columns = 1;
  region::TensorRef q, k, p,
      v;  ///< q [.., queries, features], k [.., features, keys], p [.., queries, keys], v [.., keys, columns]
  ElementProgram scores, softmax;
  Tail product;                        ///< over [outer, columns, inner, queries], as an epilogue of convolutions sees it
  bool open = false;                   ///< the number of queries or of keys is an open extent
  std::array<std::size_t, 2> batch{};  ///< the dimensions of the space that outer and inner are; of extent 1: the rank
  [[nodiscard]] std::int64_t matrices() const { return outer * inner; }
  /// Elements of a tensor from one matrix to the next, in both dimensions of the batch.
  [[nodiscard]] std::array<std::int64_t, 2> batch_strides(const region::TensorRef& t) const;
  /// Does q, k, v or what the last program reads or writes reach 2^31 bytes?
  [[nodiscard]] bool wide_offsets() const;
};

/// Three stages: a product of two computed matrices, softmax, a product.
[[nodiscard]] bool is_attention(const region::Region& region);

/// Is the first product one of two matrices of float16 or bfloat16?
[[nodiscard]] bool product_of_halves(const region::Region& attention);

/// Of a region that is_attention. Error: what kernels in tiles of queries cannot take, whatever the types of the matrices.
[[nodiscard]] Result<AttentionShape> read_attention(const region::Region& region, const region::Plan& plan);

}  // namespace octavo::cuda
