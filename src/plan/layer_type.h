// The types that layers may compute in, as callers name them: parsed once, where options enter.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/tensor.h"

namespace octavo::plan {

/// A type by its name. In code a literal stands for it, which the compiler checks: LayerType type = "float16".
class LayerType {
 public:
  enum Value : std::uint8_t { int8, float32, bfloat16, float16, tf32, bfloat16_emulated, float16_emulated };
  static constexpr std::array<std::pair<std::string_view, Value>, 7> kNames{{{"int8", int8},
                                                                             {"float32", float32},
                                                                             {"bfloat16", bfloat16},
                                                                             {"float16", float16},
                                                                             {"tf32", tf32},
                                                                             {"bfloat16-emulated", bfloat16_emulated},
                                                                             {"float16-emulated", float16_emulated}}};

  constexpr LayerType(Value value) : value_(value) {}  // NOLINT(google-explicit-constructor): one is the other
  consteval LayerType(const char* name) : value_(parse(name).value().value_) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] static constexpr std::optional<LayerType> parse(std::string_view name) {
    for (const auto& [known, value] : kNames) {
      if (known == name) return LayerType(value);
    }
    return std::nullopt;
  }

  [[nodiscard]] constexpr std::string_view name() const { return kNames[value_].first; }
  /// The 16-bit type that it rounds to, with the type's kernels or in float32; nothing: none.
  [[nodiscard]] constexpr std::optional<ir::DType> narrow() const {
    if (value_ == bfloat16 || value_ == bfloat16_emulated) return ir::DType::bf16;
    if (value_ == float16 || value_ == float16_emulated) return ir::DType::f16;
    return std::nullopt;
  }
  /// The values of `narrow`, computed in float32.
  [[nodiscard]] constexpr bool emulated() const { return value_ == bfloat16_emulated || value_ == float16_emulated; }
  constexpr operator Value() const { return value_; }  // NOLINT(google-explicit-constructor): for switch and ==

 private:
  Value value_;
};

/// A set of them.
class LayerTypes {
 public:
  constexpr LayerTypes() = default;
  constexpr LayerTypes(std::initializer_list<LayerType> types) {
    for (const LayerType t : types) insert(t);
  }
  constexpr void insert(LayerType t) { bits_ |= bit(t); }
  constexpr void erase(LayerType t) { bits_ &= ~bit(t); }
  [[nodiscard]] constexpr bool contains(LayerType t) const { return (bits_ & bit(t)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const LayerTypes&) const = default;
  /// In the order of kNames.
  [[nodiscard]] std::vector<LayerType> all() const {
    std::vector<LayerType> out;
    for (const auto& [name, value] : LayerType::kNames) {
      if (contains(value)) out.emplace_back(value);
    }
    return out;
  }
  /// For texts.
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> out;
    for (const LayerType t : all()) out.emplace(t.name());
    return out;
  }

 private:
  static constexpr std::uint32_t bit(LayerType t) { return 1U << static_cast<unsigned>(LayerType::Value(t)); }
  std::uint32_t bits_ = 0;
};

}  // namespace octavo::plan
