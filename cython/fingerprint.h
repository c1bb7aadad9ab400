/* The fingerprint of a stretch of one block; specified in docs/fingerprint.md. */
#ifndef REPROLAB_FINGERPRINT_H
#define REPROLAB_FINGERPRINT_H

#include "dispatch.h"

#define LANES 16
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define SKETCH_SALT UINT64_C(0x243F6A8885A308D3)

enum { COUNT, NAN_COUNT, INF_COUNT, MIN, MAX, SUM, SUMSQ, MOMENTS };

typedef struct {
    v8d sum[2], sumsq[2], low[2], high[2];
    double nan, inf;
    /* Row x holds the groups whose lanes are XORed with x; unmixing 16 rows once is far cheaper
       than permuting every group. */
    double table[LANES][LANES] __attribute__((aligned(64)));
} numbers;

INLINE uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

INLINE v8u mix8(v8u z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

INLINE uint64_t digest_words(const uint8_t *data, uint64_t index, size_t words) {
    const v8u ramp = {0, GOLDEN, 2 * GOLDEN, 3 * GOLDEN, 4 * GOLDEN, 5 * GOLDEN, 6 * GOLDEN,
                      7 * GOLDEN};
    v8u key = ramp + (index + 1) * GOLDEN, sum = {0}, more = {0};
    size_t i = 0;
    for (; i + 16 <= words; i += 16, key += 16 * GOLDEN) {
        sum += mix8(load_u(data + 8 * i) + key);
        more += mix8(load_u(data + 8 * i + 64) + (key + 8 * GOLDEN));
    }
    sum += more;
    uint64_t total = 0;
    for (int lane = 0; lane < 8; lane++) total += sum[lane];
    for (; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        total += mix(word + (index + i + 1) * GOLDEN);
    }
    return total;
}

INLINE void numbers_begin(numbers *t) {
    memset(t, 0, sizeof *t);
    for (int half = 0; half < 2; half++) {
        t->low[half] = (v8d){0} + INFINITY;
        t->high[half] = (v8d){0} - INFINITY;
    }
}

/* One element at a time: the ragged ends of a stretch, and tiles that hold NaN or Inf. */
INLINE void numbers_each(numbers *t, const double *x, size_t n, uint64_t position) {
    for (size_t i = 0; i < n; i++, position++) {
        double value = x[i];
        int lane = position % LANES;
        if (!isfinite(value)) {
            t->nan += isnan(value) != 0;
            t->inf += isinf(value) != 0;
            continue;
        }
        uint64_t hash = mix(SKETCH_SALT + (position / LANES + 1) * GOLDEN);
        t->table[hash >> 60][lane] += (hash >> lane) & 1 ? -value : value;
        int half = lane >> 3, at = lane & 7;
        t->sum[half][at] += value;
        t->sumsq[half][at] += value * value;
        if (value < t->low[half][at]) t->low[half][at] = value;
        if (value > t->high[half][at]) t->high[half][at] = value;
    }
}

/* Whole groups of 16. Sums of the tile are kept apart until they are known to be finite. */
INLINE void numbers_tile(numbers *t, const double *x, size_t n, uint64_t group) {
    v8d sum[2] = {{0}}, sumsq[2] = {{0}}, low[2], high[2];
    for (int half = 0; half < 2; half++) low[half] = t->low[half], high[half] = t->high[half];
    for (size_t i = 0; i < n; i += LANES)
        for (int half = 0; half < 2; half++) {
            v8d v = load_d(x + i + 8 * half);
            sum[half] += v;
            sumsq[half] += v * v;
            low[half] = pick(v < low[half], v, low[half]);
            high[half] = pick(v > high[half], v, high[half]);
        }
    v8d seen = sumsq[0] + sumsq[1];
    double finite = 0;
    for (int lane = 0; lane < 8; lane++) finite += seen[lane];
    if (!isfinite(finite)) {
        numbers_each(t, x, n, group * LANES);
        return;
    }
    const v8u ramp = {63, 62, 61, 60, 59, 58, 57, 56};
    for (size_t i = 0; i < n; i += LANES, group++) {
        uint64_t hash = mix(SKETCH_SALT + (group + 1) * GOLDEN);
        double *row = t->table[hash >> 60];
        for (int half = 0; half < 2; half++) {
            v8u sign = (((v8u){0} + (hash >> (8 * half))) << ramp) & (UINT64_C(1) << 63);
            v8d signed_value = (v8d)((v8u)load_d(x + i + 8 * half) ^ sign);
            v8d lane = load_d(row + 8 * half) + signed_value;
            memcpy(row + 8 * half, &lane, sizeof lane);
        }
    }
    for (int half = 0; half < 2; half++) {
        t->sum[half] += sum[half];
        t->sumsq[half] += sumsq[half];
        t->low[half] = low[half];
        t->high[half] = high[half];
    }
}

INLINE void numbers_end(const numbers *t, double count, double *moments, double *sketch) {
    double low = moments[COUNT] > 0 ? moments[MIN] : INFINITY;
    double high = moments[COUNT] > 0 ? moments[MAX] : -INFINITY;
    for (int lane = 0; lane < LANES; lane++) {
        int half = lane >> 3, at = lane & 7;
        moments[SUM] += t->sum[half][at];
        moments[SUMSQ] += t->sumsq[half][at];
        if (t->low[half][at] < low) low = t->low[half][at];
        if (t->high[half][at] > high) high = t->high[half][at];
        for (int x = 0; x < LANES; x++) sketch[lane] += t->table[x][lane ^ x];
    }
    moments[COUNT] += count;
    moments[NAN_COUNT] += t->nan;
    moments[INF_COUNT] += t->inf;
    moments[MIN] = low;
    moments[MAX] = high;
}

INLINE void stretch_body(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                         uint64_t *digest, double *moments, double *sketch) {
    const size_t size = itemsize(dtype);
    numbers t;
    double buffer[TILE] __attribute__((aligned(64)));
    numbers_begin(&t);
    const uint64_t byte = first * size;
    size_t done = 0, hashed = (size_t)(-byte & 7); /* a word that began in another part is its */
    while (done < n) {
        uint64_t position = first + done;
        size_t m = n - done, ragged = position % LANES ? LANES - position % LANES : 0;
        if (ragged) m = m < ragged ? m : ragged;
        else if (m >= TILE) m = TILE;
        else if (m >= LANES) m -= m % LANES;
        decode(data + done * size, dtype, m, buffer);
        if (ragged || m < LANES) numbers_each(&t, buffer, m, position);
        else numbers_tile(&t, buffer, m, position / LANES);
        done += m;
        if (done * size >= hashed + 8) { /* while the tile is in the cache */
            size_t words = (done * size - hashed) / 8;
            *digest += digest_words(data + hashed, (byte + hashed) / 8, words);
            hashed += 8 * words;
        }
    }
    if (ends_tensor && hashed < n * size) {
        uint64_t word = 0;
        memcpy(&word, data + hashed, n * size - hashed);
        *digest += mix(word + ((byte + hashed) / 8 + 1) * GOLDEN);
    }
    numbers_end(&t, (double)n, moments, sketch);
}

/* Add a stretch of elements that lies within one block, and within one run of a shard. */
CLONES static void stretch(const uint8_t *data, int dtype, uint64_t first, size_t n,
                           int ends_tensor, uint64_t *digest, double *moments, double *sketch) {
    switch (dtype) { /* a constant in each branch, so that decode() becomes one loop */
#define BRANCH(code) \
    case code: stretch_body(data, code, first, n, ends_tensor, digest, moments, sketch); break;
        BRANCH(BOOL) BRANCH(INT8) BRANCH(UINT8) BRANCH(INT16) BRANCH(UINT16) BRANCH(INT32)
        BRANCH(UINT32) BRANCH(INT64) BRANCH(UINT64) BRANCH(E4M3FN) BRANCH(E5M2)
        BRANCH(BFLOAT16) BRANCH(FLOAT16) BRANCH(FLOAT32) BRANCH(FLOAT64)
#undef BRANCH
    }
}

#endif
