// The three steps of Winograd's convolution of 3 x 3 taps, F(2 x 2, 3 x 3): four outputs from a 4 x 4 tile of inputs by 16 products instead of 36.
//
//   V = Bt d B,  U = G g Gt,  M = U * V element by element, summed over the input channels,  y = At M A
//
//        1  0 -1  0         1    0    0         1  1  1  0
//   Bt = 0  1  1  0    G = 1/2  1/2  1/2   At =
//        0 -1  1  0        1/2 -1/2  1/2        0  1 -1 -1
//        0  1  0 -1         0    0    1
//
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.) Element (i, j) of V, U and M is plane 4 * i + j: a plane has a row
// for each tile and a column for each channel, so that M is 16 products of matrices. Compiled for AVX2 and for AVX-512: without fused
// multiply-adds in hardware a direct convolution is as fast.
#pragma once

#include <cstdint>

namespace octavo::cpu {

constexpr std::int64_t kWinogradPlanes = 16;
constexpr std::int64_t kWinogradColumns = 64;
constexpr std::int64_t kWinogradLeastChannels = 16;  ///< of the input: the last vector of channels overlaps the one before it

// Steps count floats.
struct WinogradRows {
  // V of `tiles` neighbours: v[p * plane + t * v_step + c], c < channels, of the pixels d[i * row + (2 * t + j) * pixel + c], i < 4, j < 4; channels >=
  // kWinogradLeastChannels
  void (*input)(float* v, std::int64_t plane, std::int64_t v_step, const float* d, std::int64_t row, std::int64_t pixel,
                std::int64_t tiles, std::int64_t channels);
  // m[r * m_step + j] = sum over i < k of v[r * v_step + i] * u[i * n + j], j < n, a multiple of kColumns, at most kWinogradColumns
  void (*multiply)(float* m, std::int64_t m_step, const float* v, std::int64_t v_step, std::int64_t rows, const float* u,
                   std::int64_t k, std::int64_t n);
  // Output rows 0 and 1 of `tiles` tiles, of which M is at m[p * plane + t * m_step + c]: to[row][(2 * t + x) * cols + c], c < cols. The last vector
  // of channels may write up to kColumns - 1 floats behind the last pixel. False: one of them is infinite or NaN.
  bool (*output)(float* const* to, const float* m, std::int64_t plane, std::int64_t m_step, std::int64_t tiles, std::int64_t cols);
};
#if defined(__x86_64__)
const WinogradRows& avx2_winograd();
const WinogradRows& avx512_winograd();
#endif

}  // namespace octavo::cpu
