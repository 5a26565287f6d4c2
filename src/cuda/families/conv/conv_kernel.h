// What kernels of convolutions have in common: windows whose input lies in shared memory, the numbers of their texts, the packed filter, and how
// a kernel is put together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/families/conv/conv_shape.h"
#include "cuda/text/epilogue.h"
#include "cuda/text/open.h"
#include "cuda/text/pieces.h"

namespace octavo::cuda {

/// One stage: an int8 convolution by constant weights, of one group, with a window larger than 1x1.
[[nodiscard]] bool is_windowed(const region::Region& region);
/// What kernels that keep a window's input tile in shared memory need of the shape; `most_steps`: products of 32 bytes that they unroll.
[[nodiscard]] Reasons why_not_windowed(const ConvShape& shape, std::int64_t most_steps);
/// Blocks of a launch whose blocks take several of `items` tiles and keep one filter: a multiple of `tiles_n`.
[[nodiscard]] std::int64_t blocks_of_filters(std::int64_t items, std::int64_t tiles_n, int blocks, const Target& target);

/// That a thread can have where so many blocks of so many threads share a multiprocessor, whose warps are dealt to four quarters with registers of their own.
[[nodiscard]] std::int64_t registers_of_thread(std::int64_t threads, int blocks);

/// The shape as constants (for all that have a third dimension kInD, kInFrame, kOutD, kKernelD, ... as well): kBatch, kInH, kInW, kChannels, kOutChannels, kOutH, kOutW, kPixels, kKernelH, kKernelW, kStrideH, kStrideW,
/// kDilationH, kDilationW, kPadTop, kPadLeft, kFillCode, kSkew, and the type octavo_offset with kInImage, kInRow, kInPixel. Of an open batch
/// without kBatch and kPixels, which the kernel then takes as parameters as far as its text has them.
[[nodiscard]] std::string conv_parameters(const ConvShape& shape);

/// Device functions by which threads find the rows of a tile's activations and copy a step of its depth (conv_load.inc), with the marks of text_for.
[[nodiscard]] std::string_view conv_load_text();

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

/// The parameters of a kernel: input, filter, what constants_with_start packs, and those of the epilogue; `prefix`: of their names.
[[nodiscard]] std::string conv_parameter_list(const EmittedEpilogue& epilogue, std::string_view prefix = "");
/// Their arguments, where the filter is constant `filter` of the text and the other constants are the next one.
void add_conv_arguments(Launch& launch, const region::TensorRef& input, std::int32_t filter, const EmittedEpilogue& epilogue);

/// The epilogue of a convolution: `rows` pixels and `run` channels of a thread; `largest_sum`: of its weights.
[[nodiscard]] EpilogueShape conv_epilogue(const Tail& tail, double largest_sum, int rows, int run, std::int64_t padded_channels);

/// A kernel of one convolution and one launch. The text has the marks @PARAMETERS@ and @POINTERS@.
struct ConvKernel {
  std::string_view function;
  std::string numbers;  ///< in front of the epilogue
  std::string text;     ///< behind it
  std::int64_t grid = 1, threads = 1, shared = 0;
  int rows = 1, run = 4;  ///< pixels and channels of a thread
  std::int64_t padded_channels = 0;
  OpenNumbers open = {};              ///< of an open batch: what the text has of it
  bool ahead = false, pairs = false;  ///< as in EpilogueShape
  CountedItems counted = {};
  std::optional<ImageMap> image;  ///< the parameter `image` describes the input
  /// Where several: the parameter `starts` holds what sums begin with for each, padded_channels each, 32 bits.
  std::vector<std::vector<std::int32_t>> starts;
};
namespace detail {
/// All but the filter, which is the first constant.
[[nodiscard]] Result<KernelText> put_together(const ConvSetting& conv, ConvKernel kernel, const EpilogueShape& shape,
                                              std::span<const std::int32_t> start);
}  // namespace detail
/// With the filter that `pack` makes of the weights. Error: a program that no epilogue can be.
template <class Pack>
[[nodiscard]] Result<KernelText> emit_conv_kernel(const ConvSetting& conv, const ConvWeights& weights, ConvKernel kernel,
                                                  const Pack& pack) {
  EpilogueShape shape = conv_epilogue(conv.tail, weights.largest_sum, kernel.rows, kernel.run, kernel.padded_channels);
  shape.real = conv.shape.type != ConvType::u8s8, shape.ahead = kernel.ahead, shape.pairs = kernel.pairs;
  OCTAVO_TRY(KernelText out, detail::put_together(conv, std::move(kernel), shape, weights.start));
  out.constants.insert(out.constants.begin(), of_weights(pack(weights, shape)));
  return out;
}
template <class Pack>
[[nodiscard]] Result<KernelText> emit_conv_kernel(const ConvSetting& conv, ConvKernel kernel, const Pack& pack) {
  return emit_conv_kernel(conv, read_weights(conv), std::move(kernel), pack);
}

}  // namespace octavo::cuda
