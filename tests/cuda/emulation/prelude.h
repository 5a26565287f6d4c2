// The host's form of the functions that every text may use: the names and meanings of src/cuda/text/prelude.inc.
#pragma once

#define OCTAVO_DEVICE static inline
#define OCTAVO_TABLE static const unsigned char
#define OCTAVO_KERNEL(threads, blocks) extern "C" __global__ void
#define OCTAVO_SHARED(name) unsigned char* const name = (unsigned char*)octavo_hooks->dynamic_shared
#define OCTAVO_UNROLL
#define OCTAVO_NO_UNROLL

OCTAVO_DEVICE int octavo_thread() {
  return (int)threadIdx.x;
}
OCTAVO_DEVICE int octavo_block() {
  return (int)blockIdx.x;
}
OCTAVO_DEVICE int octavo_block_y() {
  return (int)blockIdx.y;
}
OCTAVO_DEVICE int octavo_blocks() {
  return (int)gridDim.x;
}
#define octavo_barrier() __syncthreads()
#define octavo_warp_barrier() __syncwarp()
OCTAVO_DEVICE int octavo_same(int v) {
  return v;
}
#define octavo_meet(id, threads) octavo_hooks->barrier(id, threads, __LINE__)
#define octavo_arrive(id, threads) octavo_hooks->arrive(id, threads)
OCTAVO_DEVICE void octavo_wait_for_previous() {}
OCTAVO_DEVICE void octavo_let_next_begin(int = 0) {}

template <int bytes, bool near_copy>
OCTAVO_DEVICE void octavo_copy_async(void* shared, const void* global) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  octavo_hooks->copy_async(shared, global, bytes, bytes);
}
OCTAVO_DEVICE void octavo_copy_or_zero(void* shared, const void* global, bool inside) {
  octavo_hooks->copy_async(shared, global, 16, inside ? 16 : 0);
}
template <int bytes>
OCTAVO_DEVICE void octavo_copy_some(void* shared, const void* global, int valid) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  octavo_hooks->copy_async(shared, global, bytes, valid);
}
OCTAVO_DEVICE void octavo_copy_commit() {
  octavo_hooks->commit();
}
template <int groups>
OCTAVO_DEVICE void octavo_copy_wait() {
  octavo_hooks->wait(groups);
}

#define octavo_signal_begin(signal, arrivals) octavo_hooks->signal_begin(signal, arrivals)
#define octavo_signals_begun() ((void)0)
#define octavo_signal_copies(signal) octavo_hooks->signal_copies(signal)
#define octavo_signal_wait(signal, parity) octavo_hooks->signal_wait(signal, parity, __LINE__)
#define OCTAVO_IMAGE(name) const OctavoImage* name
#define octavo_image_at(name) (name)
OCTAVO_UNCHECKED static inline void octavo_copy_image(void* shared, const OctavoImage* image, int channel, int x, int y, int n,
                                                      int right, int down, int size, void* signal) {
  const int from[4] = {channel, x, y, n};
  octavo_hooks->copy_image(shared, image, from, right, down, size, signal);
}
#define octavo_copy_bulk(shared, global, bytes, signal) octavo_hooks->copy_bulk(shared, global, bytes, signal)
OCTAVO_UNCHECKED static inline void octavo_signal_arrive_at(int line, void* signal, int lane) {
  octavo_syncwarp(line);
  if (lane == 0) octavo_hooks->signal_arrive(signal);
}
#define octavo_signal_arrive(signal, lane) octavo_signal_arrive_at(__LINE__, signal, lane)
#define octavo_signal_arrive_each(signal) octavo_hooks->signal_arrive(signal)

