#include "levels.h"
#if defined(HAS_LEVELS)
#pragma GCC target("arch=x86-64-v4")
#define NAME level_v4
#include "loops.h"
#endif
