// The tensors that generated code reads and writes beside weights, and their addresses for one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/jit/lower.h"
#include "region/provider.h"

namespace octavo::cpu::jit {

/// The anchor's input, then the streams of the epilogue by number: operands, then stores.
struct Streams {
  region::TensorRef input;  ///< of an anchor
  std::vector<region::Operand> operands;
  std::vector<region::TensorRef> stores;

  Streams() = default;
  explicit Streams(const region::Stage& s) : operands(s.operands), stores(s.stores) {
    if (!s.anchor.inputs.empty()) input = s.anchor.inputs.front();
  }
  [[nodiscard]] const region::TensorRef& ref(int stream) const {
    const auto n = static_cast<std::size_t>(stream);
    return n < operands.size() ? operands[n].ref : stores[n - operands.size()];
  }

  /// Where a call begins: at an image, a row and a column, of channels from `channel` on.
  void place(std::array<std::byte*, kMaxStreams>& to, const LoweredEpilogue& e, const region::Memory& memory, std::int64_t image,
             std::int64_t y, std::int64_t x, std::int64_t channel) const {
    for (int k = 0; k < e.stream_count(); ++k) {
      const region::TensorRef& t = ref(k);
      const Stream& stream = e.stream(k);
      std::int64_t at = image * t.strides[0];
      if (stream.column >= 0) at += y * t.strides[2] + x * t.strides[3];
      if (stream.access == OperandAccess::channel || stream.access == OperandAccess::full) at += channel;
      to[static_cast<std::size_t>(k)] = memory.at(t) + at * static_cast<std::int64_t>(ir::size_of(t.dtype));
    }
  }
  /// A row of the pixel table, but for column 0: pixel (y, x), in bytes from where a call begins.
  void fill_columns(std::int32_t* row, const LoweredEpilogue& e, std::int64_t y, std::int64_t x) const {
    for (int k = 0; k < e.stream_count(); ++k) {
      const region::TensorRef& t = ref(k);
      if (const int column = e.stream(k).column; column >= 0)
        row[column] =
            static_cast<std::int32_t>((y * t.strides[2] + x * t.strides[3]) * static_cast<std::int64_t>(ir::size_of(t.dtype)));
    }
  }
};

/// Empty: no operand is read at another element than the stage's own.
[[nodiscard]] inline Reasons why_repeated(const region::Stage& s) {
  for (const auto& operand : s.operands) {
    for (const std::int64_t d : operand.div) {
      if (d != 1) return unmet("repetition of an operand", d, "1");
    }
  }
  return {};
}

}  // namespace octavo::cpu::jit