struct OctavoMatrices {
  const void* row;
  unsigned* r;
  int count;
};
OCTAVO_UNCHECKED static inline void octavo_matrices_together(void** lanes) {
  for (int l = 0; l < 32; ++l) {
    auto* mine = (OctavoMatrices*)lanes[l];
    if (mine == nullptr) return octavo_hooks->trap("ldmatrix without all lanes of the warp");
    for (int k = 0; k < mine->count; ++k) {
      const auto* row = (const unsigned char*)((OctavoMatrices*)lanes[8 * k + l / 4])->row;
      __builtin_memcpy(&mine->r[k], row + l % 4 * 4, 4);
    }
  }
}
template <int count>
OCTAVO_UNCHECKED static inline void octavo_matrices_at(int line, unsigned (&r)[count], const void* row) {
  if (octavo_lane() < 8 * count) octavo_hooks->access(row, 16, 0, 1);
  unsigned values[count];  // r may be where other lanes' rows are named
  OctavoMatrices m{row, values, count};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_matrices_together);
  for (int k = 0; k < count; ++k) r[k] = values[k];
}
#define octavo_load_matrices(r, row) octavo_matrices_at(__LINE__, r, row)
OCTAVO_UNCHECKED static inline void octavo_turned_together(void** lanes) {
  for (int l = 0; l < 32; ++l) {
    auto* mine = (OctavoMatrices*)lanes[l];
    if (mine == nullptr) return octavo_hooks->trap("ldmatrix without all lanes of the warp");
    for (int k = 0; k < mine->count; ++k) {
      for (int e = 0; e < 2; ++e) {
        const auto* row = (const unsigned char*)((OctavoMatrices*)lanes[8 * k + l % 4 * 2 + e])->row;
        __builtin_memcpy((unsigned char*)&mine->r[k] + 2 * e, row + l / 4 * 2, 2);
      }
    }
  }
}
OCTAVO_UNCHECKED static inline void octavo_turned_at(int line, unsigned (&r)[4], const void* row) {
  octavo_hooks->access(row, 16, 0, 1);
  unsigned values[4];
  OctavoMatrices m{row, values, 4};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_turned_together);
  for (int k = 0; k < 4; ++k) r[k] = values[k];
}
#define octavo_load_turned(r, row) octavo_turned_at(__LINE__, r, row)

struct OctavoMma {
  int* c;
  const unsigned* a;
  unsigned b[2];
};
// c[16][8] += a[16][32] b[32][8]. Lane l holds, with g = l / 4 and t = l % 4: of a, bytes 4t..4t+3 (a0, a1) and 16+4t.. (a2, a3) of
// rows g (a0, a2) and g + 8 (a1, a3); of b, rows 4t..4t+3 (b0) and 16+4t.. (b1) of column g; of c, columns 2t and 2t+1 of rows g
// (c0, c1) and g + 8 (c2, c3).
template <class A, class B>
OCTAVO_UNCHECKED static inline void octavo_mma_together(void** lanes) {
  B b[8][32];
  for (int l = 0; l < 32; ++l) {
    auto* m = (OctavoMma*)lanes[l];
    if (m == nullptr) return octavo_hooks->trap("mma without all lanes of the warp");
    for (int k = 0; k < 2; ++k) __builtin_memcpy(&b[l / 4][16 * k + l % 4 * 4], &m->b[k], 4);
  }
  for (int row = 0; row < 16; ++row) {
    A a[32];
    for (int t = 0; t < 4; ++t) {
      const auto* m = (OctavoMma*)lanes[row % 8 * 4 + t];
      __builtin_memcpy(&a[4 * t], &m->a[row / 8], 4);
      __builtin_memcpy(&a[16 + 4 * t], &m->a[2 + row / 8], 4);
    }
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int k = 0; k < 32; ++k) sum += (int)a[k] * (int)b[column][k];
      int& c = ((OctavoMma*)lanes[row % 8 * 4 + column / 2])->c[row / 8 * 2 + column % 2];
      c = (int)((unsigned)c + (unsigned)sum);
    }
  }
}
template <class A, class B>
OCTAVO_UNCHECKED static inline void octavo_mma_at(int line, int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  OctavoMma m{c, a, {b0, b1}};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_mma_together<A, B>);
}
#define octavo_mma_u8s8(c, a, b0, b1) octavo_mma_at<unsigned char, signed char>(__LINE__, c, a, b0, b1)
#define octavo_mma_u8u8(c, a, b0, b1) octavo_mma_at<unsigned char, unsigned char>(__LINE__, c, a, b0, b1)
#define octavo_mma_s8u8(c, a, b0, b1) octavo_mma_at<signed char, unsigned char>(__LINE__, c, a, b0, b1)
#define octavo_mma_s8s8(c, a, b0, b1) octavo_mma_at<signed char, signed char>(__LINE__, c, a, b0, b1)

