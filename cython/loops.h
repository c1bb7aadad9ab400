/* The entries of one level: each dtype a constant, so that decoding becomes one loop. Included by
   each `level_*.c` with NAME set. */
#include "difference.h"
#include "fingerprint.h"
#include "levels.h"

#define FOR_EACH_DTYPE(branch)                                                                  \
    branch(BOOL) branch(INT8) branch(UINT8) branch(INT16) branch(UINT16) branch(INT32)          \
    branch(UINT32) branch(INT64) branch(UINT64) branch(E4M3FN) branch(E5M2) branch(BFLOAT16)    \
    branch(FLOAT16) branch(FLOAT32) branch(FLOAT64)

static void stretch(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                    uint64_t *digest, double *moments, double *sketch) {
    switch (dtype) {
#define BRANCH(code) \
    case code: stretch_of(data, code, first, n, ends_tensor, digest, moments, sketch); break;
        FOR_EACH_DTYPE(BRANCH)
#undef BRANCH
    }
}

static void tally(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype, size_t n,
                  double atol, double rtol) {
    switch (dtype) {
#define BRANCH(code) \
    case code: tally_of(t, a, b, code, n, atol, rtol); break;
        FOR_EACH_DTYPE(BRANCH)
#undef BRANCH
    }
}

static uint64_t read_words(const uint8_t *data, size_t words) {
    vu sum[4] = {{0}};
    uint64_t total = 0;
    size_t i = 0;
    for (; i + 4 * STEP <= words; i += 4 * STEP)
        for (int part = 0; part < 4; part++) sum[part] += load_u(data + 8 * i + WIDTH * part);
    sum[0] += sum[1] + sum[2] + sum[3];
    for (int lane = 0; lane < STEP; lane++) total += sum[0][lane];
    for (; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        total += word;
    }
    return total;
}

const level NAME = {stretch, tally, read_words};
