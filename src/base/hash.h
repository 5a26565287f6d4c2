// Stable 64-bit and 128-bit hashes (XXH3, from libxxhash, header-only): the same on every machine and run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

[[nodiscard]] std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
[[nodiscard]] std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0);
/// Order-dependent combination of two hashes.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2);
  a *= 0xff51afd7ed558ccdULL;
  return a ^ (a >> 32);
}
/// 32 hexadecimal digits of XXH3-128.
[[nodiscard]] std::string hash128_hex(std::string_view text);

}  // namespace octavo
