// From a type at run time to a C++ type.
#pragma once

#include <cstdint>

#include "ir/tensor.h"

namespace octavo::ir {

/// fn(T{}) with the C++ type of an integer type of 8 to 64 bits, or of bool, whose elements are std::uint8_t.
template <class Fn>
auto with_integer(DType type, Fn fn) {
  switch (type) {
    case DType::s8: return fn(std::int8_t{});
    case DType::s16: return fn(std::int16_t{});
    case DType::u16: return fn(std::uint16_t{});
    case DType::s32: return fn(std::int32_t{});
    case DType::u32: return fn(std::uint32_t{});
    case DType::s64: return fn(std::int64_t{});
    case DType::u64: return fn(std::uint64_t{});
    default: return fn(std::uint8_t{});
  }
}

}  // namespace octavo::ir
