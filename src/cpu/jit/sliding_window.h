// Generated 3x3 depthwise convolution, u8 x s8, that keeps its window in registers.
//
// As in depthwise.h the four bytes of a dot are input rows. A row of output (two rows at stride 1) is computed from left to right:
// each new input column is interleaved in registers once, [16 channels][4 rows] a vector, and takes the place of the column that
// left the window, or at stride 2 goes to the sums of both outputs that use it; nothing is written in between. One call computes
// several rows of a block. The epilogue is requantization (requant.h) and nothing else.
// Full blocks of 64 channels need no lane-crossing permutes: after the interleave, lane L of vector v holds channels 16 L + 4 v ...
// 16 L + 4 v + 3, which is the order that the packs of the epilogue turn back; weights and constants are packed in that order.
// Packed constants: [0] s8 weights, a block each [kernel column][vector][output row][64 bytes]; [1] f32, five values a channel, all
// channels of the first, then of the second ...: m, b (a Line of the bare sum), scale, bias, and the bits of the int32 -zx *
// sum(w); [2] s32 a vector: 1 where a block has lines.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/jit/conv_plan.h"
#include "cpu/jit/emitter.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {

struct SlidingWindowSetting {
  Conv2d shape;
  CodeOptions options;
  Streams streams;
  Constant weights;
  LoweredEpilogue epilogue;
  Requant requant;
  ChannelValues channels;
  ChannelOperand bias;  ///< s32 constants that are added to the sums: part of their initial values
  std::int32_t zero = 0;
  std::int64_t rows = 1;      ///< output rows computed together: 2 at stride 1
  std::int64_t row_tile = 1;  ///< output rows that are computed for one block, then for the next
  RowTasks tasks;
  std::int64_t ahead = 0;     ///< rows of the input that are fetched before those in front of them are read
  std::vector<Block> blocks;  ///< one channel block each; `init` counts values of one kind
  std::int64_t weight_bytes = 0, init_count = 0;
  double seconds = 0;

  [[nodiscard]] std::int64_t stride() const { return shape.stride[0]; }
  /// Columns in the window before the loop begins.
  [[nodiscard]] std::int64_t first_columns() const { return 3 - stride(); }
  /// Channel of the block at byte quad i of vector v.
  [[nodiscard]] static std::int64_t channel(const Block& b, std::int64_t v, std::int64_t i) {
    return b.channels == 64 ? 16 * (i / 4) + 4 * v + i % 4 : 16 * v + i;
  }
};
inline constexpr int kSlidingWindowSinks = 3;

[[nodiscard]] Result<SlidingWindowSetting> match_sliding_window(const region::Region& region, const region::Plan& plan,
                                                                const CodeOptions& options);

/// One block over `steps` times `rows` output rows from y on. The function changes row, y, out and steps.
struct SlidingWindowArgs {
  const std::byte* row = nullptr;      ///< column 0 of the first input row, which may be above the tensor: then it is not read
  std::int64_t row_bytes = 0;          ///< between input rows
  std::int64_t step_bytes = 0;         ///< between the first input rows of steps
  std::int64_t y = 0;                  ///< index of the first input row
  std::int64_t steps = 1;              ///< >= 1
  const std::byte* padding = nullptr;  ///< 64 zero points
  const std::byte* weights = nullptr;
  const float* values = nullptr;  ///< packed constant 1 at the block's init
  std::array<std::byte*, kSlidingWindowSinks> out{};
};
using SlidingWindowFn = void (*)(SlidingWindowArgs*);

/// What the code depends on (sliding_window_code.cc).
struct SlidingWindowShape {
  int vectors = 4, tail = 16, rows = 1;
  bool line = true;
  auto operator<=>(const SlidingWindowShape&) const = default;
};
std::size_t emit_sliding_window(Code& code, ConstantPool& pool, const SlidingWindowSetting& plan, const SlidingWindowShape& shape);

}  // namespace octavo::cpu::jit
