// The block kernels for portable. See block.h and CMakeLists.txt.
#define OCTAVO_LEVEL(name) portable_##name
#define OCTAVO_VECTORS "cpu/block/vec_portable.inc"
#define OCTAVO_LEVEL_NAME "portable"
#include "cpu/block/level.inc"
