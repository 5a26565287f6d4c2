// The loops over elements for portable. See elements.h and CMakeLists.txt.
#define OCTAVO_LEVEL(name) portable_##name
#define OCTAVO_VECTORS "cpu/block/vec_portable.inc"
#include "cpu/elements/level.inc"
