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
  type,      ///< computes in Precision::type: "float32", "bfloat16", "f16", "s64", ...
  int8,      ///< products or sums of 8-bit codes, or codes moved
  tf32,      ///< products of floats whose operands may be rounded to 10 bits behind the point
  quantize,  ///< "float32->int8": floats become codes in a pass of their own
  narrow,    ///< "float32->bfloat16", likewise
  move,      ///< a copy
  transfer,  ///< a copy between the memories of two devices
  mixed,     ///< stages of several kinds, side by side
};

struct Precision {
  Work work = Work::none;
  ir::DType type = ir::DType::f32;  ///< of Work::type; f32 otherwise

  constexpr Precision() = default;
  constexpr Precision(Work w) : work(w) {}
  constexpr Precision(ir::DType t) : work(Work::type), type(t) {}
  bool operator==(const Precision&) const = default;

  /// Does it have 8-bit codes on one side at least?
  [[nodiscard]] constexpr bool has_codes() const { return work == Work::int8 || work == Work::quantize; }
  /// Does it compute in float32, or round float32 to something smaller?
  [[nodiscard]] constexpr bool from_float32() const {
    return *this == ir::DType::f32 || work == Work::quantize || work == Work::narrow;
  }
  [[nodiscard]] constexpr bool has_bfloat16() const { return *this == ir::DType::bf16 || work == Work::narrow; }
};

/// "int8", "float32", "bfloat16", "tf32", "float32->int8", "float32->bfloat16", "move", "transfer", "mixed", the IR's name of another
/// type, or nothing.
[[nodiscard]] std::string to_string(const Precision& precision);
/// The other way; nothing for other texts.
[[nodiscard]] std::optional<Precision> find_precision(std::string_view text);

}  // namespace octavo::region
