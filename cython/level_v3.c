#include "levels.h"
#if defined(HAS_LEVELS)
#pragma GCC target("arch=x86-64-v3")
#define NAME level_v3
#include "loops.h"
#endif
