#include "cpu/avx512/strip.h"

#include <algorithm>
#include <cstring>

namespace octavo::cpu::avx512 {
namespace {

/// `bytes` from each of `count` places, in whole chunks: what is copied too much is overwritten by the next.
template <std::size_t kChunk>
void copy_chunks(const std::byte* from, std::int64_t step, std::byte* to, std::int64_t pitch, std::int64_t count,
                 std::int64_t bytes) {
  for (std::int64_t j = 0; j < count; ++j, from += step, to += pitch) {
    for (std::int64_t k = 0; k < bytes; k += static_cast<std::int64_t>(kChunk)) std::memcpy(to + k, from + k, kChunk);
  }
}

void copy_pixels(const std::byte* from, std::int64_t step, std::byte* to, std::int64_t pitch, std::int64_t count,
                 std::int64_t bytes, bool may_read_on) {
  if (count <= 0) return;
  if (step == bytes && pitch == bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(count * bytes));
    return;
  }
  const std::int64_t quick = may_read_on ? count : std::max<std::int64_t>(0, count - 1 - 64 / std::max<std::int64_t>(1, step));
  if (bytes > 32) {
    copy_chunks<64>(from, step, to, pitch, quick, bytes);
  } else if (bytes > 16) {
    copy_chunks<32>(from, step, to, pitch, quick, bytes);
  } else {
    copy_chunks<16>(from, step, to, pitch, quick, bytes);
  }
  for (std::int64_t j = quick; j < count; ++j) std::memcpy(to + j * pitch, from + j * step, static_cast<std::size_t>(bytes));
}

}  // namespace

void copy_strip_row(const Phase& ph, const StripRow& row, const std::byte* from, std::byte* to) {
  const std::int64_t c = row.channels, width = ph.strip_width();
  if (from == nullptr) {
    std::memset(to, row.zero, static_cast<std::size_t>(width * ph.pitch));
    return;
  }
  if (!ph.joined) {
    const std::int64_t x0 = ph.x.lowest(), x1 = x0 + width;
    const std::int64_t first = std::clamp<std::int64_t>(0, x0, x1), until = std::clamp<std::int64_t>(row.width, first, x1);
    copy_pixels(from + first * row.pixel, row.pixel, to + (first - x0) * ph.pitch, ph.pitch, until - first, c, row.may_read_on);
    std::memset(to, row.zero, static_cast<std::size_t>((first - x0) * ph.pitch));
    std::memset(to + (until - x0) * ph.pitch, row.zero, static_cast<std::size_t>((x1 - until) * ph.pitch));
    return;
  }
  // Every pixel of the strip is a row of taps; those that lie inside from the first to the last tap are copied as one where the
  // taps are neighbours in memory.
  const auto taps = static_cast<std::int64_t>(ph.x.offset.size());
  const auto inside = [&](std::int64_t j) {
    return j * ph.x.step + ph.x.lowest() >= 0 && j * ph.x.step + ph.x.highest() < row.width;
  };
  const bool together = row.pixel == c && ph.x.highest() - ph.x.lowest() == taps - 1;
  std::int64_t j = 0;
  while (j < width) {
    std::int64_t end = j;
    while (together && end < width && inside(end)) ++end;
    if (end > j) {
      copy_pixels(from + (j * ph.x.step + ph.x.lowest()) * c, ph.x.step * c, to + j * ph.pitch, ph.pitch, end - j, taps * c,
                  row.may_read_on);
      j = end;
      continue;
    }
    for (std::int64_t t = 0; t < taps; ++t) {
      const std::int64_t at = j * ph.x.step + ph.x.offset[static_cast<std::size_t>(t)];
      std::byte* tap = to + j * ph.pitch + t * c;
      if (at < 0 || at >= row.width) {
        std::memset(tap, row.zero, static_cast<std::size_t>(c));
      } else {
        std::memcpy(tap, from + at * row.pixel, static_cast<std::size_t>(c));
      }
    }
    ++j;
  }
}

}  // namespace octavo::cpu::avx512
