/* How two buffers differ, in one pass over both; specified by kernels/difference.py. */
#ifndef REPROLAB_DIFFERENCE_H
#define REPROLAB_DIFFERENCE_H

#include "elements.h"
#include "levels.h"

#define TILE 2048 /* elements */

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

/* One element at a time: ends, other dtypes, and tiles that hold NaN or Inf. */
INLINE void tally_each(difference_tally *t, const uint8_t *a, const uint8_t *b, size_t n,
                       int dtype, double atol, double rtol) {
    double p[TILE], q[TILE];
    decode(a, dtype, n, p);
    decode(b, dtype, n, q);
    for (size_t i = 0; i < n; i++) {
        uint64_t j = bits_of(a + i * itemsize(dtype), dtype);
        uint64_t k = bits_of(b + i * itemsize(dtype), dtype);
        int finite_a = isfinite(p[i]) != 0, finite_b = isfinite(q[i]) != 0;
        int nan_a = isnan(p[i]) != 0, nan_b = isnan(q[i]) != 0;
        uint64_t ulp = ulp_distance(j, k, dtype);
        if (finite_a) t->sum_sq_a += p[i] * p[i];
        if (finite_a && finite_b) {
            double gap = is_float(dtype) ? fabs(p[i] - q[i]) : (double)ulp;
            t->beyond += gap > atol + rtol * fabs(q[i]);
            t->sum_sq_diff += gap * gap;
            if (gap > t->max_abs) t->max_abs = gap;
        } else {
            int inf = !nan_a && !nan_b && p[i] != q[i];
            t->inf_mismatch += inf;
            t->nan_mismatch += nan_a != nan_b;
            t->beyond += inf || nan_a != nan_b;
        }
        if (!nan_a && !nan_b && ulp > t->max_ulp) t->max_ulp = ulp;
        int kind = 0;
        if (j != k) {
            t->differing++;
            if (nan_a || nan_b) kind = NAN_CLASS;
            else if (is_float(dtype) && ((j ^ k) & sign_bit(dtype))) kind = SIGN_FLIP;
            else kind = ulp_class(ulp);
        }
        t->histogram[kind]++;
    }
}

/* Count ULP distances below 2^16, class by class; returns how many are not 0. */
INLINE int64_t count_small(difference_tally *t, const uint16_t *gaps, uint16_t largest) {
    int64_t above = 0;
    for (int k = ulp_class(largest); k > 0; k--) {
        const uint16_t threshold = (uint16_t)(1u << (k - 1));
        uint16_t found = 0;
        for (size_t i = 0; i < TILE; i++) found += gaps[i] >= threshold;
        t->histogram[k] += found - above;
        above = found;
    }
    t->histogram[0] += TILE - above;
    t->differing += above;
    return above;
}

/* Everything about bits, for a whole tile of floats in which no sign differs and no distance is
   large; returns how many elements differ, or -1, and adds nothing, where that is not so. Plain
   loops: compilers turn these into the widest vectors there are. */
