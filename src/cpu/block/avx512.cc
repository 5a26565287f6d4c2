// The block kernels for avx512. See block.h and CMakeLists.txt.
#if defined(__x86_64__)
#include <immintrin.h>

#define OCTAVO_LEVEL(name) avx512_##name
#define OCTAVO_VECTORS "cpu/block/vec_avx512.inc"
#define OCTAVO_LEVEL_NAME "avx512"
#include "cpu/block/level.inc"
#endif