// A part of such a product: c[8][8] += a[8][16] b[16][8]. Lane l holds bytes 4t..4t+3 of row g of a and of column g of b, and columns 2t and 2t+1 of row g of c.
struct OctavoMmaPart {
  int *c0, *c1;
  unsigned a, b;
};
template <class A, class B>
OCTAVO_UNCHECKED static inline void octavo_mma_parts_together(void** lanes) {
  A a[8][16];
  B b[8][16];
  for (int l = 0; l < 32; ++l) {
    auto* m = (OctavoMmaPart*)lanes[l];
    if (m == nullptr) return octavo_hooks->trap("mma without all lanes of the warp");
    __builtin_memcpy(&a[l / 4][l % 4 * 4], &m->a, 4);
    __builtin_memcpy(&b[l / 4][l % 4 * 4], &m->b, 4);
  }
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) {
      auto* m = (OctavoMmaPart*)lanes[row * 4 + column / 2];
      int& c = column % 2 == 0 ? *m->c0 : *m->c1;
      for (int k = 0; k < 16; ++k) c = (int)((unsigned)c + (unsigned)((int)a[row][k] * (int)b[column][k]));
    }
  }
}
template <class A, class B>
OCTAVO_UNCHECKED static inline void octavo_mma_part_at(int line, int& c0, int& c1, unsigned a, unsigned b) {
  OctavoMmaPart m{&c0, &c1, a, b};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_mma_parts_together<A, B>);
}
#define octavo_mma_part_u8s8(c0, c1, a, b) octavo_mma_part_at<unsigned char, signed char>(__LINE__, c0, c1, a, b)
#define octavo_mma_part_u8u8(c0, c1, a, b) octavo_mma_part_at<unsigned char, unsigned char>(__LINE__, c0, c1, a, b)
#define octavo_mma_part_s8u8(c0, c1, a, b) octavo_mma_part_at<signed char, unsigned char>(__LINE__, c0, c1, a, b)
#define octavo_mma_part_s8s8(c0, c1, a, b) octavo_mma_part_at<signed char, signed char>(__LINE__, c0, c1, a, b)

