// Where the elements of an iteration space lie in memory, and the epilogue that runs over blocks of it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/code.h"
#include "region/provider.h"

namespace octavo::cpu {

inline constexpr std::size_t kMaxRank = 16;  ///< after dimensions are split; regions themselves have at most 8
using Index = std::array<std::int64_t, kMaxRank>;

/// Element (i0, i1, ...) of the space is at buffer + offset + sum floor(i_k / div_k) * strides_k, in bytes.
struct StridedAccess {
  region::BufferId buffer = -1;
  std::int64_t offset = 0;
  Elem elem = Elem::u8;
  std::vector<std::int64_t> strides, div;
};
/// Dimensions of extent 1 and strides of 0 get stride 0 and div 1.
[[nodiscard]] Result<StridedAccess> access_of(const region::TensorRef& ref, const std::vector<std::int64_t>& div,
                                              const ir::Shape& space);

/// An iteration space with everything its program reads and writes.
struct Space {
  std::vector<std::int64_t> dims;
  std::vector<StridedAccess> loads, stores;

  /// Errors (`unsupported`): element types that programs do not have, more than 8 dimensions.
  static Result<Space> of(const region::Stage& stage);
  /// Replaces each dimension that some operand divides by (extent / d, d) where d divides the extent: the division disappears.
  void split_divisions();
  /// Drops dimensions of extent 1, orders by descending stride of store 0, and joins neighbours that every access walks as one.
  void order_and_join();
  /// Appends a dimension of extent 1.
  void add_unit();
};

/// The program of a stage over blocks: rows run along `row_dim` in steps of `row_step`, columns along `col_dim`.
class BlockEpilogue {
 public:
  /// `code` must have been compiled for `space.loads`. Errors: an operand divides `col_dim`.
  static Result<BlockEpilogue> make(const KernelTable& kernels, Code code, Space space, int row_dim, int col_dim);

  [[nodiscard]] const Space& space() const { return space_; }
  [[nodiscard]] const Code& code() const { return code_; }
  [[nodiscard]] std::size_t scratch_bytes() const;
  /// Once a run, before blocks.
  void prepare(std::byte* scratch) const { code_.prepare(reinterpret_cast<std::int32_t*>(scratch)); }
  /// The accumulator block: code().block() int32 or float, row-major with `cols` elements a row.
  [[nodiscard]] static std::int32_t* acc(std::byte* scratch) { return reinterpret_cast<std::int32_t*>(scratch); }
  /// rows * cols <= code().block().
  void run(const region::Memory& memory, std::byte* scratch, const Index& origin, int rows, int cols,
           std::int64_t row_step = 1) const;

 private:
  Stream stream(const StridedAccess& a, const region::Memory& memory, const Index& origin, int rows, std::int64_t row_step,
                std::int64_t*& offsets) const;

  const KernelTable* kernels_ = nullptr;
  Code code_;
  Space space_;
  std::size_t row_dim_ = 0, col_dim_ = 0;
  std::size_t divided_ = 0;  // accesses with a division along the rows
};

/// The stage's program over blocks of its space with rows and columns along these dimensions; units are added up to two dimensions.
[[nodiscard]] Result<BlockEpilogue> block_epilogue(const region::Stage& stage, Isa isa, std::size_t row_dim, std::size_t col_dim);
/// The same over a space that the caller arranged.
[[nodiscard]] Result<BlockEpilogue> block_epilogue(const program::Program& program, Space space, Isa isa, std::size_t row_dim,
                                                   std::size_t col_dim);

}  // namespace octavo::cpu
