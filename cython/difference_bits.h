/* How the bits of a tile differ: ULP distances and their classes. */
#ifndef REPROLAB_DIFFERENCE_BITS_H
#define REPROLAB_DIFFERENCE_BITS_H

#include "elements.h"
#include "levels.h"

/* Elements of a tile: 4 KiB of each side, so that memory and processor work at the same time. */
#define TILE(size) ((size) == 1 ? 2048 : 4096 / (size))
#define LARGEST_TILE 2048

#define SIGN_FLIP 65
#define NAN_CLASS 66

INLINE int is_signed(int dtype) {
    return dtype == INT8 || dtype == INT16 || dtype == INT32 || dtype == INT64;
}
INLINE uint64_t sign_bit(int dtype) { return UINT64_C(1) << (8 * itemsize(dtype) - 1); }

/* Bits of one element; signed integers are shifted to start at 0, so that they subtract. */
INLINE uint64_t bits_of(const uint8_t *data, int dtype) {
    uint64_t bits = 0;
    memcpy(&bits, data, itemsize(dtype));
    return is_signed(dtype) ? bits ^ sign_bit(dtype) : bits;
}

INLINE uint64_t ulp_distance(uint64_t a, uint64_t b, int dtype) {
    if (is_float(dtype)) {
        const uint64_t top = sign_bit(dtype);
        uint64_t x = a & (top - 1), y = b & (top - 1);
        if ((a ^ b) & top) return x + y;
        return x > y ? x - y : y - x;
    }
    return a > b ? a - b : b - a;
}

INLINE int ulp_class(uint64_t distance) {
    return distance ? 64 - __builtin_clzll(distance) : 0;
}

/* Count ULP distances below 2^16, class by class; returns how many are not 0. */
INLINE int64_t count_small(difference_tally *t, const uint16_t *gaps, size_t n,
                           uint16_t largest) {
    int64_t above = 0;
    for (int k = ulp_class(largest); k > 0; k--) {
        const uint16_t threshold = (uint16_t)(1u << (k - 1));
        const int64_t found = count_from(gaps, n, threshold);
        t->histogram[k] += found - above;
        above = found;
    }
    t->histogram[0] += (int64_t)n - above;
    t->differing += above;
    return above;
}

/* Everything about bits, for a whole tile of floats in which no sign differs and no distance is
   large; returns how many elements differ, or -1, and adds nothing, where that is not so. Plain
   loops: compilers turn these into the widest vectors there are. */
#define BITS_OF_TILE(name, word)                                                                 \
    INLINE int64_t name(difference_tally *t, const uint8_t *restrict a,                          \
                        const uint8_t *restrict b) {                                             \
        enum { n = TILE(sizeof(word)) };                                                         \
        uint16_t gaps[n] __attribute__((aligned(64)));                                           \
        const word limit = sizeof(word) > 2 ? (word)UINT16_MAX : (word)-1;                       \
        word largest = 0, signs = 0;                                                             \
        for (size_t i = 0; i < n; i++) {                                                         \
            word x, y;                                                                           \
            memcpy(&x, a + i * sizeof x, sizeof x);                                              \
            memcpy(&y, b + i * sizeof y, sizeof y);                                              \
            const word gap = (word)((x > y ? x : y) - (x > y ? y : x));                          \
            signs |= x ^ y;                                                                      \
            largest = gap > largest ? gap : largest;                                             \
            gaps[i] = (uint16_t)(gap < limit ? gap : limit);                                     \
        }                                                                                        \
        if (signs >> (8 * sizeof(word) - 1) || largest >= limit) return -1;                      \
        if (largest > t->max_ulp) t->max_ulp = largest;                                          \
        return count_small(t, gaps, n, (uint16_t)largest);                                       \
    }

BITS_OF_TILE(bits_8, uint8_t)
BITS_OF_TILE(bits_16, uint16_t)
BITS_OF_TILE(bits_32, uint32_t)
BITS_OF_TILE(bits_64, uint64_t)

/* The class of a ULP distance from its exponent as a float; 0 or more for 1 and up, else negative.
   Clearing the bit below the highest keeps the conversion from rounding up to the next power. */
INLINE int8_t log2_32(uint32_t x) {
    return (int8_t)((int)(as_bits((float)(int32_t)(x & ~(x >> 1))) >> 23) - 127);
}
INLINE int8_t log2_64(uint64_t x) {
    const double value = (double)(int64_t)(x & ~(x >> 1));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int8_t)(x ? (int)(bits >> 52) - 1023 : -127);
}

/* The same for any tile; returns how many elements differ in value, which +0 and -0 do not. */
#define BITS_OF_ANY_TILE(name, element, word, log2)                                              \
    INLINE int64_t name(difference_tally *t, const uint8_t *restrict a,                          \
                        const uint8_t *restrict b) {                                             \
        const word magnitude = (word)((UINT64_C(1) << (8 * sizeof(element) - 1)) - 1);           \
        enum { count = TILE(sizeof(element)) };                                                  \
        int8_t kinds[count] __attribute__((aligned(64)));                                        \
        word largest = 0, zeros = 0;                                                             \
        for (size_t i = 0; i < count; i++) {                                                     \
            element x, y;                                                                        \
            memcpy(&x, a + i * sizeof x, sizeof x);                                              \
            memcpy(&y, b + i * sizeof y, sizeof y);                                              \
            const word m = x & magnitude, n = y & magnitude;                                     \
            const word flip = (word)0 - (word)((word)(x ^ y) > magnitude);                       \
            const word apart = (m > n ? m : n) - (m > n ? n : m);                                \
            const word ulp = (apart & ~flip) | ((m + n) & flip);                                 \
            largest = ulp > largest ? ulp : largest;                                             \
            zeros += (word)(m + n == 0) & flip;                                                  \
            kinds[i] = (int8_t)(flip ? SIGN_FLIP - 1 : log2(apart));                             \
        }                                                                                        \
        if (largest > t->max_ulp) t->max_ulp = largest;                                          \
        return count_kinds(t, kinds, count) - (int64_t)zeros;                                    \
    }

INLINE int64_t count_kinds(difference_tally *t, const int8_t *kinds, size_t n) {
    /* Several counters a class, so that runs of one class do not wait for each other's store. */
    uint32_t counts[4][256] = {{0}};
    for (size_t i = 0; i < n; i += 4)
        for (int part = 0; part < 4; part++) counts[part][(uint8_t)(kinds[i + part] + 1)]++;
    int64_t differing = 0;
    for (int k = 1; k < NAN_CLASS; k++) {
        const int64_t found =
            (int64_t)counts[0][k] + counts[1][k] + counts[2][k] + counts[3][k];
        t->histogram[k] += found;
        differing += found;
    }
    t->histogram[0] += (int64_t)n - differing;
    t->differing += differing;
    return differing;
}

BITS_OF_ANY_TILE(bits_of_any_8, uint8_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_16, uint16_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_32, uint32_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_64, uint64_t, uint64_t, log2_64)

#endif
