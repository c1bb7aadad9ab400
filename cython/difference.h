/* How two buffers differ, in one pass over both; specified by kernels/difference.py. */
#ifndef REPROLAB_DIFFERENCE_H
#define REPROLAB_DIFFERENCE_H

#include "dispatch.h"

#define CLASSES 67
#define SIGN_FLIP 65
#define NAN_CLASS 66

typedef struct {
    int64_t differing, beyond, first, nan_mismatch, inf_mismatch;
    uint64_t max_ulp;
    double max_abs, sum_sq_diff, sum_sq_a;
    int64_t histogram[CLASSES];
} difference_tally;

INLINE int is_float(int dtype) { return dtype >= E4M3FN; }
INLINE int is_signed(int dtype) {
    return dtype == INT8 || dtype == INT16 || dtype == INT32 || dtype == INT64;
}
INLINE uint64_t sign_bit(int dtype) { return UINT64_C(1) << (8 * itemsize(dtype) - 1); }

/* Elements as 64-bit words whose plain difference is the ULP distance: signed integers shifted to
   start at 0, all else its own bits. */
INLINE void widen(const uint8_t *restrict data, int dtype, size_t n, uint64_t *restrict out) {
    const uint64_t flip = is_signed(dtype) ? sign_bit(dtype) : 0;
#define EACH(type)                                 \
    for (size_t i = 0; i < n; i++) {               \
        type x;                                    \
        memcpy(&x, data + i * sizeof x, sizeof x); \
        out[i] = (uint64_t)x ^ flip;               \
    }                                              \
    break;
    switch (itemsize(dtype)) {
    case 1: EACH(uint8_t)
    case 2: EACH(uint16_t)
    case 4: EACH(uint32_t)
    case 8: EACH(uint64_t)
    }
#undef EACH
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

/* One element at a time: ends, integers, and tiles that hold NaN or Inf. */
INLINE void tally_each(difference_tally *t, const uint64_t *a, const uint64_t *b, const double *p,
                       const double *q, size_t n, int dtype, double atol, double rtol) {
    for (size_t i = 0; i < n; i++) {
        int finite_a = isfinite(p[i]) != 0, finite_b = isfinite(q[i]) != 0;
        int nan_a = isnan(p[i]) != 0, nan_b = isnan(q[i]) != 0;
        uint64_t ulp = ulp_distance(a[i], b[i], dtype);
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
        if (a[i] != b[i]) {
            t->differing++;
            if (nan_a || nan_b) kind = NAN_CLASS;
            else if (is_float(dtype) && ((a[i] ^ b[i]) & sign_bit(dtype))) kind = SIGN_FLIP;
            else kind = ulp_class(ulp);
        }
        t->histogram[kind]++;
    }
}

/* A whole tile of finite floats. Returns 0, and adds nothing, where something is not finite. */
INLINE int tally_tile(difference_tally *t, const uint64_t *a, const uint64_t *b, const double *p,
                      const double *q, int dtype, double atol, double rtol) {
    const uint64_t top = sign_bit(dtype), flipped = ~UINT64_C(0);
    v8d sum_sq_diff = {0}, sum_sq_a = {0}, max_abs = {0};
    v8u max_ulp = {0};
    v8i differing = {0}, beyond = {0};
    uint64_t key[TILE] __attribute__((aligned(64)));
    for (size_t i = 0; i < TILE; i += 8) {
        v8d x = load_d(p + i), y = load_d(q + i);
        v8u m = load_u(a + i), n = load_u(b + i);
        v8d gap = (v8d)((v8u)(x - y) & ~(UINT64_C(1) << 63));
        v8d size = (v8d)((v8u)y & ~(UINT64_C(1) << 63));
        sum_sq_diff += gap * gap;
        sum_sq_a += x * x;
        beyond -= (v8i)(gap > atol + rtol * size);
        max_abs = pick(gap > max_abs, gap, max_abs);
        differing -= (v8i)(m != n);
        v8u sign = (v8u)(((m ^ n) & top) != 0);
        v8u j = m & (top - 1), k = n & (top - 1);
        v8u forward = j - k, swap = (v8u)(j < k);
        v8u apart = (forward ^ swap) - swap; /* negated where j < k */
        v8u ulp = (apart & ~sign) | ((j + k) & sign);
        v8u larger = (v8u)(ulp > max_ulp);
        max_ulp = (ulp & larger) | (max_ulp & ~larger);
        v8u class_key = ulp | (sign & flipped);
        memcpy(key + i, &class_key, sizeof class_key);
    }
    double squares = 0, apart = 0;
    for (int lane = 0; lane < 8; lane++) squares += sum_sq_a[lane], apart += sum_sq_diff[lane];
    if (!isfinite(squares) || !isfinite(apart)) return 0;
    t->sum_sq_a += squares;
    t->sum_sq_diff += apart;
    for (int lane = 0; lane < 8; lane++) {
        if (max_abs[lane] > t->max_abs) t->max_abs = max_abs[lane];
        if (max_ulp[lane] > t->max_ulp) t->max_ulp = max_ulp[lane];
        t->differing += differing[lane];
        t->beyond += beyond[lane];
    }
    /* Several counters a class, so that runs of one class do not wait for each other's store. */
    uint32_t counts[4][SIGN_FLIP] = {{0}};
    for (size_t i = 0; i < TILE; i += 4)
        for (int part = 0; part < 4; part++) counts[part][ulp_class(key[i + part])]++;
    for (int kind = 0; kind < SIGN_FLIP; kind++)
        t->histogram[kind == 64 ? SIGN_FLIP : kind] +=
            counts[0][kind] + counts[1][kind] + counts[2][kind] + counts[3][kind];
    return 1;
}

INLINE void tally_body(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype, size_t n,
                       double atol, double rtol) {
    const size_t size = itemsize(dtype);
    uint64_t m[TILE] __attribute__((aligned(64))), k[TILE] __attribute__((aligned(64)));
    double p[TILE] __attribute__((aligned(64))), q[TILE] __attribute__((aligned(64)));
    for (size_t done = 0; done < n; done += TILE) {
        size_t count = n - done < TILE ? n - done : TILE;
        const uint8_t *x = a + done * size, *y = b + done * size;
        widen(x, dtype, count, m);
        widen(y, dtype, count, k);
        if (t->first < 0 && memcmp(x, y, count * size)) {
            size_t at = 0;
            while (m[at] == k[at]) at++;
            t->first = (int64_t)(done + at);
        }
        decode(x, dtype, count, p);
        decode(y, dtype, count, q);
        if (!is_float(dtype) || count < TILE || !tally_tile(t, m, k, p, q, dtype, atol, rtol))
            tally_each(t, m, k, p, q, count, dtype, atol, rtol);
    }
}

CLONES static void tally(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                         size_t n, double atol, double rtol) {
    switch (dtype) { /* a constant in each branch, so that decode() becomes one loop */
#define BRANCH(code) \
    case code: tally_body(t, a, b, code, n, atol, rtol); break;
        BRANCH(BOOL) BRANCH(INT8) BRANCH(UINT8) BRANCH(INT16) BRANCH(UINT16) BRANCH(INT32)
        BRANCH(UINT32) BRANCH(INT64) BRANCH(UINT64) BRANCH(E4M3FN) BRANCH(E5M2)
        BRANCH(BFLOAT16) BRANCH(FLOAT16) BRANCH(FLOAT32) BRANCH(FLOAT64)
#undef BRANCH
    }
}

#endif
