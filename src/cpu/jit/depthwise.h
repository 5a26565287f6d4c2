// Generated depthwise convolution, u8 x s8, channel multiplier 1.
//
// vpdpbusd adds four products into each lane, and a depthwise channel has no other channels to fill them with, so the four bytes
// are four input rows. First the rows of a strip are interleaved in scratch: [quad of rows][column][vector][16 channels][4 rows].
// One such quad serves every kernel column and two output rows (3x3, stride 1: four rows, weights w0 w1 w2 0 and 0 w0 w1 w2), so
// the byte shuffles are paid once for 2 * kernel_w uses. Packed constants: [0] s8 weights, a block each [quad][kernel
// column][vector][output row][16 channels][4 rows]; [1] s32 initial accumulators -zx * sum(w).
#pragma once

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/jit/conv_plan.h"
#include "cpu/jit/emitter.h"
#include "region/host_kernel.h"

namespace octavo::cpu::jit {

/// All that the code depends on but the shapes of its tiles and the epilogue: emission is given nothing else.
struct DepthwiseGeometry {
  std::int64_t kernel_rows = 1, kernel_columns = 1;
  std::array<std::int64_t, 2> stride{1, 1}, dilation{1, 1};
  std::int64_t rows = 1;  ///< output rows computed together
  std::int64_t quads = 1;
  int halves = 1;
  bool starts_at_zero = false;
  bool operator==(const DepthwiseGeometry&) const = default;

  /// Input columns that `columns` output columns read.
  [[nodiscard]] std::int64_t input_columns(std::int64_t columns) const {
    return (columns - 1) * stride[1] + (kernel_columns - 1) * dilation[1] + 1;
  }
  /// Kernel row that output row r (0 <= r < rows) applies to byte b of quad q, or -1.
  [[nodiscard]] std::int64_t kernel_row(std::int64_t r, std::int64_t q, std::int64_t b) const;
  /// Whether output row r uses quad q at all.
  [[nodiscard]] bool uses(std::int64_t r, std::int64_t q) const;
};

struct DepthwiseSetting {
  Conv2d shape;
  CodeOptions options;
  bool divides = false;  ///< the program has a division
  Streams streams;
  Constant weights;
  std::vector<std::int32_t> weight_zero;
  LoweredEpilogue epilogue;
  std::int32_t zero = 0;
  int halves = 1;               ///< as ConvSetting::halves; both are applied to what is in a register
  std::int64_t rows = 1;        ///< output rows computed together
  std::int64_t input_rows = 1;  ///< that they read
  std::int64_t quads = 1;
  std::int64_t strip = 1;  ///< output columns of a strip
  RowTasks tasks;
  std::int64_t ahead = 0;     ///< rows of the input that are fetched while others are read
  std::vector<Block> blocks;  ///< one channel block each; weights and init offsets as in Block
  std::int64_t weight_bytes = 0, init_count = 0;
  double seconds = 0;

  /// Input columns that `columns` output columns read.
  [[nodiscard]] std::int64_t input_columns(std::int64_t columns) const { return geometry().input_columns(columns); }
  [[nodiscard]] DepthwiseGeometry geometry() const {
    return {shape.kh, shape.kw, shape.stride, shape.dilation, rows, quads, halves, zero == 0};
  }
  /// The most columns of a tile of so many rows and vectors.
  [[nodiscard]] static int most_columns(std::int64_t tile_rows, int vectors);
};

[[nodiscard]] Result<DepthwiseSetting> match_depthwise(const region::Region& region, const region::Plan& plan,
                                                       const CodeOptions& options);
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_depthwise(const DepthwiseSetting& dw);

/// What the interleaving function receives: `count` columns of four rows.
struct InterleaveArgs {
  std::array<const std::byte*, 4> row{};
  std::array<std::int64_t, 4> step{};  ///< bytes between columns; 0 for a row that is all padding
  std::byte* to = nullptr;
  std::int64_t count = 0;
};
using InterleaveFn = void (*)(InterleaveArgs*);

/// depthwise_code.cc
std::size_t emit_interleave(Code& code, ConstantPool& pool, int vectors, int tail);
/// A tile of rows x columns output pixels.
struct DepthwiseTile {
  int columns = 1, rows = 1, vectors = 1, tail = 16;
  std::int64_t strip_columns = 1;  ///< output columns of the strip
  auto operator<=>(const DepthwiseTile&) const = default;
};
std::size_t emit_depthwise_tile(Code& code, ConstantPool& pool, const DepthwiseGeometry& dw, const LoweredEpilogue& epilogue,
                                const DepthwiseTile& tile, bool vbmi);

/// One function: of a tile, or one that interleaves rows for blocks of such vectors and such a tail.
struct DepthwisePiece {
  bool interleaves = false;
  DepthwiseTile tile;
  auto operator<=>(const DepthwisePiece&) const = default;
};
/// What is generated, in order.
struct DepthwiseCodeKey {
  DepthwiseGeometry geometry;
  LoweredEpilogue epilogue;
  bool vbmi = false;
  std::vector<DepthwisePiece> pieces;
  bool operator==(const DepthwiseCodeKey&) const = default;
};
struct DepthwiseCode {
  Code code;
  std::vector<std::size_t> at;  ///< where each piece begins
};

}  // namespace octavo::cpu::jit
