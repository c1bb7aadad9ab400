/* The fingerprint of a stretch of one block; specified in docs/fingerprint.md.

   Memory is read once: a tile goes through the loops for the digest, the range, and the sums with
   the sketch while it is in the first cache. */
#ifndef REPROLAB_FINGERPRINT_H
#define REPROLAB_FINGERPRINT_H

#include "sketch.h"

#define TILE_BYTES 4096
#define TILE_ELEMENTS 2048 /* at most */

enum { COUNT, NAN_COUNT, INF_COUNT, MIN, MAX, SUM, SUMSQ };

typedef struct {
    int64_t low, high; /* floats as integers in the order of their values */
    double min, max;
    size_t finite, inf;
} range;

INLINE uint64_t digest_words(const uint8_t *data, uint64_t index, size_t words) {
    vu key[PARTS], sum[PARTS];
    uint64_t total = 0;
    size_t i = 0;
    for (int part = 0; part < PARTS; part++) {
        uint64_t first[STEP];
        for (int lane = 0; lane < STEP; lane++)
            first[lane] = (index + 1 + part * STEP + lane) * GOLDEN;
        key[part] = load_u(first);
        sum[part] = (vu){0};
    }
    for (; i + LANES <= words; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            sum[part] += mix_lanes(load_u(data + 8 * i + WIDTH * part) + key[part]);
            key[part] += LANES * GOLDEN;
        }
    for (int part = 0; part < PARTS; part++)
        for (int lane = 0; lane < STEP; lane++) total += sum[part][lane];
    for (; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        total += mix(word + (index + i + 1) * GOLDEN);
    }
    return total;
}

/* The bits of a float as an integer in the order of the values; its own inverse. */
#define IN_ORDER(type, x) (type)((x) ^ (((x) >> (8 * sizeof(type) - 1)) & (type)MAGNITUDE(type)))
#define MAGNITUDE(type) (INT64_MAX >> (64 - 8 * sizeof(type)))

/* Least and greatest, of integers as they are and of floats in order. */
INLINE void find_range(const uint8_t *data, int dtype, size_t n, range *r) {
#define EACH(type, KEY)                                                                          \
    {                                                                                            \
        type low = (type)((type)-1 > 0 ? (type)-1 : (type)MAGNITUDE(type)), high = (type)~low;   \
        for (size_t i = 0; i < n; i++) {                                                         \
            type x;                                                                              \
            memcpy(&x, data + i * sizeof x, sizeof x);                                           \
            x = KEY;                                                                             \
            low = x < low ? x : low;                                                             \
            high = x > high ? x : high;                                                          \
        }                                                                                        \
        r->low = (int64_t)low, r->high = (int64_t)high;                                          \
        r->min = (double)low, r->max = (double)high;                                             \
        break;                                                                                   \
    }
    switch (dtype) {
    case BOOL:
    case UINT8: EACH(uint8_t, x)
    case INT8: EACH(int8_t, x)
    case INT16: EACH(int16_t, x)
    case UINT16: EACH(uint16_t, x)
    case INT32: EACH(int32_t, x)
    case UINT32: EACH(uint32_t, x)
    case INT64: EACH(int64_t, x)
    case UINT64: EACH(uint64_t, x)
    case E4M3FN:
    case E5M2: EACH(int8_t, IN_ORDER(int8_t, x))
    case BFLOAT16:
    case FLOAT16: EACH(int16_t, IN_ORDER(int16_t, x))
    case FLOAT32: EACH(int32_t, IN_ORDER(int32_t, x))
    case FLOAT64: EACH(int64_t, IN_ORDER(int64_t, x))
    }
#undef EACH
}

/* Copy floats with 0 for all that is not finite; count that, and find the range of the rest. */
INLINE void screen(const uint8_t *data, int dtype, size_t n, uint8_t *out, range *r) {
    const int64_t infinite = (int64_t)infinity_bits(dtype);
    *r = (range){.low = INT64_MAX, .high = INT64_MIN};
#define EACH(type)                                                                               \
    {                                                                                            \
        for (size_t i = 0; i < n; i++) {                                                         \
            type x;                                                                              \
            memcpy(&x, data + i * sizeof x, sizeof x);                                           \
            const int64_t key = IN_ORDER(type, x), size = key < 0 ? ~key : key;                  \
            if (size < infinite) {                                                               \
                r->low = key < r->low ? key : r->low;                                            \
                r->high = key > r->high ? key : r->high;                                         \
                r->finite++;                                                                     \
            } else                                                                               \
                x = 0;                                                                           \
            r->inf += size == infinite && dtype != E4M3FN;                                       \
            memcpy(out + i * sizeof x, &x, sizeof x);                                            \
        }                                                                                        \
        break;                                                                                   \
    }
    switch (itemsize(dtype)) {
    case 1: EACH(int8_t)
    case 2: EACH(int16_t)
    case 4: EACH(int32_t)
    case 8: EACH(int64_t)
    }
#undef EACH
}

