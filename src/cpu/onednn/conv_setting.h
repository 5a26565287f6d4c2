// How oneDNN is asked for a convolution, row tile of output rows by row tile.
#pragma once

#ifdef OCTAVO_HAVE_ONEDNN
#include <compare>
#include <optional>
#include <string>

#include "base/result.h"
#include "cpu/access.h"
#include "cpu/constant.h"
#include "cpu/window.h"
#include "dnnl.hpp"
#include "region/region.h"

namespace octavo::cpu::onednn {

using DataType = dnnl::memory::data_type;
constexpr auto kF32 = DataType::f32;

[[nodiscard]] inline std::int64_t bytes_of(DataType t) {
  return t == DataType::bf16 ? 2 : 4;
}

/// What of the program the primitive does for itself.
struct Fused {
  bool whole = false;  ///< all of it: bias and Relu at most. False: the program needs the block interpreter
  bool relu = false;   ///< max with 0 behind the bias: by the kernel, as oneDNN's turns NaN into 0
  int bias = -1;       ///< operand index
};
[[nodiscard]] Fused find_fused(const region::Stage& s);

/// One shape of a row tile; equal row tiles share a primitive.
struct RowTile {
  std::int64_t rows, in_rows, top, bottom;
  auto operator<=>(const RowTile&) const = default;
};

struct Setting {
  region::TensorRef x = {}, y = {}, weights = {};
  std::optional<region::TensorRef> bias = {};  ///< that the primitive adds
  Constant weight_data = {};
  std::optional<BlockEpilogue> epilogue = {};  ///< absent: the primitive stores
  ir::Shape space = {};
  DataType data = kF32, stored = kF32;  ///< of data and weights; of what the primitive writes
  bool transposed = false;              ///< conv_transpose: one row tile
  Image image = {};
  std::int64_t group = 1, cin = 1, cout = 1;
  Fused fused = {};
  bool gather = false;  ///< the input's pixels have gaps: a row tile's rows are copied first
  std::int64_t rows_per_tile = 1, row_tiles = 1;
  dnnl::memory::desc plain_weights = {};  ///< as the plan holds them
};
/// Errors: `unsupported`, what the tactic does not cover. May not throw.
[[nodiscard]] Result<Setting> setting_of(const region::Stage& s, const region::Plan& plan);
[[nodiscard]] RowTile row_tile_of(const Setting& t, std::int64_t index);
[[nodiscard]] std::int64_t first_input_row(const Setting& t, std::int64_t index);

/// May throw dnnl::error. `weights` nullptr: the library chooses the format.
[[nodiscard]] dnnl::primitive_desc describe(const Setting& t, const RowTile& b, const dnnl::memory::desc* weights,
                                            const dnnl::engine& engine);
}  // namespace octavo::cpu::onednn
#endif
