// The block kernels for avx2. See block.h and CMakeLists.txt.
#if defined(__x86_64__)
#include <immintrin.h>

#define OCTAVO_LEVEL(name) avx2_##name
#define OCTAVO_VECTORS "cpu/block/vec_avx2.inc"
#define OCTAVO_LEVEL_NAME "avx2"
#include "cpu/block/level.inc"
#endif
