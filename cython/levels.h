/* The loops, once for each level of processor; `level_base.c` picks one when the program runs. */
#ifndef REPROLAB_LEVELS_H
#define REPROLAB_LEVELS_H

#include <stddef.h>
#include <stdint.h>

#define CLASSES 67

typedef struct {
    int64_t differing, beyond, first, nan_mismatch, inf_mismatch;
    uint64_t max_ulp;
    double max_abs, sum_sq_diff, sum_sq_a;
    int64_t histogram[CLASSES];
} difference_tally;

typedef struct {
    /* Add a stretch of elements that lies within one block, and within one run of a shard. */
    void (*stretch)(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                    uint64_t *digest, double *moments, double *sketch);
    /* Add all elements of two buffers. */
    void (*tally)(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype, size_t n,
                  double atol, double rtol);
    /* Sum 64-bit words: the least one can do with a buffer. */
    uint64_t (*read)(const uint8_t *data, size_t words);
} level;

size_t element_size(int dtype);

/* Levels this processor runs, the portable one first. Which one is used changes no result. */
int levels_here(void);
const level *level_at(int index);

/* GCC on x86-64 knows these levels by name; elsewhere the compiler's own target is the only one. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define HAS_LEVELS
#endif
extern const level level_base, level_v3, level_v4;

#endif
