// The loops over elements for avx512. See elements.h and CMakeLists.txt.
#if defined(__x86_64__)
#include <immintrin.h>

#define OCTAVO_LEVEL(name) avx512_##name
#define OCTAVO_VECTORS "cpu/block/vec_avx512.inc"
#include "cpu/elements/level.inc"
#endif
