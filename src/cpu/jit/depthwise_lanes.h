// Generated depthwise convolution of floats, of bfloat16, or of codes with AVX2, channel multiplier 1: lanes of 32 bits are channels.
//
// A tile is some pixels of one output row by up to two vectors of channels. For every kernel row the weights of its taps are in
// registers, and each input column that the tile reaches is loaded once and added to every pixel that has a tap there. Nothing is
// padded: taps outside the image are left out, so there is code for each set of kernel rows and each clipped tile of a row. Codes are
// widened and their zero point subtracted as they are loaded; vpmaddwd multiplies them with weights that have 0 in their upper 16 bits.
// bfloat16 is widened to float, which is exact, and multiplied as such.
// Packed constants: [0] f32 or s32 weights, a block each [kernel row][kernel column][vector][channel]; [1] biases of that type or zeros.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cpu/jit/conv_plan.h"
#include "cpu/jit/emitter.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {

/// Taps of one axis that lie inside the image, [begin, end).
struct TapRange {
  std::int64_t begin = 0, end = 0;
  auto operator<=>(const TapRange&) const = default;
};

struct DepthwiseLanesSetting {
  Conv2d shape;
  CodeOptions options;
  bool divides = false;  ///< the program has a division
  Streams streams;
  Constant weights;
  std::vector<std::int32_t> weight_zero;
  bool codes = false;     ///< u8 times s8; floats otherwise
  bool bf16 = false;      ///< the input and the weights, before they are packed
  std::int32_t zero = 0;  ///< of the input
  LoweredEpilogue epilogue;
  ChannelOperand bias;                          ///< as ConvSetting::bias
  std::int64_t row_bytes = 0, pixel_bytes = 0;  ///< of the input
  std::int64_t rows = 1;                        ///< output rows of a block, before the next block
  RowTasks tasks;
  std::int64_t ahead = 0;  ///< rows of the input that are fetched while others are read
  std::vector<Block> blocks;
  std::int64_t weight_bytes = 0, init_count = 0;
  double seconds = 0;

  [[nodiscard]] std::int64_t element() const { return codes ? 1 : bf16 ? 2 : 4; }  ///< bytes, of the input
  [[nodiscard]] int spare_registers() const {
    return epilogue.lanes == 16 ? 4 : codes ? 3 : 2;
  }  ///< inputs, and of codes a product
  /// The taps of output position `at` of axis 0 (rows) or 1 (columns) that are inside.
  [[nodiscard]] TapRange taps(int axis, std::int64_t at) const;
  /// The most pixels of a tile of so many vectors.
  [[nodiscard]] int most_columns(int vectors) const;
};

/// `dots`: floats, bf16, or pairs, where options.lanes must be 8.
[[nodiscard]] Result<DepthwiseLanesSetting> match_depthwise_lanes(const region::Region& region, const region::Plan& plan,
                                                                  const CodeOptions& options, Dots dots);

/// Tiles of `columns` output pixels of a row: kernel rows that are inside, and taps of each pixel where `clipped` (whole windows
/// otherwise).
struct DepthwiseLanesTile {
  int columns = 1, vectors = 1, tail = 16;
  TapRange rows;
  std::vector<TapRange> clipped;
  auto operator<=>(const DepthwiseLanesTile&) const = default;
};
/// depthwise_lanes_code.cc: a TileFn; column 0 of the pixel table is the offset of the first pixel's window, which may begin outside.
std::size_t emit_depthwise_lanes_tile(Code& code, ConstantPool& pool, const DepthwiseLanesSetting& d,
                                      const DepthwiseLanesTile& tile, bool vbmi);

}  // namespace octavo::cpu::jit
