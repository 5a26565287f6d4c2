#include "cpu/families/matmul_setting.h"

#include "region/tensor_ref.h"

namespace octavo::cpu {

Result<MatmulSetting> matmul_setting(const Stage& s, Isa isa) {
  const region::TensorRef &a = s.anchor.inputs[0], &b = s.anchor.inputs[1];
  const std::size_t rank = s.space.size();
  if (rank < 2 || a.dims.size() < 2 || b.dims.size() < 2 || a.dims.size() > rank || b.dims.size() > rank)
    return refuse("shapes", fmt::format("{} and {}", ir::to_string(a.dims), ir::to_string(b.dims)), "two matrices");
  const std::size_t ar = a.dims.size() - 2, br = b.dims.size() - 2;
  MatmulSetting t{a.dims[ar], a.dims[ar + 1], b.dims[br + 1], 1, a, b, {}, {}, s.space};
  if (b.dims[br] != t.k || s.space[rank - 2] != t.m || s.space[rank - 1] != t.n)
    return fail(ErrorKind::bad_engine, "matrix extents do not agree");
  if (t.m * t.n * t.k == 0) return refuse("elements", 0, "some");
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    t.batch *= s.space[d];
    t.a_batch.push_back(aligned_stride(a, rank, d));
    t.b_batch.push_back(aligned_stride(b, rank, d));
  }
  OCTAVO_TRY(t.epilogue, block_epilogue(s, isa, rank - 2, rank - 1));
  return t;
}

}  // namespace octavo::cpu
