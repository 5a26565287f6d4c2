#include "cpu/jit/strip.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace octavo::cpu::jit {
namespace {

/// `bytes` at each of some places, equally far apart.
struct Places {
  const std::byte* from = nullptr;
  std::int64_t step = 0;
};

#define AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]

template <int kChunk>
AVX512 inline void copy_chunk(const std::byte* from, std::byte* to) {
  if constexpr (kChunk == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  } else if constexpr (kChunk == 32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
  }
}

/// In whole chunks: what is copied too much is overwritten by the next. One chunk a place, or as many as it takes.
template <int kChunk, int kRows>
AVX512 void copy_chunks(const std::array<Places, 2>& rows, std::int64_t bytes, std::byte* to, std::int64_t pitch,
                        std::int64_t count) {
  const std::byte *a = rows[0].from, *b = rows[1].from;
  const std::int64_t a_step = rows[0].step, b_step = rows[1].step;
  for (std::int64_t j = 0; j < count; ++j, a += a_step, b += b_step, to += pitch) {
    copy_chunk<kChunk>(a, to);
    if constexpr (kRows == 2) {
      copy_chunk<kChunk>(b, to + bytes);
    } else if constexpr (kChunk == 64) {
      for (std::int64_t k = kChunk; k < bytes; k += kChunk) copy_chunk<kChunk>(a + k, to + k);
    }
  }
}

/// The same of one row without AVX-512.
template <int kChunk>
void copy_narrow(const Places& row, std::int64_t bytes, std::byte* to, std::int64_t pitch, std::int64_t count) {
  const std::byte* from = row.from;
  for (std::int64_t j = 0; j < count; ++j, from += row.step, to += pitch) {
    for (std::int64_t k = 0; k < bytes; k += kChunk) std::memcpy(to + k, from + k, kChunk);
  }
}

/// Whole lines, few enough that a call would be felt.
AVX512 inline void copy_lines(const std::byte* from, std::byte* to, std::int64_t bytes) {
  std::int64_t k = 0;
  for (; k + 256 <= bytes; k += 256) {
    const __m512i a = _mm512_loadu_si512(from + k), b = _mm512_loadu_si512(from + k + 64);
    const __m512i c = _mm512_loadu_si512(from + k + 128), d = _mm512_loadu_si512(from + k + 192);
    _mm512_storeu_si512(to + k, a);
    _mm512_storeu_si512(to + k + 64, b);
    _mm512_storeu_si512(to + k + 128, c);
    _mm512_storeu_si512(to + k + 192, d);
  }
  for (; k < bytes; k += 64) copy_chunk<64>(from + k, to + k);
}
AVX512 inline void fill_lines(int zero, std::byte* to, std::int64_t bytes) {
  const __m512i v = _mm512_set1_epi8(static_cast<char>(zero));
  for (std::int64_t k = 0; k < bytes; k += 64) _mm512_storeu_si512(to + k, v);
}
/// `bytes` from `from`, zero points before and behind; all are whole lines.
AVX512 void copy_padded(const std::byte* from, std::byte* to, int zero, std::int64_t before, std::int64_t bytes,
                        std::int64_t behind) {
  fill_lines(zero, to, before);
  copy_lines(from, to + before, bytes);
  fill_lines(zero, to + before + bytes, behind);
}

/// `bytes` from each of `count` places of each row, those of the rows side by side.
void copy_pixels(const std::array<Places, 2>& rows, int together, std::int64_t bytes, std::byte* to, std::int64_t pitch,
                 std::int64_t count, const StripRow& row) {
  if (count <= 0) return;
  if (together == 1 && rows[0].step == bytes && pitch == bytes) {
    std::memcpy(to, rows[0].from, static_cast<std::size_t>(count * bytes));
    return;
  }
  const std::int64_t step = std::max<std::int64_t>({1, rows[0].step, rows[1].step});
  const std::int64_t quick = row.may_read_on ? count : std::max<std::int64_t>(0, count - 1 - 64 / step);
  if (!row.wide) {
    (bytes > 32 ? copy_narrow<64> : bytes > 16 ? copy_narrow<32> : copy_narrow<16>)(rows[0], bytes, to, pitch, quick);
  } else if (together == 2) {
    (bytes > 16 ? copy_chunks<32, 2> : copy_chunks<16, 2>)(rows, bytes, to, pitch, quick);
  } else {
    (bytes > 32 ? copy_chunks<64, 1> : bytes > 16 ? copy_chunks<32, 1> : copy_chunks<16, 1>)(rows, bytes, to, pitch, quick);
  }
  for (std::int64_t j = quick; j < count; ++j) {
    for (std::int64_t r = 0; r < together; ++r) {
      const Places& p = rows[static_cast<std::size_t>(r)];
      std::memcpy(to + j * pitch + r * bytes, p.from + j * p.step, static_cast<std::size_t>(bytes));
    }
  }
}

/// `bytes`, at most 64: zero points, and from `from` those between `first` and `until`; the others are not touched.
AVX512 void copy_inside(const std::byte* from, std::byte* to, int zero, std::int64_t bytes, std::int64_t first,
                        std::int64_t until) {
  const auto below = [](std::int64_t n) { return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; };
  const __m512i outside = _mm512_set1_epi8(static_cast<char>(zero));
  const __m512i v = _mm512_mask_loadu_epi8(outside, below(until) & ~below(first), from);
  _mm512_mask_storeu_epi8(to, below(bytes), v);
}

/// Every pixel of the strip is a row of taps, or one of each of two rows.
void copy_joined(const Phase& ph, const StripRow& row, std::span<const std::byte* const> from, std::byte* to) {
  const std::int64_t c = row.channels, width = ph.strip_width();
  const auto taps = static_cast<std::int64_t>(ph.x.offset.size()), step = ph.x.step, lowest = ph.x.lowest();
  const std::int64_t bytes = taps * c;
  const auto fill = [&](std::byte* at, std::int64_t n) { std::memset(at, row.zero, static_cast<std::size_t>(n)); };
  const bool neighbours = ph.x.highest() - lowest == taps - 1;
  const auto pixel = [&](std::int64_t j) {
    std::byte* at = to + j * ph.pitch;
    for (const std::byte* line : from) {
      const std::int64_t x = j * step + lowest;
      if (line == nullptr) {
        fill(at, bytes);
      } else if (neighbours && row.pixel == c) {  // those inside lie together
        const std::int64_t first = std::clamp<std::int64_t>(-x, 0, taps), until = std::clamp(row.width - x, first, taps);
        if (bytes <= 64) {
          copy_inside(line + x * c, at, row.zero, bytes, first * c, until * c);
          at += bytes;
          continue;
        }
        fill(at, first * c);
        if (first < until) std::memcpy(at + first * c, line + (x + first) * c, static_cast<std::size_t>((until - first) * c));
        fill(at + until * c, (taps - until) * c);
      } else {
        for (std::int64_t t = 0; t < taps; ++t) {
          const std::int64_t tap = j * step + ph.x.offset[static_cast<std::size_t>(t)];
          if (tap < 0 || tap >= row.width) {
            fill(at + t * c, c);
          } else {
            std::memcpy(at + t * c, line + tap * row.pixel, static_cast<std::size_t>(c));
          }
        }
      }
      at += bytes;
    }
  };
  if (!neighbours || row.pixel != c) {
    for (std::int64_t j = 0; j < width; ++j) pixel(j);
    return;
  }
  // From `first` to `until` all taps are inside.
  const std::int64_t first = std::min(width, std::max<std::int64_t>(0, ceil_div(-lowest, step)));
  const std::int64_t last = row.width - 1 - ph.x.highest();
  const std::int64_t until = last < 0 ? first : std::clamp(last / step + 1, first, width);
  for (std::int64_t j = 0; j < first; ++j) pixel(j);
  std::array<std::byte, 64> outside;
  outside.fill(static_cast<std::byte>(row.zero));
  std::array<Places, 2> rows;
  for (std::size_t r = 0; r < from.size(); ++r) {
    rows[r] = from[r] == nullptr ? Places{outside.data(), 0} : Places{from[r] + (first * step + lowest) * c, step * c};
  }
  copy_pixels(rows, static_cast<int>(from.size()), bytes, to + first * ph.pitch, ph.pitch, until - first, row);
  for (std::int64_t j = until; j < width; ++j) pixel(j);
}

}  // namespace

