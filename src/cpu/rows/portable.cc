// The row kernels for portable. See rows.h and CMakeLists.txt.
#define OCTAVO_LEVEL(name) portable_##name
#define OCTAVO_VECTORS "cpu/block/vec_portable.inc"
#include "cpu/rows/level.inc"
