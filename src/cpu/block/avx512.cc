// The block kernels for avx512. See block.h and CMakeLists.txt.
#include "cpu/block/block.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/block/program.inc"
#include "cpu/block/conv.inc"
#include "cpu/block/reduce.inc"
// clang-format on

// Pairs, then fours of words within the quarters of registers, then quarters.
void transpose_words(std::byte* to, std::int64_t to_row, const std::byte* from, std::int64_t from_row) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(reinterpret_cast<const float*>(from + i * from_row));
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // a[i + k]: column k of each quarter, of rows i..i+3
    for (int k = 0; k < 2; ++k) {
      const __m512d x = _mm512_castps_pd(b[i + k]), y = _mm512_castps_pd(b[i + 2 + k]);
      a[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      a[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  for (int k = 0; k < 4; ++k) {
    const __m512 x = _mm512_shuffle_f32x4(a[k], a[k + 4], 0x44), y = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0x44);
    const __m512 z = _mm512_shuffle_f32x4(a[k], a[k + 4], 0xee), w = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0xee);
    b[k] = _mm512_shuffle_f32x4(x, y, 0x88);
    b[k + 4] = _mm512_shuffle_f32x4(x, y, 0xdd);
    b[k + 8] = _mm512_shuffle_f32x4(z, w, 0x88);
    b[k + 12] = _mm512_shuffle_f32x4(z, w, 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_ps(reinterpret_cast<float*>(to + i * to_row), b[i]);
}

}  // namespace

const KernelTable& avx512_table() {
  static const KernelTable table{"avx512",     kLanes,        kConvChannels, kConvPixels, run_block, conv_i16,       conv_f32,
                                 depthwise_u8, depthwise_f32, reduce,        widen,       blend,     transpose_words};
  return table;
}

}  // namespace octavo::cpu
#endif
