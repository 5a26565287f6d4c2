// Families over the kernels of cpu/rows.
#pragma once

#include "cpu/family.h"
#include "cpu/rows/rows.h"

namespace octavo::cpu {

/// The row kernels of a level that block kernels are compiled for.
[[nodiscard]] inline const RowKernels& row_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512_rows();
  if (isa >= Isa::avx2) return avx2_rows();
#endif
  (void)isa;
  return portable_rows();
}

/// to[i * to_step + j] = from[i * row + j * col]
inline void gather_matrix(const RowKernels& k, float* to, std::int64_t to_step, const float* from, std::int64_t rows,
                          std::int64_t cols, std::int64_t row, std::int64_t col) {
  if (row == 1 && col != 1) return k.transpose(to, to_step, from, col, cols, rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    if (col == 1) {
      std::copy(from + i * row, from + i * row + cols, to + i * to_step);
      continue;
    }
    for (std::int64_t j = 0; j < cols; ++j) to[i * to_step + j] = from[i * row + j * col];
  }
}
/// Where the row at `origin` lies in an epilogue's only store of elements of this type, side by side along `col`; null: there is none.
template <class T>
[[nodiscard]] T* row_of_store(const BlockEpilogue& e, const Memory& memory, const Index& origin, std::size_t col, Elem type) {
  const Space& space = e.space();
  if (!space.loads.empty() || space.stores.size() != 1) return nullptr;
  const StridedAccess& to = space.stores.front();
  if (to.elem != type || (to.strides[col] != sizeof(T) && space.dims[col] != 1)) return nullptr;
  std::int64_t at = to.offset;
  for (std::size_t k = 0; k < space.dims.size(); ++k) {
    if (to.div[k] != 1) return nullptr;
    at += origin[k] * to.strides[k];
  }
  return reinterpret_cast<T*>(memory.base[static_cast<std::size_t>(to.buffer)] + at);
}
/// Where a row at `origin` belongs if its floats are stored as they are computed, neighbours along `col`; null: the epilogue has work to do.
[[nodiscard]] inline float* stored_row(const BlockEpilogue& e, const Memory& memory, const Index& origin, std::size_t col) {
  return e.code().identity() ? row_of_store<float>(e, memory, origin, col, Elem::f32) : nullptr;
}
/// A matrix in panels of so many columns (a multiple of kColumns; the last one as wide as it has to be), each [row][column], zeros behind the
/// last column. `to` has rows * columns, rounded up to kColumns.
void pack_panels(const RowKernels& k, float* to, std::int64_t panel, const float* from, std::int64_t rows, std::int64_t cols,
                 std::int64_t row, std::int64_t col);
/// The epilogue over rows of sums, `step` floats apart: `rows` of them from `origin` on, along `row_dim`, each of `cols` along `col_dim`.
void store_sums(const BlockEpilogue& e, const Memory& memory, std::byte* scratch, Index origin, std::size_t row_dim,
                std::size_t col_dim, const float* sums, std::int64_t step, std::int64_t rows, std::int64_t cols);
/// As many columns of a panel as products have accumulators for.
[[nodiscard]] inline std::int64_t panel_columns(Isa isa) {
  return isa >= Isa::avx512 ? 4 * kColumns : kColumns;
}
[[nodiscard]] constexpr std::size_t line(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace octavo::cpu
