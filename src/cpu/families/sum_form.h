// The program that most float sums have, a bias, a residual and a clamp, found in a stage's program, for kernels that run it in one pass
// (rows/winograd_rows.h: finish) instead of operation by operation.
#pragma once

#include <optional>

#include "cpu/access.h"
#include "cpu/rows/winograd_rows.h"
#include "program/program.h"

namespace octavo::cpu {

/// result = clamp(acc + bias[c] + residual): each part may be absent. Operands and the result are f32, neighbours along the channels.
struct SumForm {
  int bias = -1, residual = -1;  ///< operand indices
  bool low = false, high = false;
  float least = 0, most = 0;

  /// The pass over rows of `pixels` sums from `origin` on; `pixel`: the dimension of Epilogue::space along which they are neighbours.
  [[nodiscard]] FinishedSums at(const Space& space, const region::Memory& memory, const Index& origin, std::size_t pixel) const;
};

/// `channel`: the dimension of the space that columns run along. Nothing: the program is another one, or its operands lie otherwise.
[[nodiscard]] std::optional<SumForm> sum_form(const program::Program& p, const Space& space, std::size_t channel);

}  // namespace octavo::cpu
