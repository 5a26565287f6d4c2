#include "cpu/jit/widen.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace octavo::cpu::jit {
namespace {

#define AVX2 [[gnu::target("avx2")]]

AVX2 inline void widen_16(const std::byte* from, __m256i zero, std::byte* to) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_sub_epi16(x, zero));
}

AVX2 void widen(const std::byte* from, std::int64_t codes, std::int32_t zero, std::byte* to) {
  const __m256i z = _mm256_set1_epi16(static_cast<std::int16_t>(zero));
  std::int64_t i = 0;
  for (; i + 16 <= codes; i += 16) widen_16(from + i, z, to + 2 * i);
  if (i == codes) return;
  if (codes >= 16) return widen_16(from + codes - 16, z, to + 2 * (codes - 16));  // overlaps: the same numbers again
  for (; i < codes; ++i) {
    const auto x = static_cast<std::int16_t>(std::to_integer<std::int32_t>(from[i]) - zero);
    std::memcpy(to + 2 * i, &x, 2);
  }
}

}  // namespace

void widen_pixels(const std::byte* from, std::int64_t step, const StripRow& row, std::int64_t count, std::int64_t pitch,
                  std::byte* to) {
  if (step == row.channels && pitch == 2 * row.channels) return widen(from, count * row.channels, row.zero, to);
  for (std::int64_t i = 0; i < count; ++i) widen(from + i * step, row.channels, row.zero, to + i * pitch);
}

void widen_strip_row(const Phase& ph, const StripRow& row, const std::byte* from, std::byte* to) {
  const std::int64_t width = ph.strip_width(), x0 = ph.x.lowest(), x1 = x0 + width;
  if (from == nullptr) {
    std::memset(to, 0, static_cast<std::size_t>(width * ph.pitch));
    return;
  }
  const std::int64_t first = std::clamp<std::int64_t>(0, x0, x1), until = std::clamp<std::int64_t>(row.width, first, x1);
  std::memset(to, 0, static_cast<std::size_t>((first - x0) * ph.pitch));
  widen_pixels(from + first * row.pixel, row.pixel, row, until - first, ph.pitch, to + (first - x0) * ph.pitch);
  std::memset(to + (until - x0) * ph.pitch, 0, static_cast<std::size_t>((x1 - until) * ph.pitch));
}

}  // namespace octavo::cpu::jit
