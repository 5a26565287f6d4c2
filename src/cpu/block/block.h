// Plain data handed from ordinary code to the block kernels, which are compiled three times (portable.cc, avx2.cc, avx512.cc) from
// the same .inc files. Nothing here may be a standard container or an inline function (see CMakeLists.txt).
//
// A *block* is rows x cols elements of one region's iteration space. Values of the program live in *slots*: arrays
// of floats or int32, row-major with cols elements a row, in the worker's scratch (L1). One operation runs over the whole
// block at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {

inline constexpr int kBlock = 256;            // elements that a slot has in every program; short programs have longer slots
inline constexpr int kTableBytes = 256 + 64;  // a table with room for wide reads

enum class Elem : std::uint8_t { u8, s8, s32, f32, f16, bf16 };

// The operations of program/ops.def under the same numbers, then fused sequences that the compiler in code.cc finds.
enum class BlockOp : std::uint8_t {
#define PROGRAM_OP(id, text, operands, result, meaning) id,
#include "program/ops.def"
  scale_bias,  // fma(i2f(a), b, c)
  quantize,  // f2i(min(max(a / f0, f1), f2)) + imm; with nan0 after the division when d == 1. f3 > 0: fma(a, f0, a * f3) for a / f0
};

struct Step {
  BlockOp op = BlockOp::imm_i;
  Elem elem = Elem::u8;                              // load_*: type in memory
  std::int32_t dst = 0, a = 0, b = 0, c = 0, d = 0;  // slots
  std::int32_t imm = 0;                              // as program::Instr::imm
  float f0 = 0, f1 = 0, f2 = 0, f3 = 0;              // quantize
};
struct StoreStep {
  std::int32_t slot = 0;
  Elem elem = Elem::u8;
};
struct BlockCode {
  const Step* steps = nullptr;
  int step_count = 0;
  const StoreStep* stores = nullptr;
  int store_count = 0;
  const std::uint8_t* tables = nullptr;  // kTableBytes each
  int stride = kBlock;                   // elements from slot to slot; a block has at most that many
};

// Element (r, c) is at base + (row_offsets ? row_offsets[r] : r * row) + c * col, all in bytes.
struct Stream {
  std::byte* base = nullptr;
  std::int64_t row = 0, col = 0;
  const std::int64_t* row_offsets = nullptr;
};
struct BlockRun {
  int rows = 0, cols = 0;
  const Stream* loads = nullptr;  // one an operand
  const Stream* stores = nullptr;
  std::int32_t* slots = nullptr;  // slot s starts at slots + s * BlockCode::stride; 64-byte aligned
};

// One tile of a convolution: acc[p * acc_stride + o] = sum over runs and k of x[offset + p * pixel_step + k] * w[k][o].
struct TapRun {
  std::int64_t offset = 0;  // elements from the tile's first pixel in the strip
  std::int32_t length = 0;  // elements (int16: even)
};
struct ConvTile {
  const void* x = nullptr;      // strip: int16 (code - zero point) or float
  std::int64_t pixel_step = 0;  // elements between neighbouring output pixels' inputs
  const TapRun* runs = nullptr;
  int run_count = 0;
  const void* w = nullptr;  // int16: [k / 2][conv_channels][2]; float: [k][conv_channels]
  int pixels = 0;           // 1..conv_pixels
  void* acc = nullptr;      // int32 or float, rows of conv_channels
};

// Depthwise: acc[c] = sum over taps of (x[tap][c] - zx) * w[tap][c], for one output pixel and `cols` channels. Codes and int16
// weights give int32; floats have no zero point.
struct DepthwiseTile {
  const std::byte* x = nullptr;           // channel 0 of the tile at window origin
  const std::int64_t* taps = nullptr;     // byte offsets of the taps that lie inside the image
  const std::int32_t* w_index = nullptr;  // weight row of each tap
  int tap_count = 0;
  const void* w = nullptr;  // int16 or float [tap][w_stride]
  std::int64_t w_stride = 0;
  std::int32_t zx = 0;
  int cols = 0;
  void* acc = nullptr;
};

enum class Reduce : std::uint8_t { max, min, sum, squares };
// Reduction of one output row segment: acc[c] = reduce over i < outer_count, j < inner_count of in[outer[i] + j * inner_step + c *
// col].
struct ReduceTile {
  Reduce kind = Reduce::max;
  Elem elem = Elem::u8;  // u8: int32 result (sum: of code - zero); f32: float result, in the order i, j, sums as reference/sums.h
  const std::byte* base = nullptr;
  const std::int64_t* outer = nullptr;  // bytes
  int outer_count = 0, inner_count = 1;
  std::int64_t inner_step = 0, col = 0;  // bytes
  std::int32_t zero = 0;                 // u8: the zero point; f32, maximum and minimum: not 0 where a NaN element gives NaN
  int cols = 0;
  int pixels = 1;  // this many segments, base and acc moving by the steps (bytes)
  std::int64_t base_step = 0, acc_step = 0;
  void* acc = nullptr;  // int32 or float [cols]; u8 max/min with `bytes`: uint8
  bool bytes = false;   // u8 max/min: write codes directly
};
/// Windows of so many columns, `step` columns apart, that neighbouring pixels of a ReduceTile are best given as: maxima of columns
/// are then taken once. Others are faster as one list of taps (inner_count 1).
constexpr bool as_columns(std::int64_t columns, std::int64_t step) {
  return (columns == 2 && step == 2) || (columns == 3 && (step == 1 || step == 2)) || (columns == 5 && step == 1);
}

/// 16 rows of 16 words, rows and columns exchanged; strides in bytes.
using TransposeWords = void (*)(std::byte* to, std::int64_t to_row, const std::byte* from, std::int64_t from_row);

struct KernelTable {
  const char* name;                // "avx512"
  int lanes;                       // floats of a vector
  int conv_channels, conv_pixels;  // of a conv tile; channels * pixels <= kBlock
  void (*run_block)(const BlockCode&, const BlockRun&);
  void (*conv_i16)(const ConvTile&);
  void (*conv_f32)(const ConvTile&);
  void (*depthwise_u8)(const DepthwiseTile&);
  void (*depthwise_f32)(const DepthwiseTile&);
  void (*reduce)(const ReduceTile&);
  void (*widen)(std::int16_t* to, const std::uint8_t* from, std::int64_t n, std::int32_t zero);  // to[i] = from[i] - zero
  // to[i] = fma(high[i], w1, low[i] * w0); `to` overlaps neither
  void (*blend)(float* to, const float* low, const float* high, float w0, float w1, std::int64_t n);
  TransposeWords transpose_words = nullptr;  // where registers have 16 words
};
const KernelTable& portable_table();
#if defined(__x86_64__)
const KernelTable& avx2_table();
const KernelTable& avx512_table();
#endif

}  // namespace octavo::cpu
