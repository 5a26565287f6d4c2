// The families "matmul.u8.mma", "matmul.bf16.mma", "matmul.f16.mma", "matmul.tf32.mma" and "matmul.f32.mma": products of two computed matrices on matrix
// units (matmul.inc), of codes, of 16-bit floats, of float32 whose operands may be rounded to tf32, and of float32 whose operands may not.
#pragma once

#include <string>
#include <string_view>

#include "cuda/families/matmul/matmul_shape.h"

namespace octavo::cuda {

[[nodiscard]] const Family& matmul_mma_family(ProductType type);

struct MatmulTile {
  int m = 64, n = 64, k = 64, warps_m = 2, warps_n = 2, stages = 3, blocks = 2;
  static constexpr std::array<TileParameter<MatmulTile>, 4> kParameters{
      {{{"tile", "", "rows x columns of a block x bytes of depth a step"}, {&MatmulTile::m, &MatmulTile::n, &MatmulTile::k}},
       {{"warps", "", "along rows x along columns"}, {&MatmulTile::warps_m, &MatmulTile::warps_n}},
       {{"stages", "", "steps of depth in shared memory", true}, {&MatmulTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&MatmulTile::blocks}}}};
};

// Pieces of the text, for kernels that compute such products among other things (families/attention).
/// What sums of codes begin with (matmul_step.inc), where `step` elements of depth are taken at a time.
[[nodiscard]] std::int32_t sums_begin_with(const ProductSide& a, const ProductSide& b, std::int64_t k, std::int64_t step);
/// The structure that matmul_load.inc reads a side from; `tile` and `count`: constants of the text.
[[nodiscard]] std::string side_text(const char* name, const ProductSide& side, const char* tile, const char* count, bool permuted);
/// matmul_columns.inc, which is the first part of load_text: which column a row of the right side is, of kRun and kNeighbours (epilogue.h).
[[nodiscard]] std::string_view columns_text();
/// matmul_load.inc and matmul_step.inc.
[[nodiscard]] std::string load_text();
[[nodiscard]] std::string_view step_text();

}  // namespace octavo::cuda
