// What a region computes in, or does instead of computing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/tensor.h"

namespace octavo::region {

enum class Work : std::uint8_t {
  none,      ///< not said
  type,      ///< computes in Precision::type: "float32", "bfloat16", "float16", "s64", ...
  int8,      ///< products or sums of 8-bit codes, or codes moved
  tf32,      ///< products of floats whose operands may be rounded to 10 bits behind the point
  quantize,  ///< "float32->int8": floats become codes in a pass of their own
  narrow,    ///< "float32->bfloat16", "float32->float16": likewise, to Precision::type
  move,      ///< a copy
  transfer,  ///< a copy between the memories of two devices
  mixed,     ///< stages of several kinds, side by side
};

struct Precision {
  Work work = Work::none;
  ir::DType type = ir::DType::f32;  ///< of Work::type and Work::narrow; f32 otherwise

  constexpr Precision() = default;
  constexpr Precision(Work w) : work(w), type(w == Work::narrow ? ir::DType::bf16 : ir::DType::f32) {}
  constexpr Precision(ir::DType t) : work(Work::type), type(t) {}
  [[nodiscard]] static constexpr Precision narrowing_to(ir::DType t) {
    Precision p(t);
    p.work = Work::narrow;
    return p;
  }
  bool operator==(const Precision&) const = default;

  /// Does it have 8-bit codes on one side at least?
  [[nodiscard]] constexpr bool has_codes() const { return work == Work::int8 || work == Work::quantize; }
  /// Does it compute in float32, or round float32 to something smaller?
  [[nodiscard]] constexpr bool from_float32() const {
    return *this == ir::DType::f32 || work == Work::quantize || work == Work::narrow;
  }
  /// Is it work of the device that computes, and no copy between its memory and another one's? Such copies are the same in every plan of a model.
  [[nodiscard]] constexpr bool computes_here() const { return work != Work::transfer; }
  /// Does it compute in this 16-bit float type, or round float32 to it?
  [[nodiscard]] constexpr bool has(ir::DType t) const { return (work == Work::type || work == Work::narrow) && type == t; }
};

/// "int8", "float32", "bfloat16", "tf32", "float32->int8", "float32->bfloat16", "float32->float16", "move", "transfer", "mixed", the IR's name of another
/// type, or nothing.
[[nodiscard]] std::string to_string(const Precision& precision);
/// The other way; nothing for other texts.
[[nodiscard]] std::optional<Precision> find_precision(std::string_view text);

}  // namespace octavo::region