#define BITS_OF_TILE(name, word)                                                                 \
    INLINE int64_t name(difference_tally *t, const uint8_t *restrict a,                          \
                        const uint8_t *restrict b) {                                             \
        uint16_t gaps[TILE] __attribute__((aligned(64)));                                        \
        const word limit = sizeof(word) > 2 ? (word)UINT16_MAX : (word)-1;                       \
        word largest = 0, signs = 0;                                                             \
        for (size_t i = 0; i < TILE; i++) {                                                      \
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
        return count_small(t, gaps, (uint16_t)largest);                                          \
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
        int8_t kinds[TILE] __attribute__((aligned(64)));                                         \
        word largest = 0, zeros = 0;                                                             \
        for (size_t i = 0; i < TILE; i++) {                                                      \
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
        return count_kinds(t, kinds) - (int64_t)zeros;                                           \
    }

INLINE int64_t count_kinds(difference_tally *t, const int8_t *kinds) {
    /* Several counters a class, so that runs of one class do not wait for each other's store. */
    uint32_t counts[4][256] = {{0}};
    for (size_t i = 0; i < TILE; i += 4)
        for (int part = 0; part < 4; part++) counts[part][(uint8_t)(kinds[i + part] + 1)]++;
    int64_t differing = 0;
    for (int k = 1; k < NAN_CLASS; k++) {
        const int64_t found =
            (int64_t)counts[0][k] + counts[1][k] + counts[2][k] + counts[3][k];
        t->histogram[k] += found;
        differing += found;
    }
    t->histogram[0] += TILE - differing;
    t->differing += differing;
    return differing;
}

BITS_OF_ANY_TILE(bits_of_any_8, uint8_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_16, uint16_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_32, uint32_t, uint32_t, log2_32)
BITS_OF_ANY_TILE(bits_of_any_64, uint64_t, uint64_t, log2_64)

/* Everything about values, for a whole tile. Returns 0, and adds nothing, where something is not
   finite. With `exact`, there are no tolerances, and the bits tell which elements are beyond. */
INLINE int values_of_tile(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                          double atol, double rtol, int exact) {
    const size_t size = itemsize(dtype);
    vd gaps[PARTS] = {{0}}, squares[PARTS] = {{0}}, largest[PARTS] = {{0}};
    vi beyond[PARTS] = {{0}};
    for (size_t i = 0; i < TILE; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            const vd x = load_elements(a + (i + part * STEP) * size, dtype);
            const vd y = load_elements(b + (i + part * STEP) * size, dtype);
            const vd gap = (vd)((vu)(x - y) & ~TOP);
            gaps[part] += gap * gap;
            squares[part] += x * x;
            largest[part] = greater(gap, largest[part]);
            if (!exact) beyond[part] -= (vi)(gap > atol + rtol * (vd)((vu)y & ~TOP));
        }
    double gap_total = 0, square_total = 0;
    for (int lane = 0; lane < LANES; lane++) {
        gap_total += gaps[lane / STEP][lane % STEP];
        square_total += squares[lane / STEP][lane % STEP];
    }
    if (!isfinite(gap_total) || !isfinite(square_total)) return 0;
    t->sum_sq_diff += gap_total;
    t->sum_sq_a += square_total;
    for (int lane = 0; lane < LANES; lane++) {
        const double gap = largest[lane / STEP][lane % STEP];
        if (gap > t->max_abs) t->max_abs = gap;
        t->beyond += beyond[lane / STEP][lane % STEP];
    }
    return 1;
}

/* The same for float32 and no tolerances, with gaps in float32; also returns 0 where these are
   not finite. */
INLINE int values_of_float_tile(difference_tally *t, const uint8_t *a, const uint8_t *b) {
    vd gaps[PARTS] = {{0}}, squares[PARTS] = {{0}};
    vs_half largest[PARTS] = {{0}};
    for (size_t i = 0; i < TILE; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            const vs_half x = load_half(a + (i + part * STEP) * sizeof(float));
            const vs_half y = load_half(b + (i + part * STEP) * sizeof(float));
            const vs_half gap = (vs_half)((vu32_half)(x - y) & ~TOP_32);
            const vd wide_gap = widen(gap), wide = widen(x);
            gaps[part] = add_product(gaps[part], wide_gap, wide_gap);
            squares[part] = add_product(squares[part], wide, wide);
            largest[part] = greater_size_half(gap, largest[part]);
        }
    double gap_total = 0, square_total = 0;
    for (int lane = 0; lane < LANES; lane++) {
        gap_total += gaps[lane / STEP][lane % STEP];
        square_total += squares[lane / STEP][lane % STEP];
    }
    if (!isfinite(gap_total) || !isfinite(square_total)) return 0;
    t->sum_sq_diff += gap_total;
    t->sum_sq_a += square_total;
    for (int lane = 0; lane < LANES; lane++) {
        const double gap = largest[lane / STEP][lane % STEP];
        if (gap > t->max_abs) t->max_abs = gap;
    }
    return 1;
}

/* The same for floats of at most 16 bits, all in float32; also returns 0 where squares could leave
   its range. */
INLINE int values_of_narrow_tile(difference_tally *t, const uint8_t *a, const uint8_t *b,
                                 int dtype) {
    const size_t size = itemsize(dtype);
    vs gaps[FLOAT_PARTS] = {{0}}, squares[FLOAT_PARTS] = {{0}};
    vs largest[FLOAT_PARTS] = {{0}}, sizes[FLOAT_PARTS] = {{0}};
    for (size_t i = 0; i < TILE; i += LANES)
        for (int part = 0; part < FLOAT_PARTS; part++) {
            const size_t at = (i + part * FLOAT_STEP) * size;
            const vs x = dtype == BFLOAT16 ? floats_from_halves(a + at) : load_s(a + at);
            const vs y = dtype == BFLOAT16 ? floats_from_halves(b + at) : load_s(b + at);
            const vs gap = (vs)((vu32)(x - y) & ~TOP_32);
            gaps[part] += gap * gap;
            squares[part] = add_product_s(squares[part], x, x);
            largest[part] = greater_size(gap, largest[part]);
            sizes[part] = greater_size((vs)((vu32)x & ~TOP_32), sizes[part]);
        }
    double gap_total = 0, square_total = 0;
    float gap_most = 0, size_most = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const int part = lane / FLOAT_STEP, at = lane % FLOAT_STEP;
        gap_total += gaps[part][at];
        square_total += squares[part][at];
        gap_most = largest[part][at] > gap_most ? largest[part][at] : gap_most;
        size_most = sizes[part][at] > size_most ? sizes[part][at] : size_most;
    }
    const float low = 0x1p-50f, high = 0x1p50f;
    if (!isfinite(gap_total) || !isfinite(square_total)) return 0;
    if (gap_most > high || size_most > high) return 0;
    if ((gap_most < low && gap_most > 0) || (size_most < low && size_most > 0)) return 0;
    t->sum_sq_diff += gap_total;
    t->sum_sq_a += square_total;
    if (gap_most > t->max_abs) t->max_abs = gap_most;
    return 1;
}

INLINE int tally_tile(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                      double atol, double rtol) {
    const int exact = atol == 0 && rtol == 0;
    int finite = 0;
    if (!is_float(dtype)) return 0;
    if (exact && dtype == FLOAT32) {
        finite = values_of_float_tile(t, a, b);
    } else if (exact && dtype == BFLOAT16) {
        finite = values_of_narrow_tile(t, a, b, BFLOAT16);
    } else if (exact && dtype != FLOAT64) {
        float p[TILE] __attribute__((aligned(64))), q[TILE] __attribute__((aligned(64)));
        decode_floats(a, dtype, TILE, p);
        decode_floats(b, dtype, TILE, q);
        finite = values_of_narrow_tile(t, (const uint8_t *)p, (const uint8_t *)q, FLOAT32);
    }
    if (!finite) {
        double p[TILE] __attribute__((aligned(64))), q[TILE] __attribute__((aligned(64)));
        const uint8_t *x = a, *y = b;
        int loaded = dtype;
        if (!is_direct(dtype)) {
            decode(a, dtype, TILE, p);
            decode(b, dtype, TILE, q);
            x = (const uint8_t *)p, y = (const uint8_t *)q, loaded = FLOAT64;
        }
        if (exact) finite = values_of_tile(t, x, y, loaded, 0, 0, 1);
        else finite = values_of_tile(t, x, y, loaded, atol, rtol, 0);
    }
    if (!finite) return 0;
    int64_t apart = -1;
#define BITS(size)                                                                               \
    case size / 8:                                                                               \
        apart = bits_##size(t, a, b);                                                            \
        if (apart < 0) apart = bits_of_any_##size(t, a, b);                                      \
        break;
    switch (itemsize(dtype)) {
        BITS(8)
        BITS(16)
        BITS(32)
        BITS(64)
    }
#undef BITS
    if (exact) t->beyond += apart;
    return 1;
}

INLINE void tally_of(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype, size_t n,
                     double atol, double rtol) {
    const size_t size = itemsize(dtype);
    for (size_t done = 0; done < n; done += TILE) {
        const size_t count = n - done < TILE ? n - done : TILE;
        const uint8_t *x = a + done * size, *y = b + done * size;
        const int64_t before = t->differing;
        if (count < TILE || !tally_tile(t, x, y, dtype, atol, rtol))
            tally_each(t, x, y, count, dtype, atol, rtol);
        if (t->first < 0 && t->differing > before) {
            size_t at = 0;
            while (!memcmp(x + at * size, y + at * size, size)) at++;
            t->first = (int64_t)(done + at);
        }
    }
    /* So that it does not depend on which tiles float32 could do. */
    if (is_float(dtype) && size <= 4 && isfinite((float)t->max_abs))
        t->max_abs = (float)t->max_abs;
}

#endif
