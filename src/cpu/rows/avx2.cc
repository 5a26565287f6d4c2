// The row kernels for avx2. See rows.h and CMakeLists.txt.
#if defined(__x86_64__)
#include <immintrin.h>

#define OCTAVO_LEVEL(name) avx2_##name
#define OCTAVO_VECTORS "cpu/block/vec_avx2.inc"
#define OCTAVO_HAS_WINOGRAD
#include "cpu/rows/level.inc"
#endif
