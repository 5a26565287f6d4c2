// A product of two matrices with broadcast batches, as the families of matmul see it.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/family.h"

namespace octavo::cpu {

struct MatmulSetting {
  std::int64_t m = 1, k = 1, n = 1, batch = 1;
  region::TensorRef a = {}, b = {};
  std::vector<std::int64_t> a_batch = {}, b_batch = {};  ///< elements along the batch dimensions; 0 where broadcast
  ir::Shape space = {};
  BlockEpilogue epilogue = {};
  [[nodiscard]] std::size_t row_dim() const { return space.size() - 2; }
  [[nodiscard]] std::size_t col_dim() const { return space.size() - 1; }
  [[nodiscard]] double results() const { return static_cast<double>(ir::count(space)); }
  /// Elements of both matrices that are packed, for all batches.
  [[nodiscard]] double packed() const { return static_cast<double>(batch) * static_cast<double>(k) * static_cast<double>(m + n); }

  /// The first element of a batch.
  [[nodiscard]] Index origin_of(std::int64_t batch_number) const {
    Index origin{};
    for (std::size_t d = a_batch.size(); d-- > 0;) {
      origin[d] = batch_number % space[d];
      batch_number /= space[d];
    }
    return origin;
  }
  /// Where a matrix of the batch at `origin` begins.
  [[nodiscard]] static const std::byte* at(const region::TensorRef& t, const Memory& memory, const Index& origin,
                                           const std::vector<std::int64_t>& batches) {
    std::int64_t elements = 0;
    for (std::size_t d = 0; d < batches.size(); ++d) elements += origin[d] * batches[d];
    return memory.at(t) + elements * static_cast<std::int64_t>(ir::size_of(t.dtype));
  }
};

/// Of a stage with two inputs, whatever their types.
[[nodiscard]] Result<MatmulSetting> matmul_setting(const Stage& stage, Isa isa);

/// A product of two computed matrices that leaves by a program.
[[nodiscard]] inline bool is_matmul(const Region& r) {
  const region::Anchor& a = only(r).anchor;
  return is_one(r, ir::Op::matmul) && !a.weights && a.inputs.size() == 2 && !only(r).program.outputs.empty();
}

}  // namespace octavo::cpu
