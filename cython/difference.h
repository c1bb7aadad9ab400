/* How two buffers differ, in one pass over both; specified by kernels/difference.py.

   A tile goes through a loop for values and a loop for bits while it is in the first cache. */
#ifndef REPROLAB_DIFFERENCE_H
#define REPROLAB_DIFFERENCE_H

#include "difference_values.h"

/* One element at a time: ends, other dtypes, and tiles that hold NaN or Inf. */
INLINE void tally_each(difference_tally *t, const uint8_t *a, const uint8_t *b, size_t n,
                       int dtype, double atol, double rtol) {
    double p[LARGEST_TILE], q[LARGEST_TILE];
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

/* A whole tile of floats. Returns 0, and adds nothing, where something is not finite. */
INLINE int tally_tile(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                      double atol, double rtol) {
    const int exact = atol == 0 && rtol == 0;
    const size_t n = TILE(itemsize(dtype));
    int finite = 0;
    if (!is_float(dtype)) return 0;
    if (exact && dtype == FLOAT32) {
        finite = values_of_float_tile(t, a, b);
    } else if (exact && dtype == BFLOAT16) {
        finite = values_of_narrow_tile(t, a, b, BFLOAT16, n);
    } else if (exact && dtype != FLOAT64) {
        float p[LARGEST_TILE] __attribute__((aligned(64)));
        float q[LARGEST_TILE] __attribute__((aligned(64)));
        decode_floats(a, dtype, n, p);
        decode_floats(b, dtype, n, q);
        finite = values_of_narrow_tile(t, (const uint8_t *)p, (const uint8_t *)q, FLOAT32, n);
    }
    if (!finite) {
        double p[LARGEST_TILE] __attribute__((aligned(64)));
        double q[LARGEST_TILE] __attribute__((aligned(64)));
        const uint8_t *x = a, *y = b;
        int loaded = dtype;
        if (!is_direct(dtype)) {
            decode(a, dtype, n, p);
            decode(b, dtype, n, q);
            x = (const uint8_t *)p, y = (const uint8_t *)q, loaded = FLOAT64;
        }
        if (exact) finite = values_of_tile(t, x, y, loaded, n, 0, 0, 1);
        else finite = values_of_tile(t, x, y, loaded, n, atol, rtol, 0);
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
    const size_t tile = TILE(size);
    for (size_t done = 0; done < n; done += tile) {
        const size_t count = n - done < tile ? n - done : tile;
        const uint8_t *x = a + done * size, *y = b + done * size;
        const int64_t before = t->differing;
        if (count < tile || !tally_tile(t, x, y, dtype, atol, rtol))
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
