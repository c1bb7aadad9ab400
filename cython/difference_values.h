/* How the values of a tile differ: gaps, their squares and the largest. */
#ifndef REPROLAB_DIFFERENCE_VALUES_H
#define REPROLAB_DIFFERENCE_VALUES_H

#include "difference_bits.h"

/* Everything about values, for a whole tile. Returns 0, and adds nothing, where something is not
   finite. With `exact`, there are no tolerances, and the bits tell which elements are beyond. */
INLINE int values_of_tile(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                          size_t n, double atol, double rtol, int exact) {
    const size_t size = itemsize(dtype);
    vd gaps[PARTS] = {{0}}, squares[PARTS] = {{0}}, largest[PARTS] = {{0}};
    vi beyond[PARTS] = {{0}};
    for (size_t i = 0; i < n; i += LANES)
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
    for (size_t i = 0; i < TILE(sizeof(float)); i += LANES)
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
   its range. Sixteen pairs of neighbours at a time: the halves of a 32-bit word are two bfloat16. */
INLINE int values_of_narrow_tile(difference_tally *t, const uint8_t *a, const uint8_t *b,
                                 int dtype, size_t n) {
    const size_t size = itemsize(dtype), step = FLOAT_STEP * size;
    vs gaps[2][FLOAT_PARTS] = {{{0}}}, squares[2][FLOAT_PARTS] = {{{0}}};
    vs largest[FLOAT_PARTS] = {{0}};
    for (size_t i = 0; i < n; i += 2 * LANES)
        for (int part = 0; part < FLOAT_PARTS; part++, a += 2 * step, b += 2 * step)
            for (int half = 0; half < 2; half++) {
                vs x, y;
                if (dtype == BFLOAT16) {
                    x = half ? upper_halves(a) : lower_halves(a);
                    y = half ? upper_halves(b) : lower_halves(b);
                } else {
                    x = load_s(a + half * step);
                    y = load_s(b + half * step);
                }
                const vs gap = (vs)((vu32)(x - y) & ~TOP_32);
                gaps[half][part] += gap * gap;
                squares[half][part] = add_product_s(squares[half][part], x, x);
                largest[part] = greater_size(gap, largest[part]);
            }
    double gap_total = 0, square_total = 0;
    float gap_most = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const int part = lane / FLOAT_STEP, at = lane % FLOAT_STEP;
        gap_total += (double)gaps[0][part][at] + gaps[1][part][at];
        square_total += (double)squares[0][part][at] + squares[1][part][at];
        gap_most = largest[part][at] > gap_most ? largest[part][at] : gap_most;
    }
    if (!(gap_total < 0x1p100 && square_total < 0x1p100)) return 0;
    if (!(square_total > 0x1p-80) || (gap_most > 0 && gap_most < 0x1p-50f)) return 0;
    t->sum_sq_diff += gap_total;
    t->sum_sq_a += square_total;
    if (gap_most > t->max_abs) t->max_abs = gap_most;
    return 1;
}

#endif
