// What the texts of integer convolutions have in common: the declarations of their shape, the packed filter, the parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/families/conv/conv_shape.h"
#include "cuda/family.h"
#include "cuda/text/epilogue.h"

namespace octavo::cuda {

/// "constexpr int kName = 7;" and the end of the line.
[[nodiscard]] std::string declare(std::string_view name, std::int64_t value);

/// The shape as constants: kBatch, kInH, kInW, kChannels, kOutChannels, kOutH, kOutW, kPixels, kKernelH, kKernelW, kStrideH, kStrideW,
/// kDilationH, kDilationW, kPadTop, kPadLeft, kFillCode, kSkew, and the type octavo_offset with kInImage, kInRow, kInPixel.
[[nodiscard]] std::string conv_parameters(const ConvShape& shape);

/// How shared memory holds a filter: for each tile of channels step after step, in each step a row a channel.
struct FilterLayout {
  std::int64_t tiles = 1, steps = 1;
  int channels = 32;  ///< of a tile
  int bytes = 32;  ///< of a row: 32, 64 or 128. Its chunks of 16 bytes are permuted, so that reads of eight rows meet no bank twice
  int run = 4, piece = 4;  ///< which channel a row is, as epilogue.h has it
};
/// The weights in that order; what is beyond the channels or the taps is zero. `shape`: as a tile of channels sees it; where it has groups
/// its input channels are those of the tile's groups, `of_group` each, and weights between different groups are zero.
[[nodiscard]] ir::Tensor pack_filter(const ConvShape& shape, std::int64_t of_group, const ConvWeights& weights,
                                     const FilterLayout& layout);

/// Puts `by` in the place of `mark`, which the text has once.
void replace_mark(std::string& text, std::string_view mark, std::string_view by);

/// The parameters of a kernel: input, filter, what constants_with_start packs, and those of the epilogue; `prefix`: of their names.
[[nodiscard]] std::string conv_parameter_list(const Epilogue& epilogue, std::string_view prefix = "");
/// Their arguments, where the filter is constant `filter` of the text and the other constants are the next one.
void add_conv_arguments(Launch& launch, const region::TensorRef& input, std::int32_t filter, const Epilogue& epilogue);

}  // namespace octavo::cuda
