// CUDA C++ as the host compiler understands it: put in front of the text of kernels, together with the host's form of the functions
// that every text may use (cuda/text/prelude.inc). The text is compiled with -fsanitize=thread, but linked without its library: the
// __tsan_* calls that the compiler puts before each access of memory are the emulation's checks (block.cc).
// Every text is compiled with this file, without optimization: functions are inline, so that those that a text does not call cost nothing.
#pragma once

#include "hooks.h"

#define __global__ __attribute__((visibility("default")))
#define __device__ static
#define __host__
#define __constant__ static const
#define __shared__ static __attribute__((section("octavo_shared")))
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define OCTAVO_UNCHECKED __attribute__((no_sanitize("thread")))
// Of a call whose structure goes to memory the compiler checks no write, of an assignment it does: such functions are part of their callers.
#define OCTAVO_AGGREGATE static inline __attribute__((always_inline))

extern "C" {
__attribute__((visibility("default"))) OctavoHooks* octavo_hooks = nullptr;
extern __attribute__((weak)) char __start_octavo_shared[];
extern __attribute__((weak)) char __stop_octavo_shared[];
__attribute__((visibility("default"))) OCTAVO_UNCHECKED void octavo_static_shared(char** begin, char** end) {
  *begin = __start_octavo_shared;
  *end = __stop_octavo_shared;
}
}

#define threadIdx (octavo_hooks->thread->thread)
#define blockIdx (octavo_hooks->thread->block)
#define blockDim (octavo_hooks->thread->block_dim)
#define gridDim (octavo_hooks->thread->grid_dim)

// Vector types
#define OCTAVO_VECTOR(name, scalar, alignment2, alignment4)                         \
  struct __align__(alignment2) name##2 {                                            \
    scalar x, y;                                                                    \
  };                                                                                \
  struct __align__(alignment4) name##4 {                                            \
    scalar x, y, z, w;                                                              \
  };                                                                                \
  OCTAVO_AGGREGATE name##2 make_##name##2(scalar x, scalar y) {                     \
    return {x, y};                                                                  \
  }                                                                                 \
  OCTAVO_AGGREGATE name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { \
    return {x, y, z, w};                                                            \
  }
OCTAVO_VECTOR(char, signed char, 2, 4)
OCTAVO_VECTOR(uchar, unsigned char, 2, 4)
OCTAVO_VECTOR(short, short, 4, 8)
OCTAVO_VECTOR(ushort, unsigned short, 4, 8)
OCTAVO_VECTOR(int, int, 8, 16)
OCTAVO_VECTOR(uint, unsigned, 8, 16)
OCTAVO_VECTOR(float, float, 8, 16)
struct __align__(16) longlong2 {
  long long x, y;
};

// Arithmetic: one rounding each, as on the GPU
static inline float __int_as_float(int v) {
  return __builtin_bit_cast(float, v);
}
static inline int __float_as_int(float v) {
  return __builtin_bit_cast(int, v);
}
static inline float __uint_as_float(unsigned v) {
  return __builtin_bit_cast(float, v);
}
static inline unsigned __float_as_uint(float v) {
  return __builtin_bit_cast(unsigned, v);
}
static inline float __int2float_rn(int v) {
  return (float)v;
}
static inline float __fadd_rn(float a, float b) {
  return a + b;
}
static inline float __fsub_rn(float a, float b) {
  return a - b;
}
static inline float __fmul_rn(float a, float b) {
  return a * b;
}
static inline float __fdiv_rn(float a, float b) {
  return a / b;
}
static inline float __frcp_rn(float a) {
  return 1.0f / a;
}
static inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline float __fsqrt_rn(float a) {
  return __builtin_sqrtf(a);
}
static inline float rintf(float v) {
  return __builtin_nearbyintf(v);
}
static inline float floorf(float v) {
  return __builtin_floorf(v);
}
static inline float ceilf(float v) {
  return __builtin_ceilf(v);
}
// Of a NaN and a number the number, also where the NaN signals.
static inline float fmaxf(float a, float b) {
  return a != a ? b : b != b ? a : __builtin_fmaxf(a, b);
}
static inline float fminf(float a, float b) {
  return a != a ? b : b != b ? a : __builtin_fminf(a, b);
}
static inline int __float2int_rn(float v) {  // saturates; NaN is 0
  if (v != v) return 0;
  const float r = rintf(v);
  return r >= 2147483648.0f ? 2147483647 : r < -2147483648.0f ? (int)0x80000000u : (int)r;
}
static inline int min(int a, int b) {
  return a < b ? a : b;
}
static inline int max(int a, int b) {
  return a > b ? a : b;
}
static inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
static inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
static inline long long min(long long a, long long b) {
  return a < b ? a : b;
}
static inline long long max(long long a, long long b) {
  return a > b ? a : b;
}
static inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long)a * b) >> 32);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long both = (unsigned long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= (unsigned)(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return r;
}
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
  return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
  return c;
}
template <class T>
OCTAVO_AGGREGATE T __ldg(const T* p) {
  return *p;
}
template <class T>
OCTAVO_AGGREGATE T __ldcg(const T* p) {
  return *p;
}
template <class T>
OCTAVO_AGGREGATE T __ldcs(const T* p) {
  return *p;
}
template <class T>
OCTAVO_AGGREGATE void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
OCTAVO_AGGREGATE void __stcg(T* p, T v) {
  *p = v;
}