// The same bytes as floats: bfloat16, or tf32, of which the units read 10 bits behind the point.
struct OctavoRealMma {
  float* c;
  const unsigned* a;
  unsigned b[2];
};
enum class OctavoReal { tf32, bf16, f16 };
template <OctavoReal type>
OCTAVO_UNCHECKED static inline float octavo_element(const unsigned char* row, int k) {
  unsigned bits = 0;
  if (type != OctavoReal::tf32) {
    unsigned short h;
    __builtin_memcpy(&h, row + 2 * k, 2);
    if (type == OctavoReal::f16) return (float)__builtin_bit_cast(_Float16, h);
    bits = (unsigned)h << 16;
  } else {
    __builtin_memcpy(&bits, row + 4 * k, 4);
    bits &= 0xffffe000u;
  }
  float v;
  __builtin_memcpy(&v, &bits, 4);
  return v;
}
// Eight products in tf32 and c, each truncated to 23 bits behind the leading one of the largest: what matrix units were seen to do.
OCTAVO_UNCHECKED static inline float octavo_truncated_sum(const unsigned char* a, const unsigned char* b, float c) {
  double all[9], largest = 0, sum = 0, plain = 0;
  for (int k = 0; k < 9; ++k) {
    all[k] = k == 8 ? (double)c : (double)octavo_element<OctavoReal::tf32>(a, k) * (double)octavo_element<OctavoReal::tf32>(b, k);
    plain += all[k];
    const double size = all[k] < 0 ? -all[k] : all[k];
    if (size > largest) largest = size;
  }
  if (!(largest > 0) || !(plain - plain == 0)) return (float)plain;
  unsigned long long bits;
  __builtin_memcpy(&bits, &largest, 8);
  bits &= 0x7ff0000000000000ull;  // the power of two
  double unit;
  __builtin_memcpy(&unit, &bits, 8);
  unit *= 0x1p-23;
  for (int k = 0; k < 9; ++k) sum += (double)(long long)(all[k] / unit) * unit;
  float out = (float)sum;
  const double over = out < 0 ? sum - (double)out : (double)out - sum;
  if (over > 0) {  // towards zero
    unsigned word;
    __builtin_memcpy(&word, &out, 4);
    --word;
    __builtin_memcpy(&out, &word, 4);
  }
  return out;
}
template <OctavoReal type>
OCTAVO_UNCHECKED static inline void octavo_real_mma_together(void** lanes) {
  unsigned char b[8][32];
  for (int l = 0; l < 32; ++l) {
    auto* m = (OctavoRealMma*)lanes[l];
    if (m == nullptr) return octavo_hooks->trap("mma without all lanes of the warp");
    for (int k = 0; k < 2; ++k) __builtin_memcpy(&b[l / 4][16 * k + l % 4 * 4], &m->b[k], 4);
  }
  for (int row = 0; row < 16; ++row) {
    unsigned char a[32];
    for (int t = 0; t < 4; ++t) {
      const auto* m = (OctavoRealMma*)lanes[row % 8 * 4 + t];
      __builtin_memcpy(&a[4 * t], &m->a[row / 8], 4);
      __builtin_memcpy(&a[16 + 4 * t], &m->a[2 + row / 8], 4);
    }
    for (int column = 0; column < 8; ++column) {
      float& c = ((OctavoRealMma*)lanes[row % 8 * 4 + column / 2])->c[row / 8 * 2 + column % 2];
      if (type == OctavoReal::tf32) {
        c = octavo_truncated_sum(a, b[column], c);
        continue;
      }
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += octavo_element<type>(a, k) * octavo_element<type>(b[column], k);
      c += sum;
    }
  }
}
template <OctavoReal type>
OCTAVO_UNCHECKED static inline void octavo_real_mma_at(int line, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  OctavoRealMma m{c, a, {b0, b1}};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_real_mma_together<type>);
}
#define octavo_mma_bf16(c, a, b0, b1) octavo_real_mma_at<OctavoReal::bf16>(__LINE__, c, a, b0, b1)
#define octavo_mma_f16(c, a, b0, b1) octavo_real_mma_at<OctavoReal::f16>(__LINE__, c, a, b0, b1)
#define octavo_mma_tf32(c, a, b0, b1) octavo_real_mma_at<OctavoReal::tf32>(__LINE__, c, a, b0, b1)
// A part of a product of float16: c[16][8] += a[16][8] b[8][8].
struct OctavoHalfPart {
  float* c;
  unsigned a[2], b;
};
OCTAVO_UNCHECKED static inline void octavo_half_parts_together(void** lanes) {
  float a[16][8], b[8][8];
  for (int l = 0; l < 32; ++l) {
    auto* m = (OctavoHalfPart*)lanes[l];
    if (m == nullptr) return octavo_hooks->trap("mma without all lanes of the warp");
    for (int e = 0; e < 2; ++e) {
      b[l / 4][l % 4 * 2 + e] = octavo_element<OctavoReal::f16>((const unsigned char*)&m->b, e);
      for (int half = 0; half < 2; ++half)
        a[l / 4 + 8 * half][l % 4 * 2 + e] = octavo_element<OctavoReal::f16>((const unsigned char*)&m->a[half], e);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = 0;
      for (int k = 0; k < 8; ++k) sum += a[row][k] * b[column][k];
      ((OctavoHalfPart*)lanes[row % 8 * 4 + column / 2])->c[row / 8 * 2 + column % 2] += sum;
    }
  }
}
OCTAVO_UNCHECKED static inline void octavo_half_part_at(int line, float (&c)[4], unsigned a0, unsigned a1, unsigned b) {
  OctavoHalfPart m{c, {a0, a1}, b};
  octavo_hooks->collective(0xffffffffu, line, &m, octavo_half_parts_together);
}
#define octavo_mma_part_f16(c, a0, a1, b) octavo_half_part_at(__LINE__, c, a0, a1, b)
OCTAVO_DEVICE unsigned octavo_round_tf32(unsigned v) {
  if ((v & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
  return (v & 0x7f800000u) == 0x7f800000u ? v : (v + 0x1000u) & 0xffffe000u;
}

OCTAVO_DEVICE int octavo_dot4_u8s8(unsigned a, unsigned b, int c) {
  for (int i = 0; i < 4; ++i) c += (int)(a >> (8 * i) & 255) * (int)(signed char)(b >> (8 * i));
  return c;
}
OCTAVO_DEVICE unsigned octavo_permute(unsigned low, unsigned high, unsigned selector) {
  return __byte_perm(low, high, selector);
}
// Float 8388608 + byte k of the word.
OCTAVO_DEVICE float octavo_byte_value(unsigned word, int k) {
  return __int_as_float((int)__byte_perm(word, 0x4b000000u, 0x7440u + (unsigned)k));
}
OCTAVO_DEVICE void octavo_prefetch(const void*) {}
#define octavo_shuffle_xor(v, mask) __shfl_xor_sync(0xffffffffu, v, mask)
#define octavo_shuffle_from(v, lane) __shfl_sync(0xffffffffu, v, lane)
#define octavo_ballot(v) __ballot_sync(0xffffffffu, v)

template <int bytes>
OCTAVO_DEVICE void octavo_read(unsigned* r, const void* p) {
  if (bytes == 16) {
    const uint4 v = *(const uint4*)p;
    r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
  } else if (bytes == 8) {
    const uint2 v = *(const uint2*)p;
    r[0] = v.x, r[1] = v.y;
  } else if (bytes == 4) {
    r[0] = *(const unsigned*)p;
  } else if (bytes == 2) {
    r[0] = *(const unsigned short*)p;
  } else {
    r[0] = *(const unsigned char*)p;
  }
}
template <int bytes>
OCTAVO_DEVICE void octavo_write(void* p, const unsigned* r) {
  if (bytes == 16) {
    *(uint4*)p = make_uint4(r[0], r[1], r[2], r[3]);
  } else if (bytes == 8) {
    *(uint2*)p = make_uint2(r[0], r[1]);
  } else if (bytes == 4) {
    *(unsigned*)p = r[0];
  } else if (bytes == 2) {
    *(unsigned short*)p = (unsigned short)r[0];
  } else {
    *(unsigned char*)p = (unsigned char)r[0];
  }
}
OCTAVO_DEVICE unsigned octavo_max_pairs(unsigned a, unsigned b) {
  const auto greater = [](unsigned x, unsigned y) { return x > y ? x : y; };
  return greater(a & 0xffffu, b & 0xffffu) | greater(a >> 16, b >> 16) << 16;
}
OCTAVO_DEVICE void octavo_atomic_add(int* p, int v) {
  atomicAdd(p, v);
}
OCTAVO_DEVICE int octavo_atomic_next(int* p) {
  return atomicAdd(p, 1);
}
OCTAVO_DEVICE void octavo_atomic_max(int* p, int v) {
  atomicMax(p, v);
}
OCTAVO_DEVICE int octavo_atomic_exchange(int* p, int v) {
  return atomicExch(p, v);
}
OCTAVO_DEVICE int octavo_read_shared_sum(const int* p) {
  return *p;
}
OCTAVO_DEVICE void octavo_fence() {}

OCTAVO_DEVICE unsigned octavo_pack_bytes(int low, int high, int a, int b, int c, int d) {
  const auto byte = [&](int v) { return (unsigned)(v < low ? low : v > high ? high : v) & 255u; };
  return byte(a) | byte(b) << 8 | byte(c) << 16 | byte(d) << 24;
}
OCTAVO_DEVICE unsigned octavo_pack_u8(int a, int b, int c, int d) {
  return octavo_pack_bytes(0, 255, a, b, c, d);
}
OCTAVO_DEVICE unsigned octavo_pack_s8(int a, int b, int c, int d) {
  return octavo_pack_bytes(-128, 127, a, b, c, d);
}

OCTAVO_DEVICE float octavo_gt(float a, float b, float c, float d) {
  return a > b ? c : d;
}
OCTAVO_DEVICE float octavo_lt(float a, float b, float c, float d) {
  return a < b ? c : d;
}
OCTAVO_DEVICE float octavo_eq(float a, float b, float c, float d) {
  return a == b ? c : d;
}

OCTAVO_DEVICE float octavo_at_most(float v, float bound) {
  return bound < v ? bound : v;
}
OCTAVO_DEVICE float octavo_at_least(float v, float bound) {
  return bound > v ? bound : v;
}
OCTAVO_DEVICE float fabsf(float v) {
  return __builtin_fabsf(v);
}
// One unit off, one way or the other, as the GPU may be.
OCTAVO_DEVICE float octavo_inverse(float v) {
  const float r = 1.0f / v;
  const unsigned bits = __float_as_uint(r);
  if ((bits & 0x7f800000u) == 0x7f800000u || (bits & 0x7f800000u) == 0) return r;
  return __uint_as_float(bits + __float_as_uint(v) % 3 - 1);
}

OCTAVO_DEVICE unsigned short octavo_f16_bits(float v) {
  return __builtin_bit_cast(unsigned short, (_Float16)v);
}
OCTAVO_DEVICE float octavo_f16_value(unsigned short h) {
  return (float)__builtin_bit_cast(_Float16, h);
}
OCTAVO_DEVICE unsigned short octavo_bf16_bits(float v) {
  const unsigned b = (unsigned)__float_as_int(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((b >> 16) | 0x40u);
  return (unsigned short)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
OCTAVO_DEVICE float octavo_bf16_value(unsigned short h) {
  return __int_as_float((int)((unsigned)h << 16));
}
OCTAVO_DEVICE unsigned octavo_f16_pair(float low, float high) {
  return octavo_f16_bits(low) | (unsigned)octavo_f16_bits(high) << 16;
}
OCTAVO_DEVICE unsigned octavo_bf16_pair(float low, float high) {
  return octavo_bf16_bits(low) | (unsigned)octavo_bf16_bits(high) << 16;
}
#define OCTAVO_LIBRARY(name)                     \
  OCTAVO_DEVICE double octavo_##name(double v) { \
    return __builtin_##name(v);                  \
  }
OCTAVO_LIBRARY(tan)
OCTAVO_LIBRARY(asin)
OCTAVO_LIBRARY(acos)
OCTAVO_LIBRARY(atan)
OCTAVO_LIBRARY(sinh)
OCTAVO_LIBRARY(cosh)
OCTAVO_LIBRARY(asinh)
OCTAVO_LIBRARY(acosh)
OCTAVO_LIBRARY(atanh)
OCTAVO_DEVICE float octavo_fmod(float a, float b) {
  return __builtin_fmodf(a, b);
}
OCTAVO_DEVICE double octavo_fmod(double a, double b) {
  return __builtin_fmod(a, b);
}
OCTAVO_DEVICE float octavo_exp2(float v) {
  const float r = __builtin_exp2f(v);
  return r < 1.17549435e-38f ? 0.0f : r;
}

#include "groups.h"
