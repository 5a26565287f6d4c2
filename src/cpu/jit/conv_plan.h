// Geometry and decisions of the generated convolution: phases, reduction, channel blocks, pixel row tiles, tasks. Everything here
// follows from the region and the tactic alone, so packing (at build) and code generation (at load) agree.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpu/jit/code_options.h"
#include "cpu/jit/constants.h"
#include "cpu/jit/curve.h"
#include "cpu/jit/forms.h"
#include "cpu/jit/streams.h"
#include "region/region.h"

namespace octavo::cpu::jit {

/// A convolution as written: conv or conv_transpose, 2-D.
struct Conv2d {
  bool transposed = false;
  std::int64_t n = 1, c = 1, h = 1, w = 1, o = 1, out_h = 1, out_w = 1;
  std::int64_t groups = 1, kh = 1, kw = 1;
  std::array<std::int64_t, 2> stride{1, 1}, dilation{1, 1};
  std::array<std::int64_t, 4> pads{0, 0, 0, 0};  ///< top, left, bottom, right
  [[nodiscard]] std::int64_t ic() const { return c / groups; }
  [[nodiscard]] std::int64_t oc() const { return o / groups; }
  [[nodiscard]] double macs() const;
  /// Index into the weight tensor of output channel o (global), input channel i (of its group).
  [[nodiscard]] std::int64_t weight_index(std::int64_t out, std::int64_t in, std::int64_t y, std::int64_t x) const;
};
/// Empty: `shape` is filled in. Otherwise why this region is no 2-D integer convolution with zero weight zero points.
/// `weight_zeros`: or with such as weights in two halves can have (ConvSetting::halves).
[[nodiscard]] Reasons read_conv(const region::Region& region, Conv2d& shape, bool weight_zeros = false);
/// The same for a convolution of floats: data and weights of `type`, f32 or bf16.
[[nodiscard]] Reasons read_float_conv(const region::Region& region, Conv2d& shape, ir::DType type = ir::DType::f32);

/// 2 where the weights have zero points (ConvSetting::halves), else 1.
[[nodiscard]] int weight_halves(const std::vector<std::int32_t>& zero);
/// Two numbers of eight bits whose sum is a weight minus its zero point, -255 to 254; the first is half of it, rounded down.
[[nodiscard]] std::int32_t half_of_weight(std::int32_t weight, bool first);

/// One axis of a phase: which input positions each output position reads. Input index = step * j + offset[t], with kernel index
/// tap[t]; output index = first + stride * j. Offsets ascend.
struct Axis {
  std::vector<std::int64_t> offset, tap;
  std::int64_t step = 1, first = 0, stride = 1, count = 0;
  [[nodiscard]] std::int64_t lowest() const { return offset.empty() ? 0 : offset.front(); }
  [[nodiscard]] std::int64_t highest() const { return offset.empty() ? 0 : offset.back(); }
  /// Input positions from lowest of j = 0 to highest of j = rows - 1.
  [[nodiscard]] std::int64_t extent(std::int64_t rows) const { return step * (rows - 1) + highest() - lowest() + 1; }
};

/// Up to four vectors of output channels of one (merged) group.
struct Block {
  std::int64_t first_channel = 0, channels = 0, group = 0;
  int vectors = 1, tail = 16;
  std::int64_t weights = 0;  ///< offset into the packed weights, bytes
  std::int64_t init = 0;     ///< offset into the packed initial values, elements
};

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
/// The block of `channels` that begins at `first`; its offsets are the caller's.
[[nodiscard]] Block block_at(std::int64_t first, std::int64_t channels, int lanes = 16);

/// Tasks of a depthwise convolution: `count` equal parts of `rows` output rows of all images, as other convolutions are shared
/// among threads; rows == 0, where there are too few of them: of the calls for `together` rows of a block of channels, in order of
/// rows. One task below about 2 us.
struct RowTasks {
  std::int64_t rows = 1;
  int count = 1;
};
[[nodiscard]] RowTasks split_rows(const Conv2d& shape, std::int64_t together, std::int64_t blocks, double seconds, int threads,
                                  const CodeOptions& options);
/// What a depthwise convolution could do otherwise: other numbers of rows than the usual ones, and how it is divided.
[[nodiscard]] std::vector<region::Parameters> depthwise_variants(const RowTasks& tasks, std::int64_t rows,
                                                                 const std::vector<std::int64_t>& others, const CodeOptions& usual);
/// Calls f(image, first row, rows, block) for all calls of the tasks [begin, end).
template <class F>
void each_call(const RowTasks& tasks, const Conv2d& s, std::int64_t together, std::int64_t blocks, int begin, int end, const F& f) {
  if (tasks.rows == 0) {
    const std::int64_t steps = (s.out_h + together - 1) / together, calls = s.n * steps * blocks;
    for (std::int64_t u = calls * begin / tasks.count; u < calls * end / tasks.count; ++u) {
      const std::int64_t y = u / blocks % steps * together;
      f(u / (steps * blocks), y, std::min(together, s.out_h - y), static_cast<std::size_t>(u % blocks));
    }
    return;
  }
  const std::int64_t until = tasks.rows * end / tasks.count;
  for (std::int64_t r = tasks.rows * begin / tasks.count, rows = 0; r < until; r += rows) {
    const std::int64_t y = r % s.out_h;
    rows = std::min({together, s.out_h - y, until - r});
    for (std::int64_t b = 0; b < blocks; ++b) f(r / s.out_h, y, rows, static_cast<std::size_t>(b));
  }
}

/// Pixel tiles of a row tile: `big_count` tiles of `big` pixels, then `small_count` of big - 1.
struct Tiling {
  int big = 0, big_count = 0, small = 0, small_count = 0;
};
[[nodiscard]] Tiling tile_pixels(std::int64_t pixels, int most);
/// Reductions up to this many quads run under the previous tile's epilogue.
inline constexpr std::int64_t kPipelinedQuads = 32;
/// Longer reductions hide the epilogue, unless it is tiles that compute them: proving shorter forms (forms.h) is not worth its
/// time.
inline constexpr std::int64_t kBriefQuads = 96;
/// Long epilogues (Emitter::is_long) take registers from the accumulators while a block's weights stay in L1: few pixels a tile
/// means that they pass more often.
inline constexpr std::int64_t kNearWeights = 48 << 10;
/// From so many pixels on a long epilogue runs among the next tile's dots, and a curve of one vector with so many pixels a tile:
/// two groups to pack, and as many registers for addresses as there are.
inline constexpr std::int64_t kPixelsBehind = 1000;
inline constexpr int kPixelsOfOneVector = 8;
/// The most pixels of a tile with so many vectors: accumulators and address registers both fit. Short reductions take smaller
/// tiles, so that the next tile's dots are within reach while the epilogue of the last one runs (docs/lab/kernels.md).
[[nodiscard]] int most_pixels(int vectors, std::int64_t quads, const LoweredEpilogue& epilogue);
/// The same, and not more than `limit` where that is above 0.
[[nodiscard]] inline int most_pixels(int vectors, std::int64_t quads, const LoweredEpilogue& epilogue, int limit) {
  const int most = most_pixels(vectors, quads, epilogue);
  return limit > 0 ? std::min(most, limit) : most;
}

/// Where the products are computed: vpdpbusd on registers, AMX tiles (amx_plan.h), fused multiply-adds of floats, or vpmaddwd on pairs
/// of 16 bits (AVX2), to which codes are widened in the strip, their zero point subtracted; products of bfloat16 by vdpbf16ps or on
/// tiles. A quad of a reduction is four bytes of a pixel: four codes, two of those pairs' numbers or of bfloat16, or one float.
enum class Dots : std::uint8_t { vnni, amx, floats, pairs, bf16, bf16_tiles };
[[nodiscard]] constexpr bool on_tiles(Dots dots) {
  return dots == Dots::amx || dots == Dots::bf16_tiles;
}
[[nodiscard]] constexpr bool of_bf16(Dots dots) {
  return dots == Dots::bf16 || dots == Dots::bf16_tiles;
}
/// Sums are floats. Nothing is read then that does not belong to the sum: zero times infinity is no number.
[[nodiscard]] constexpr bool of_floats(Dots dots) {
  return dots == Dots::floats || of_bf16(dots);
}

/// Capabilities beside the level of the family.
[[nodiscard]] inline std::vector<std::string_view> capabilities_of(Dots dots) {
  return of_bf16(dots) ? std::vector<std::string_view>{"avx512bf16"} : std::vector<std::string_view>{};
}
/// Is the stage's anchor one of floats of the type that is multiplied?
[[nodiscard]] bool takes_floats(const region::Stage& stage, Dots dots);
/// Narrow vectors are for machines that have no wide ones.
[[nodiscard]] bool is_outdated(int lanes);

/// One ordinary convolution over a sub-grid of the output. A conv has one phase; a transposed conv stride_h * stride_w.
struct Phase {
  Axis y, x;
  bool copies = false;        ///< input rows go through the padded strip in scratch
  bool line = false;          ///< pairs: the strip is the row tile's pixels, which the input has one after the other
  bool joined = false;        ///< a pixel of the strip holds all taps of its row (amx)
  std::int64_t together = 1;  ///< input rows that a row of the strip holds, their joined pixels side by side: 1, 2
  std::int64_t pitch = 0;     ///< bytes between pixels of the strip
  bool flat = false;          ///< pixels are one line: `pixels` of them, linear in every stream
  std::int64_t row_step = 0, pixel_step = 0;  ///< bytes between input rows and pixels, as read
  std::vector<std::int64_t> segments;         ///< byte offsets from a pixel's address; each segment is reduced over `segment_bytes`
  std::int64_t segment_bytes = 0, quads = 0;
  std::int64_t steps = 0,
               depth = 0;  ///< tiles: of a segment, `depth` bytes each (of codes, zero weights behind the end)
  std::int64_t rows = 0, row_pixels = 0, pixels = 0;  ///< of the output grid, an image
  /// Row tiles: `long_row_tiles` (at least 1) of rows_per_tile, then shorter ones of row_tile_unit rows less; the last ends with the grid.
  std::int64_t rows_per_tile = 0, row_tiles = 0, long_row_tiles = 0, row_tile_unit = 1;
  int ahead = 1;             ///< blocks: so far ahead weights are fetched; 0: nothing is
  int parts = 1;             ///< tasks that share a row tile, each with some blocks
  bool parts_first = false;  ///< tasks in order of parts, not of row tiles: a thread then reads part of the weights and all rows
  std::vector<Block> blocks;
  [[nodiscard]] std::int64_t first_row(std::int64_t row_tile) const {
    return std::min(rows, row_tile * rows_per_tile - std::max<std::int64_t>(0, row_tile - long_row_tiles) * row_tile_unit);
  }
  [[nodiscard]] std::int64_t rows_of(std::int64_t row_tile) const { return first_row(row_tile + 1) - first_row(row_tile); }
  [[nodiscard]] std::int64_t pixels_of(std::int64_t row_tile) const {
    return std::min(pixels, first_row(row_tile + 1) * row_pixels) - first_row(row_tile) * row_pixels;
  }
  [[nodiscard]] std::int64_t all_quads() const { return static_cast<std::int64_t>(segments.size()) * quads; }
  [[nodiscard]] std::int64_t pixel_bytes() const { return joined ? pitch : x.step * pixel_step; }  ///< between output pixels
  [[nodiscard]] std::int64_t strip_width() const { return joined ? x.count : x.extent(x.count); }
  [[nodiscard]] std::int64_t strip_row_bytes() const { return strip_width() * pitch; }
  /// Rows of the strip that so many rows of the output grid read.
  [[nodiscard]] std::int64_t strip_rows(std::int64_t count) const { return ceil_div(y.extent(count), together); }
  [[nodiscard]] std::int64_t strip_bytes() const {  ///< of the largest row tile
    return line ? rows_per_tile * row_pixels * pitch : strip_rows(rows_per_tile) * strip_row_bytes();
  }
};

struct ConvSetting {
  Conv2d shape;
  Dots dots = Dots::vnni;
  CodeOptions options;
  bool divides = false;  ///< the program has a division
  Streams streams;
  Constant weights;
  std::vector<std::int32_t> weight_zero;  ///< of the weights: region::Anchor::weight_zero
  LoweredEpilogue epilogue;               ///< as the blocks without a shorter form run it
  LoweredEpilogue written;                ///< the same before divisions became multiplications
  bool multiplies = false;                ///< divisions are multiplications where that is exact (division.h)
  std::optional<Forms> forms;             ///< blocks may run a shorter form of `epilogue`
  std::optional<Curve> curve;             ///< or that, its table packed
  bool has_bias = false;                  ///< constants that are added to the sums: part of their initial values
  ChannelOperand bias;
  ChannelValues channels, codes;  ///< of forms, or of the curve: scales and biases, and those of the code in the middle
  std::int64_t element = 1;       ///< bytes of an element of the input
  std::int64_t factor = 1;        ///< bytes of one as the products read it
  bool batch_is_pixels = false;
  bool slack = false;  ///< 64 bytes around the input may be read
  std::int64_t images = 1;
  std::int64_t merge = 1, groups = 1, ic = 1, oc = 1;  ///< after merging groups
  /// 2: weights have zero points, and a weight minus its zero point needs nine bits. The reduction runs over all segments twice, over one
  /// half of each weight and over the other.
  int halves = 1;
  std::int32_t zero = 0;  ///< of x
  /// What the sums of the weights are multiplied by in the initial values: the strip of pairs has no zero point any more.
  [[nodiscard]] std::int32_t zero_in_sums() const { return dots == Dots::pairs ? 0 : zero; }
  [[nodiscard]] bool starts_at_zero() const { return zero_in_sums() == 0 && !has_bias; }
  std::vector<Phase> phases;
  std::int64_t weight_bytes = 0, init_count = 0;
  double seconds = 0;
  [[nodiscard]] std::int64_t bytes(std::int64_t elements) const { return elements * element; }        ///< of the input
  [[nodiscard]] std::int64_t factor_bytes(std::int64_t elements) const { return elements * factor; }  ///< as the products read them
};
inline constexpr int kMostThreads = 256;  ///< for which work is divided; more get what there is

/// Blocks and row tiles of a phase (ConvSetting::weight_bytes and init_count grow by theirs), its tasks for `threads` threads; `phases`:
/// how many share the convolution.
void divide(ConvSetting& plan, Phase& phase, std::int64_t phases, int threads);

/// The setting of a convolution, or of a transposed one.
[[nodiscard]] Result<ConvSetting> match_conv(const region::Region& region, const region::Plan& plan, const CodeOptions& options,
                                             Dots dots = Dots::vnni);

/// Byte offset of pixel (row j, column k) of the phase's output grid in a stream, relative to the tensor's first element.
[[nodiscard]] std::int64_t pixel_offset(const ConvSetting& plan, const Phase& phase, int stream, std::int64_t j, std::int64_t k);

}  // namespace octavo::cpu::jit
