// The families "matmul.u8.mma", "matmul.bf16.mma", "matmul.f16.mma", "matmul.tf32.mma" and "matmul.f32.mma": products of two computed matrices on matrix
// units (matmul.inc), of codes, of 16-bit floats, of float32 whose operands may be rounded to tf32, and of float32 whose operands may not.
#pragma once

#include "cuda/families/matmul/matmul_shape.h"

namespace octavo::cuda {

[[nodiscard]] const Family& matmul_mma_family(ProductType type);

struct MatmulTile {
  int m = 64, n = 64, k = 64, warps_m = 2, warps_n = 2, stages = 3, blocks = 2;
  static constexpr std::array<TileParameter<MatmulTile>, 4> kParameters{
      {{{"tile", "", "rows x columns of a block x bytes of depth a step"}, {&MatmulTile::m, &MatmulTile::n, &MatmulTile::k}},
       {{"warps", "", "along rows x along columns"}, {&MatmulTile::warps_m, &MatmulTile::warps_n}},
       {{"stages", "", "steps of depth in shared memory"}, {&MatmulTile::stages}},
       {{"blocks", "", "of a multiprocessor"}, {&MatmulTile::blocks}}}};
};

}  // namespace octavo::cuda
