// What a cell of a recurrent layer computes from the sums of its gates: programs, which generated code runs, or where none is generated the block
// interpreter. They are the same operations as the reference's, for any activation.
#pragma once

#include <memory>
#include <optional>

#include "cpu/access.h"
#include "cpu/generated_epilogue.h"
#include "ir/facts.h"

namespace octavo::cpu {

/// What the programs read and write, as buffers of a Memory of their own: rows of `CellShape` for the panels of one sequence and step.
enum CellBuffer : std::uint8_t { kSums, kCell, kPeepholes, kBefore, kAfter, kKept, kCellBuffers };

/// Units of a layer, padded, in panels; a panel's sums lie side by side, gate by gate.
struct CellShape {
  std::int64_t units = 0;  ///< of all panels
  std::int64_t panel = 0;  ///< units of one
  std::int64_t sums = 0;   ///< floats from the sums of one panel to those of the next
};

/// A program over panels.
class CellCode {
 public:
  [[nodiscard]] static Result<CellCode> make(region::Stage stage, Isa isa);
  [[nodiscard]] std::size_t scratch_bytes() const { return block_ ? block_->scratch_bytes() : 0; }
  void prepare(std::byte* scratch) const {
    if (block_) block_->prepare(scratch);
  }
  /// Panels begin..end-1.
  void run(const region::Memory& memory, std::byte* scratch, std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t panel_ = 0;
  std::shared_ptr<const GeneratedEpilogue> generated_;
  std::optional<BlockEpilogue> block_;
};

/// The programs of one direction. Sums in kSums: lstm i o f c; gru z r, the candidate's, and where it resets behind the product the candidate's product
/// with R before it, so that products with R are side by side; rnn the sum.
struct Cell {
  CellCode gates;                 ///< kCell and kBefore to kCell (lstm) and kAfter
  std::optional<CellCode> reset;  ///< gru that resets before the product: r and kBefore to kKept
};
/// Errors: `bad_engine`, too few activations.
[[nodiscard]] Result<Cell> cell_of(const ir::Recurrent& facts, std::size_t direction, const CellShape& shape, Isa isa);

}  // namespace octavo::cpu
