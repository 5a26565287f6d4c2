// The architecture of a GPU, as a number: kernels are chosen by it. It is a text only where one enters (names that callers give, tactics of engine files) and
// where one leaves (options of NVRTC, reports).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace octavo::cuda {

struct Architecture {
  int sm = 0;             ///< 90: compute capability 9.0; 0: not known
  bool specific = false;  ///< "sm_90a": kernels may use the instructions that no other architecture has

  constexpr Architecture() = default;
  constexpr Architecture(int number, bool is_specific) : sm(number), specific(is_specific) {}
  /// Of a literal; another spelling does not compile.
  consteval Architecture(const char* literal);  // NOLINT(google-explicit-constructor): "sm_90a" is as good as the number
  /// As NVRTC spells it: "sm_90a". Empty: not known.
  [[nodiscard]] std::string text() const;
  bool operator==(const Architecture&) const = default;
};

/// Of "sm_90" or "sm_90a". Nothing: another text.
[[nodiscard]] constexpr std::optional<Architecture> parse_architecture(std::string_view text) {
  constexpr std::string_view kPrefix = "sm_";
  constexpr std::size_t kMostDigits = 4;
  if (text.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  Architecture out;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (digits == kMostDigits) return std::nullopt;
    out.sm = out.sm * 10 + (text[digits] - '0');
  }
  text.remove_prefix(digits);
  out.specific = text.size() == 1 && text[0] == 'a';
  if (out.sm == 0 || (!text.empty() && !out.specific)) return std::nullopt;
  return out;
}

consteval Architecture::Architecture(const char* literal) : Architecture(parse_architecture(literal).value()) {}

}  // namespace octavo::cuda
