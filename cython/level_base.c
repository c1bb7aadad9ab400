#define NAME level_base
#include "loops.h"

size_t element_size(int dtype) { return itemsize(dtype); }

int levels_here(void) {
#if defined(HAS_LEVELS)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) return 3;
    if (__builtin_cpu_supports("x86-64-v3")) return 2;
#endif
    return 1;
}

const level *level_at(int index) {
#if defined(HAS_LEVELS)
    if (index == 2) return &level_v4;
    if (index == 1) return &level_v3;
#endif
    return &level_base;
}
