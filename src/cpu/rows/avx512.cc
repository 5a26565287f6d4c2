// The row kernels for avx512. See rows.h and CMakeLists.txt.
#if defined(__x86_64__)
#include <immintrin.h>

#define OCTAVO_LEVEL(name) avx512_##name
#define OCTAVO_VECTORS "cpu/block/vec_avx512.inc"
#define OCTAVO_HAS_WINOGRAD
#include "cpu/rows/level.inc"
#endif
