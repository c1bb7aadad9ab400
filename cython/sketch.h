/* What a fingerprint adds up from whole windows of finite elements: sums, squares, the sketch.

   A mixed word of a window gives the signs of its 32 elements (low bits), and the number that the
   lanes of its two groups of 16 are XORed with (the top 4 bits, the next 4). `table[x][c]` takes
   column c of all groups with XOR x: groups are added as they lie in memory, and the 16 rows are
   unmixed once a block. */
#ifndef REPROLAB_SKETCH_H
#define REPROLAB_SKETCH_H

#include "elements.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define SKETCH_SALT UINT64_C(0x243F6A8885A308D3)
#define WINDOW 32
#define NARROW_SPAN 8192 /* elements that float32 sums take before they are added to the others */

typedef struct {
    double table[LANES][LANES] __attribute__((aligned(64)));
    float narrow[LANES][LANES] __attribute__((aligned(64)));
    double sum[LANES], sumsq[LANES];
    size_t in_narrow; /* elements */
} sums;

INLINE uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

INLINE vu mix_lanes(vu z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

INLINE void mix_windows(uint64_t *mixed, uint64_t first, size_t windows) {
    for (size_t i = 0; i < windows; i++) mixed[i] = mix(SKETCH_SALT + (first + i + 1) * GOLDEN);
}

/* Float32 or float64 elements, summed in float64. */
INLINE void add_wide(sums *to, const uint8_t *data, int dtype, const uint64_t *mixed,
                     size_t windows) {
    const size_t size = itemsize(dtype);
    vd sum[PARTS], sumsq[PARTS];
    memcpy(sum, to->sum, sizeof sum);
    memcpy(sumsq, to->sumsq, sizeof sumsq);
    for (size_t i = 0; i < windows; i++)
        for (int group = 0; group < 2; group++) {
            const uint64_t bits = mixed[i] >> (16 * group);
            double *row = to->table[mixed[i] >> (60 - 4 * group) & 15];
            for (int part = 0; part < PARTS; part++, data += STEP * size) {
                const vd x = load_elements(data, dtype);
                sum[part] += x;
                sumsq[part] = dtype == FLOAT64 ? sumsq[part] + x * x : add_product(sumsq[part], x, x);
                store(row + part * STEP,
                      (vu)(load_d(row + part * STEP) + negate(x, bits >> (part * STEP))));
            }
        }
    memcpy(to->sum, sum, sizeof sum);
    memcpy(to->sumsq, sumsq, sizeof sumsq);
}

/* Elements of at most 11 significant bits, as bfloat16 or float32: summed in float32, for a while. */
INLINE void add_narrow(sums *to, const uint8_t *data, int dtype, const uint64_t *mixed,
                       size_t windows) {
    const size_t size = itemsize(dtype);
    vs sum[2][FLOAT_PARTS] = {{{0}}}, sumsq[2][FLOAT_PARTS] = {{{0}}};
    float lane[2][LANES], square[2][LANES];
    for (size_t i = 0; i < windows; i++)
        for (int group = 0; group < 2; group++) {
            const uint64_t bits = mixed[i] >> (16 * group);
            float *row = to->narrow[mixed[i] >> (60 - 4 * group) & 15];
            for (int part = 0; part < FLOAT_PARTS; part++, data += FLOAT_STEP * size) {
                const vs x = dtype == BFLOAT16 ? floats_from_halves(data) : load_s(data);
                sum[group][part] += x;
                sumsq[group][part] = add_product_s(sumsq[group][part], x, x);
                store(row + part * FLOAT_STEP,
                      (vu)(load_s(row + part * FLOAT_STEP) + negate_s(x, bits >> (part * FLOAT_STEP))));
            }
        }
    memcpy(lane, sum, sizeof lane);
    memcpy(square, sumsq, sizeof square);
    for (int i = 0; i < LANES; i++) {
        to->sum[i] += (double)lane[0][i] + lane[1][i];
        to->sumsq[i] += (double)square[0][i] + square[1][i];
    }
    to->in_narrow += windows * WINDOW;
}

INLINE void widen_narrow(sums *to) {
    for (int row = 0; row < LANES; row++)
        for (int column = 0; column < LANES; column++)
            to->table[row][column] += to->narrow[row][column];
    memset(to->narrow, 0, sizeof to->narrow);
    to->in_narrow = 0;
}

#endif