INLINE double value_in_order(int dtype, int64_t key) {
    const int64_t bits = key ^ ((key >> 63) & (INT64_MAX >> (64 - 8 * itemsize(dtype))));
    double value = 0;
    decode((const uint8_t *)&bits, dtype, 1, &value);
    return value;
}

INLINE void add_windows(sums *to, const uint8_t *data, int dtype, const uint64_t *mixed,
                        size_t windows, const range *r) {
    const size_t n = windows * WINDOW;
    if (dtype == FLOAT32 || dtype == FLOAT64) {
        add_wide(to, data, dtype, mixed, windows);
    } else if (itemsize(dtype) >= 4) {
        double x[TILE_BYTES / 4] __attribute__((aligned(64)));
        decode(data, dtype, n, x);
        add_wide(to, (const uint8_t *)x, FLOAT64, mixed, windows);
    } else {
        /* What float32 cannot sum: 16 significant bits, and squares that leave its range. */
        const double size = r->max > -r->min ? r->max : -r->min;
        const int narrow = dtype == INT16 || dtype == UINT16 ? 0
                           : dtype == BFLOAT16 ? size == 0 || (size > 0x1p-50 && size < 0x1p50)
                                               : 1;
        if (narrow && dtype == BFLOAT16) {
            add_narrow(to, data, BFLOAT16, mixed, windows);
        } else {
            float x[TILE_ELEMENTS] __attribute__((aligned(64)));
            decode_floats(data, dtype, n, x);
            if (narrow) add_narrow(to, (const uint8_t *)x, FLOAT32, mixed, windows);
            else add_wide(to, (const uint8_t *)x, FLOAT32, mixed, windows);
        }
        if (to->in_narrow >= NARROW_SPAN) widen_narrow(to);
    }
}

INLINE void stretch_of(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                       uint64_t *digest, double *moments, double *sketch) {
    const size_t size = itemsize(dtype);
    const size_t tile = size == 1 ? TILE_ELEMENTS : TILE_BYTES / size;
    const uint64_t begin = first * size;
    uint8_t padded[TILE_BYTES] __attribute__((aligned(64)));
    uint64_t mixed[TILE_ELEMENTS / WINDOW];
    uint64_t total = 0;
    size_t hashed = (size_t)(-begin & 7); /* a word that began in another part is its */
    double finite = 0, inf = 0;
    double min = moments[COUNT] > 0 ? moments[MIN] : (double)INFINITY;
    double max = moments[COUNT] > 0 ? moments[MAX] : -(double)INFINITY;
    sums s;
    memset(&s, 0, sizeof s);

    for (size_t done = 0; done < n;) {
        const uint64_t place = first + done;
        const uint8_t *source = data + done * size;
        const size_t lead = place % WINDOW;
        size_t m = tile - place % tile;
        if (m > n - done) m = n - done;
        const int ragged = lead || m % WINDOW;
        if ((done + m) * size >= hashed + 8) {
            const size_t words = ((done + m) * size - hashed) / 8;
            total += digest_words(data + hashed, (begin + hashed) / 8, words);
            hashed += 8 * words;
        }

        range r = {.finite = m};
        find_range(source, dtype, m, &r);
        if (is_float(dtype)) {
            const int64_t infinite = (int64_t)infinity_bits(dtype);
            if (r.high >= infinite || r.low <= ~infinite) {
                memset(padded, 0, sizeof padded);
                screen(source, dtype, m, padded + lead * size, &r);
                source = padded;
            }
            r.min = value_in_order(dtype, r.low);
            r.max = value_in_order(dtype, r.high);
        }
        if (ragged && source != padded) {
            memset(padded, 0, sizeof padded);
            memcpy(padded + lead * size, source, m * size);
            source = padded;
        }
        if (r.finite) {
            const size_t windows = (lead + m + WINDOW - 1) / WINDOW;
            mix_windows(mixed, place / WINDOW, windows);
            add_windows(&s, source, dtype, mixed, windows, &r);
            if (r.min < min) min = r.min;
            if (r.max > max) max = r.max;
        }
        finite += (double)r.finite;
        inf += (double)r.inf;
        done += m;
    }
    if (ends_tensor && hashed < n * size) {
        uint64_t word = 0;
        memcpy(&word, data + hashed, n * size - hashed);
        total += mix(word + ((begin + hashed) / 8 + 1) * GOLDEN);
    }
    *digest += total;
    widen_narrow(&s);
    for (int row = 0; row < LANES; row++)
        for (int column = 0; column < LANES; column++)
            sketch[column ^ row] += s.table[row][column];
    for (int lane = 0; lane < LANES; lane++) {
        moments[SUM] += s.sum[lane];
        moments[SUMSQ] += s.sumsq[lane];
    }
    moments[COUNT] += (double)n;
    moments[NAN_COUNT] += (double)n - finite - inf;
    moments[INF_COUNT] += inf;
    moments[MIN] = min;
    moments[MAX] = max;
}

#endif