// Atomics: blocks run one after the other and fibers switch at collectives only, so a plain read and write is atomic.
template <class T>
OCTAVO_UNCHECKED static inline T atomicAdd(T* p, T v) {
  octavo_hooks->atomic(p, sizeof(T));
  const T old = *p;
  *p = old + v;
  return old;
}
template <class T>
OCTAVO_UNCHECKED static inline T atomicMax(T* p, T v) {
  octavo_hooks->atomic(p, sizeof(T));
  const T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T>
OCTAVO_UNCHECKED static inline T atomicExch(T* p, T v) {
  octavo_hooks->atomic(p, sizeof(T));
  const T old = *p;
  *p = v;
  return old;
}
OCTAVO_UNCHECKED static inline unsigned atomicInc(unsigned* p, unsigned last) {
  octavo_hooks->atomic(p, 4);
  const unsigned old = *p;
  *p = old >= last ? 0 : old + 1;
  return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// Barriers and collectives; the line tells them apart.
#define __syncthreads() octavo_hooks->barrier(0, 0, __LINE__)
static inline void octavo_nothing_together(void**) {}
#define __syncwarp(...) octavo_syncwarp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
OCTAVO_UNCHECKED static inline void octavo_syncwarp(int line, unsigned mask = 0xffffffffu) {
  octavo_hooks->collective(mask, line, &mask, octavo_nothing_together);
  octavo_hooks->warp_barrier();
}

struct OctavoShuffle {
  unsigned value, result;
  int from;  ///< lane
};
OCTAVO_UNCHECKED static inline void octavo_shuffle_together(void** lanes) {
  for (int i = 0; i < 32; ++i) {
    auto* s = (OctavoShuffle*)lanes[i];
    if (s == nullptr) continue;
    if (s->from < 0 || s->from > 31) s->from = i;
    auto* other = (OctavoShuffle*)lanes[s->from];
    if (other == nullptr) octavo_hooks->trap("a shuffle reads a lane that does not take part");
    s->result = other == nullptr ? 0 : other->value;
  }
}
template <class T>
OCTAVO_UNCHECKED static inline T octavo_shuffle(unsigned mask, T v, int from, int line) {
  static_assert(sizeof(T) == 4, "shuffles of 4-byte values");
  OctavoShuffle s{__builtin_bit_cast(unsigned, v), 0, from};
  octavo_hooks->collective(mask, line, &s, octavo_shuffle_together);
  return __builtin_bit_cast(T, s.result);
}
OCTAVO_UNCHECKED static inline int octavo_lane() {
  const OctavoThread& t = *octavo_hooks->thread;
  return (int)((t.thread.x + t.block_dim.x * (t.thread.y + t.block_dim.y * t.thread.z)) & 31);
}
#define __shfl_xor_sync(mask, v, x, ...) octavo_shuffle(mask, v, octavo_lane() ^ (x), __LINE__)
#define __shfl_sync(mask, v, lane, ...) octavo_shuffle(mask, v, (lane)&31, __LINE__)
#define __shfl_down_sync(mask, v, d, ...) octavo_shuffle(mask, v, octavo_lane() + (d), __LINE__)
#define __shfl_up_sync(mask, v, d, ...) octavo_shuffle(mask, v, octavo_lane() - (d), __LINE__)

struct OctavoVote {
  unsigned predicate, ballot;
};
OCTAVO_UNCHECKED static inline void octavo_vote_together(void** lanes) {
  unsigned ballot = 0;
  for (int i = 0; i < 32; ++i)
    if (lanes[i] != nullptr && ((OctavoVote*)lanes[i])->predicate) ballot |= 1u << i;
  for (int i = 0; i < 32; ++i)
    if (lanes[i] != nullptr) ((OctavoVote*)lanes[i])->ballot = ballot;
}
OCTAVO_UNCHECKED static inline unsigned octavo_vote(unsigned mask, bool predicate, int line) {
  OctavoVote v{predicate, 0};
  octavo_hooks->collective(mask, line, &v, octavo_vote_together);
  return v.ballot;
}
#define __ballot_sync(mask, p) octavo_vote(mask, p, __LINE__)
#define __any_sync(mask, p) (octavo_vote(mask, p, __LINE__) != 0)
#define __all_sync(mask, p) (octavo_vote(mask, !(p), __LINE__) == 0)

#include "prelude.h"
