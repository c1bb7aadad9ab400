/* Vectors of whatever width the processor has, used so that results are the same on all of them:
   a number's lane out of sixteen, and so every rounding, never depends on the width. */
#ifndef REPROLAB_VECTORS_H
#define REPROLAB_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define LANES 16
#define STEP (WIDTH / 8)                 /* doubles in a vector */
#define PARTS (LANES / STEP)             /* vectors of doubles in sixteen lanes */
#define FLOAT_STEP (WIDTH / 4)           /* floats in a vector */
#define FLOAT_PARTS (LANES / FLOAT_STEP) /* vectors of floats in sixteen lanes */

typedef double vd __attribute__((vector_size(WIDTH)));
typedef uint64_t vu __attribute__((vector_size(WIDTH)));
typedef int64_t vi __attribute__((vector_size(WIDTH)));
typedef float vs __attribute__((vector_size(WIDTH)));
typedef uint32_t vu32 __attribute__((vector_size(WIDTH)));
typedef int32_t vi32 __attribute__((vector_size(WIDTH)));
typedef uint8_t vb __attribute__((vector_size(WIDTH)));
typedef float vs_half __attribute__((vector_size(WIDTH / 2)));
typedef uint32_t vu32_half __attribute__((vector_size(WIDTH / 2)));
typedef uint16_t vu16_half __attribute__((vector_size(WIDTH / 2)));
typedef uint16_t vu16_quarter __attribute__((vector_size(WIDTH / 4)));

#define TOP (UINT64_C(1) << 63)
#define TOP_32 (UINT32_C(1) << 31)

INLINE vu load_u(const void *p) { vu v; memcpy(&v, p, sizeof v); return v; }
INLINE vd load_d(const void *p) { vd v; memcpy(&v, p, sizeof v); return v; }
INLINE vs_half load_half(const void *p) { vs_half v; memcpy(&v, p, sizeof v); return v; }
INLINE vs load_s(const void *p) { vs v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(void *p, vu v) { memcpy(p, &v, sizeof v); }
INLINE vu choose(vi mask, vu yes, vu no) { return (yes & (vu)mask) | (no & ~(vu)mask); }

/* What C has no words for that compilers turn into good code: conversions, minimum and maximum of
   lanes that are not NaN, the greater of floats without a sign, products added with one rounding (only where products are exact, so that
   it is the same as two), lanes negated by a mask of bits. */
INLINE vs lower_halves(const void *p) { vu32 v; memcpy(&v, p, sizeof v); return (vs)(v << 16); }
INLINE vs upper_halves(const void *p) {
    vu32 v;
    memcpy(&v, p, sizeof v);
    return (vs)(v & UINT32_C(0xffff0000));
}

#if defined(__AVX512F__)
INLINE vd widen(vs_half x) { return (vd)_mm512_cvtps_pd((__m256)x); }
INLINE vd from_halves(const void *p) {
    return (vd)_mm512_cvtps_pd((__m256)_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
/* Sixteen bfloat16 as floats: element j becomes the upper half of lane j. */
INLINE vs floats_from_halves(const void *p) {
    const __m512i upper = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7,
                                           0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return (vs)_mm512_maskz_permutexvar_epi16(
        0xaaaaaaaa, upper, _mm512_castsi256_si512(_mm256_loadu_si256(p)));
}
INLINE vd lesser(vd a, vd b) { return (vd)_mm512_min_pd((__m512d)a, (__m512d)b); }
INLINE vd greater(vd a, vd b) { return (vd)_mm512_max_pd((__m512d)a, (__m512d)b); }
INLINE vs greater_size(vs a, vs b) { return (vs)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE vs_half greater_size_half(vs_half a, vs_half b) {
    return (vs_half)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
INLINE vd add_product(vd c, vd a, vd b) {
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
INLINE vs add_product_s(vs c, vs a, vs b) {
    return (vs)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
INLINE vd negate(vd x, uint64_t bits) {
    return (vd)_mm512_mask_xor_pd((__m512d)x, (__mmask8)bits, (__m512d)x, _mm512_set1_pd(-0.0));
}
INLINE vs negate_s(vs x, uint64_t bits) {
    return (vs)_mm512_mask_xor_ps((__m512)x, (__mmask16)bits, (__m512)x, _mm512_set1_ps(-0.0f));
}
/* How many of `n`, a multiple of 32, are at least `threshold`. */
INLINE int64_t count_from(const uint16_t *x, size_t n, uint16_t threshold) {
    int64_t found = 0;
    for (size_t i = 0; i < n; i += 32)
        found += __builtin_popcount(_mm512_cmpge_epu16_mask(
            _mm512_loadu_si512(x + i), _mm512_set1_epi16((short)threshold)));
    return found;
}
#else
INLINE int64_t count_from(const uint16_t *x, size_t n, uint16_t threshold) {
    uint16_t found = 0;
    for (size_t i = 0; i < n; i++) found += x[i] >= threshold;
    return found;
}
INLINE vd widen(vs_half x) {
#if defined(__AVX2__)
    return (vd)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, vd);
#endif
}
INLINE vd from_halves(const void *p) {
    vu16_quarter x;
    memcpy(&x, p, sizeof x);
    return widen((vs_half)(__builtin_convertvector(x, vu32_half) << 16));
}
INLINE vs floats_from_halves(const void *p) {
    vu16_half x;
    memcpy(&x, p, sizeof x);
    return (vs)(__builtin_convertvector(x, vu32) << 16);
}
INLINE vd lesser(vd a, vd b) { return (vd)choose(a < b, (vu)a, (vu)b); }
INLINE vd greater(vd a, vd b) { return (vd)choose(a > b, (vu)a, (vu)b); }
INLINE vs greater_size(vs a, vs b) {
    const vu32 mask = (vu32)((vu32)a > (vu32)b);
    return (vs)(((vu32)a & mask) | ((vu32)b & ~mask));
}
INLINE vs_half greater_size_half(vs_half a, vs_half b) {
    const vu32_half mask = (vu32_half)((vu32_half)a > (vu32_half)b);
    return (vs_half)(((vu32_half)a & mask) | ((vu32_half)b & ~mask));
}
#if defined(__FMA__)
INLINE vd add_product(vd c, vd a, vd b) {
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
INLINE vs add_product_s(vs c, vs a, vs b) {
    return (vs)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#else
INLINE vd add_product(vd c, vd a, vd b) { return c + a * b; }
INLINE vs add_product_s(vs c, vs a, vs b) { return c + a * b; }
#endif
INLINE vd negate(vd x, uint64_t bits) {
    uint64_t shift[STEP];
    for (int lane = 0; lane < STEP; lane++) shift[lane] = 63 - lane;
    return (vd)((vu)x ^ ((((vu){0} + bits) << load_u(shift)) & TOP));
}
INLINE vs negate_s(vs x, uint64_t bits) {
    uint32_t shift[FLOAT_STEP];
    for (int lane = 0; lane < FLOAT_STEP; lane++) shift[lane] = 31 - lane;
    return (vs)((vu32)x ^ ((((vu32){0} + (uint32_t)bits) << (vu32)load_u(shift)) & TOP_32));
}
#endif

#endif
