// A maximum over windows behind a first layer, in the same kernel (conv_rows.cc, conv_rows_pool.inc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/families/conv/conv_shape.h"

namespace octavo::cuda {

/// MaxPool over the codes of a convolution, in two dimensions.
struct Pooling {
  std::int64_t out_h = 1, out_w = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0;
};

/// Does the stage pool the one result of `conv`, which nothing else of the stage reads?
[[nodiscard]] bool pools(const region::Stage& stage, const region::Stage& conv);
/// Error: why the pair cannot be one kernel, with the values. `tail`: of `conv`.
[[nodiscard]] Result<Pooling> read_pooling(const region::Stage& stage, const region::Stage& conv, const Tail& tail);

/// What a tile of pooled pixels needs of the convolution.
struct PoolCover {
  std::int64_t rows = 1, columns = 16;  ///< of the convolution's result that a tile has in shared memory; columns: a multiple of 16
  std::int64_t row_pixels = 16;         ///< places of a row there
};
[[nodiscard]] PoolCover cover_of(const Pooling& pooling, const ConvShape& conv, std::int64_t rows, std::int64_t columns);

/// The convolution's tail with its result in shared memory instead.
[[nodiscard]] Tail into_tile(const Tail& conv, const PoolCover& cover, std::int64_t channels);

/// Can sums be pooled before the convolution's program computes codes of them, |sum| <= `accumulator`? The program rises with the sum, the pooling stores
/// codes as they are, and windows are of the kind that registers hold.
[[nodiscard]] Reasons why_not_sums(const Pooling& pooling, const ConvShape& shape, const Tail& conv, const Tail& pool,
                                   double accumulator);
/// The tail that then follows the sums: the convolution's program with the pooling's pixels and store.
[[nodiscard]] Tail on_pooled_sums(const Tail& conv, const Tail& pool);

/// Where the channel constants of the pooling's program begin in its parameter "pooled_constants".
inline constexpr std::int64_t kPoolConstantsAt = 16;
/// The pooling's program. `padded_channels`: as of the convolution.
[[nodiscard]] EmittedEpilogue pool_epilogue(const Tail& tail, std::int64_t padded_channels);
/// What stands in front of the text: the numbers of the pooling and of its tile, and its program if codes are pooled, in a namespace of its own.
[[nodiscard]] std::string pool_numbers(const Pooling& pooling, std::int64_t rows, std::int64_t columns,
                                       const EmittedEpilogue* epilogue);
/// The functions.
[[nodiscard]] std::string_view pool_functions();

/// Windows side by side that a warp has in registers, and that it stores.
inline constexpr std::int64_t kPoolSlots = 8;
[[nodiscard]] constexpr std::int64_t strip_of(const Pooling& p) {
  return kPoolSlots - (p.kernel_w - 2);
}

/// Clocks of a multiprocessor for so many pooled pixels, by codes.
[[nodiscard]] double pool_clocks(const Pooling& pooling, double pixels, int channels);

}  // namespace octavo::cuda
