// Inside of sizes*.cc.
#pragma once

#include <bit>
#include <cstdint>

#include "onnx/import/compose.h"
#include "onnx/import/importer.h"
#include "onnx/import/sizes.h"

namespace octavo::onnx::sizes {

constexpr std::int64_t kMostNumbers = 64;    ///< elements of a list whose bounds are kept
constexpr double kFar = 9007199254740992.0;  ///< 2^53: bounds beyond it say nothing
constexpr std::int64_t kLeastRoom = 2;       ///< a dimension of 1 would be one that is broadcast

[[nodiscard]] inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15U + (a << 6U) + (a >> 2U);
  a *= 0xff51afd7ed558ccdU;
  return a ^ (a >> 33U);
}
/// Of a known number.
[[nodiscard]] inline std::uint64_t key_of(double v) {
  return mixed(0x6b6e6f776eU, std::bit_cast<std::uint64_t>(v + 0.0));
}
/// What an operator makes of one number, or of two.
[[nodiscard]] inline std::uint64_t key_of(Op op, std::uint64_t a) {
  return mixed(static_cast<std::uint64_t>(op) + 1, a);
}
[[nodiscard]] inline std::uint64_t key_of(Op op, std::uint64_t a, std::uint64_t b) {
  return mixed(key_of(op, a), b);
}
/// The operands may be swapped.
[[nodiscard]] inline std::uint64_t key_of_both(Op op, const Number& a, const Number& b) {
  return key_of(op, std::min(a.key, b.key), std::max(a.key, b.key));
}

[[nodiscard]] inline std::int64_t room(const ir::Graph& g, ValueId v, std::size_t axis) {
  return g.type(v).shape[axis];
}
[[nodiscard]] inline std::size_t rank(const ir::Graph& g, ValueId v) {
  return g.type(v).shape.size();
}

}  // namespace octavo::onnx::sizes
