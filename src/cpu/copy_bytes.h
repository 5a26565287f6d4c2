// Short copies without a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace octavo::cpu {

/// memcpy for runs that do not overlap; writes exactly n bytes.
inline void copy_bytes(std::byte* to, const std::byte* from, std::int64_t n) {
#if defined(__SSE2__)
  if (n >= 16 && n <= 256) {
    const auto word = [&](std::int64_t i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    };
    for (std::int64_t i = 0; i + 16 <= n; i += 16) word(i);
    word(n - 16);
    return;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(n));
}

}  // namespace octavo::cpu
