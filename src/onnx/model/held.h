// The type that the IR computes a file's type in: every float as f32, 4- and 2-bit integers as 8-bit ones.
#pragma once

#include "ir/small_types.h"
#include "ir/tensor.h"

namespace octavo::onnx {

[[nodiscard]] inline bool is_small(ir::DType t) {
  return ir::is_small_float(t) || ir::is_small_int(t);
}
[[nodiscard]] inline ir::DType held(ir::DType t) {
  using ir::DType;
  if (ir::is_float(t) || ir::is_small_float(t)) return DType::f32;
  if (t == DType::s4 || t == DType::s2) return DType::s8;
  return t == DType::u4 || t == DType::u2 ? DType::u8 : t;
}

}  // namespace octavo::onnx
