// Between the program and the emitter: how every operand and store is addressed, and the exact simplifications that the x86 pack
// instructions allow. Refuses what the emitter cannot do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/program.h"
#include "region/refusal.h"
#include "region/region.h"

namespace octavo::cpu::jit {

using region::unmet;

/// Shape of an operand seen from a tile of pixels x 16-channel vectors.
enum class OperandAccess : std::uint8_t {
  uniform,  ///< one value for everything
  channel,  ///< one value a channel, the same for all pixels of a call
  pixel,    ///< one value a pixel, the same for all channels
  full,     ///< channel stride 1, any pixel offsets
};

struct Stream {
  OperandAccess access = OperandAccess::full;
  ir::DType dtype = ir::DType::f32;
  int column = -1;  ///< of the pixel table; -1 for uniform and channel
  bool operator==(const Stream&) const = default;
};

/// Operations of kernels' own making (curve.h), beside those of programs.
enum class Special : std::uint8_t {
  none,
  within,               ///< a with its magnitude limited to b
  add_down,             ///< a + b, rounded down
  pick,                 ///< b[a & 15], b a block of the epilogue
  minus_product,        ///< c - a * b, rounded once
  approximate_inverse,  ///< 1 / a, but for a relative error of 2^-14
};

/// A program instruction after lowering; bit casts are gone. `reversed` (min only): computed as vminps(b, a), which lets a NaN
/// pass.
struct Instr {
  program::Op op = program::Op::imm_i;
  std::array<int, 4> args{-1, -1, -1, -1};
  std::int32_t imm = 0;
  bool reversed = false;
  Special special = Special::none;  ///< instead of `op`, which only says how arguments are treated
  int block = -1;                   ///< imm_f: 16 values, in LoweredEpilogue::blocks
  bool operator==(const Instr&) const = default;
};

/// The 8-bit value that is packed four vectors at a time, clamp(saturate(value + zero), lo, hi), and the outputs that are these
/// bytes or tables of them.
struct Pack {
  struct Sink {
    int output = -1;
    int table = -1;  ///< looked up in the packed bytes (needs VBMI); -1: the bytes themselves
    bool operator==(const Sink&) const = default;
  };
  std::vector<Sink> sinks;  ///< empty: nothing is packed
  int value = -1;
  bool is_signed = false;
  std::int32_t zero = 0;          ///< added after saturation to 16 bits
  std::int32_t lo = 0, hi = 255;  ///< bounds of the packed bytes; the type's own range costs nothing

  bool operator==(const Pack&) const = default;
  [[nodiscard]] bool packs(std::size_t output) const {
    return std::any_of(sinks.begin(), sinks.end(), [&](const Sink& s) { return s.output == static_cast<int>(output); });
  }
};

/// Epilogues of so many operations (a SiLU in floats) take registers from the accumulators: several vectors run in step.
inline constexpr std::int64_t kManyOperations = 16;

/// What the emitter needs of a stage. Streams are operands first, then stores.
struct LoweredEpilogue {
  std::vector<Instr> code;
  std::vector<program::Output> outputs;
  std::vector<program::Table> tables;
  std::vector<Stream> operands, stores;
  int lanes = 16;   ///< 32-bit elements of a vector: 16 (AVX-512), or 8 (AVX2)
  int columns = 1;  ///< of the pixel table; column 0 is the anchor's input
  Pack pack;
  bool narrows = false;  ///< AVX512-BF16 rounds to bfloat16: numbers below the least normal one become 0
  std::vector<std::array<float, 16>> blocks;
  /// The program's spans, of values of `code`: the results are equal, whatever has become of the operations in between. A RequantizeSpan ends with `rounded`; that of
  /// the packed value lacks the bounds that the pack has. A DequantizeSpan has lost its zero point where (x + z) - z is x.
  std::vector<program::Span> spans;
  /// A curve (curve.h): the packed values are codes in bits 16 to 23, and where the bits below are less than `window` for one of a
  /// group, the group's codes are computed and stored by `written`, whose streams are the same. Accumulators are in memory.
  std::int32_t window = 0;
  std::shared_ptr<const LoweredEpilogue> written;
  /// Of curves only the object itself is equal to it: its polynomials are floats, of which unequal ones compare equal.
  bool operator==(const LoweredEpilogue&) const = default;

  [[nodiscard]] int vector_bytes() const { return lanes * 4; }
  [[nodiscard]] int registers() const { return lanes == 16 ? 32 : 16; }
  [[nodiscard]] std::int64_t operations() const {
    return std::count_if(code.begin(), code.end(), [](const Instr& i) { return i.args[0] >= 0; });
  }
  [[nodiscard]] int stream_count() const { return static_cast<int>(operands.size() + stores.size()); }
  [[nodiscard]] const Stream& stream(int s) const {
    const auto k = static_cast<std::size_t>(s);
    return k < operands.size() ? operands[k] : stores[k - operands.size()];
  }
};

/// The span that ends with value v; null: none of the kind.
template <class Kind>
[[nodiscard]] const Kind* span_to(const LoweredEpilogue& e, int v) {
  for (const program::Span& s : e.spans) {
    if (const Kind* of = std::get_if<Kind>(&s); of != nullptr && program::last_of(s) == v) return of;
  }
  return nullptr;
}

inline constexpr int kMaxStreams = 28;

/// Fills `out` for a stage of rank 4 (N, C, H, W), or returns why it cannot be done (empty: fine). `batch_is_pixels`: H*W == 1 and
/// the images of the batch are the pixels of a tile. `lanes`: LoweredEpilogue::lanes.
[[nodiscard]] Reasons lower(const region::Stage& stage, bool batch_is_pixels, bool vbmi, LoweredEpilogue& out, int lanes = 16);

}  // namespace octavo::cpu::jit
