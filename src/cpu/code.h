// A program compiled for the block interpreter: slots instead of values, common sequences fused.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "cpu/block/block.h"
#include "cpu/isa.h"
#include "program/program.h"
#include "region/region.h"

namespace octavo::cpu {

/// The block kernels of an instruction set; nullptr when this build has none for it. avx512 and the levels above share one table.
[[nodiscard]] const KernelTable* kernel_table(Isa isa);

/// The memory type that programs can load or store; ErrorKind::unsupported for s64 and others.
[[nodiscard]] Result<Elem> elem_of(ir::DType type);
[[nodiscard]] std::int64_t bytes_of(Elem elem);

/// Owns what a BlockCode points to. Slot 0 is the anchor's accumulator (acc_i or acc_f). Immutable; shared by threads.
class Code {
 public:
  /// `loads`: memory type of each operand. `multiply`: quantizing divides by multiplications where that is exact (10 us each time
  /// to find out), which is quicker where slow_division().
  static Result<Code> compile(const program::Program& p, const std::vector<Elem>& loads, bool multiply = slow_division());

  [[nodiscard]] BlockCode view() const;
  /// Elements that a block may have (at least kBlock): as many as keep all slots in half of L1.
  [[nodiscard]] int block() const { return slots_ <= 6 ? 4 * kBlock : slots_ <= 12 ? 2 * kBlock : kBlock; }
  [[nodiscard]] std::size_t slot_bytes() const { return static_cast<std::size_t>(slots_) * static_cast<std::size_t>(stride()) * 4; }
  /// Writes the immediates into a worker's slots; once a run, before the first block.
  void prepare(std::int32_t* slots) const;
  /// The program only forwards the accumulator or operand 0 (and nothing else): output 0, no arithmetic.
  [[nodiscard]] bool identity() const { return identity_; }
  [[nodiscard]] std::size_t step_count() const { return steps_.size(); }
  /// A float is loaded, quantized and stored: what block kernels do to an image (2 to 4 planes to pixels) in one loop that uses no
  /// slots (quantize_image of block/program.inc), so that block() is no limit.
  [[nodiscard]] bool quantizes() const {
    return steps_.size() == 2 && stores_.size() == 1 && steps_[0].op == BlockOp::load_f && steps_[0].elem == Elem::f32 &&
           steps_[1].op == BlockOp::quantize && steps_[1].a == steps_[0].dst && stores_[0].slot == steps_[1].dst &&
           (stores_[0].elem == Elem::u8 || stores_[0].elem == Elem::s8);
  }

 private:
  [[nodiscard]] int stride() const { return block() + 16; }  // neighbouring slots do not meet in one cache set
  struct Constant {
    int slot;
    std::int32_t bits;
  };
  std::vector<Step> steps_;
  std::vector<StoreStep> stores_;
  std::vector<Constant> constants_;
  std::vector<std::uint8_t> tables_;
  int slots_ = 1;
  bool identity_ = false;
};

}  // namespace octavo::cpu