void copy_strip_row(const Phase& ph, const StripRow& row, std::span<const std::byte* const> from, std::byte* to) {
  const std::int64_t c = row.channels, width = ph.strip_width();
  if (std::all_of(from.begin(), from.end(), [](const std::byte* line) { return line == nullptr; })) {
    std::memset(to, row.zero, static_cast<std::size_t>(width * ph.pitch));
    return;
  }
  if (ph.joined) return copy_joined(ph, row, from, to);
  const std::int64_t x0 = ph.x.lowest(), x1 = x0 + width;
  const std::int64_t first = std::clamp<std::int64_t>(0, x0, x1), until = std::clamp<std::int64_t>(row.width, first, x1);
  if (row.wide && c % 64 == 0 && row.pixel == c && ph.pitch == c) {
    copy_padded(from[0] + first * c, to, row.zero, (first - x0) * c, (until - first) * c, (x1 - until) * c);
    return;
  }
  copy_pixels({Places{from[0] + first * row.pixel, row.pixel}, Places{}}, 1, c, to + (first - x0) * ph.pitch, ph.pitch,
              until - first, row);
  std::memset(to, row.zero, static_cast<std::size_t>((first - x0) * ph.pitch));
  std::memset(to + (until - x0) * ph.pitch, row.zero, static_cast<std::size_t>((x1 - until) * ph.pitch));
}

}  // namespace octavo::cpu::jit
