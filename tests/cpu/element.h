// One element of memory, read and written as its type has it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/half.h"
#include "ir/tensor.h"

namespace octavo::testing {

template <class T>
T read(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

inline std::int64_t read_int(const std::byte* p, ir::DType t) {
  switch (t) {
    case ir::DType::u8:
    case ir::DType::boolean: return read<std::uint8_t>(p);
    case ir::DType::s8: return read<std::int8_t>(p);
    case ir::DType::s32: return read<std::int32_t>(p);
    case ir::DType::s64: return read<std::int64_t>(p);
    default: std::abort();
  }
}
inline float read_float(const std::byte* p, ir::DType t) {
  switch (t) {
    case ir::DType::f32: return read<float>(p);
    case ir::DType::f16: return f16_to_f32(read<std::uint16_t>(p));
    case ir::DType::bf16: return bf16_to_f32(read<std::uint16_t>(p));
    default: std::abort();
  }
}
template <class T>
void put(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof(T));
}
}  // namespace octavo::testing
