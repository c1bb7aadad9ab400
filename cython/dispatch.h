/* What all kernels share: fast paths per processor, eight-lane vectors, decoding of elements. */
#ifndef REPROLAB_DISPATCH_H
#define REPROLAB_DISPATCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One portable binary: the loader picks the clone for the processor it finds. Only GCC on Linux
   has both the attribute and the loader support; elsewhere the compiler's own target is used. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

/* Eight lanes on every machine, so that floating-point sums are the same on all of them. */
typedef double v8d __attribute__((vector_size(64)));
typedef uint64_t v8u __attribute__((vector_size(64)));
typedef int64_t v8i __attribute__((vector_size(64)));

INLINE v8d load_d(const double *p) { v8d v; memcpy(&v, p, sizeof v); return v; }
INLINE v8u load_u(const void *p) { v8u v; memcpy(&v, p, sizeof v); return v; }
INLINE v8d pick(v8i mask, v8d yes, v8d no) {
    return (v8d)(((v8u)yes & (v8u)mask) | ((v8u)no & ~(v8u)mask));
}

/* Codes are positions in vocabulary.ITEMSIZE; a test holds the two lists together. */
enum dtype { BOOL, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64,
             E4M3FN, E5M2, BFLOAT16, FLOAT16, FLOAT32, FLOAT64 };

#define TILE 1024 /* elements; their doubles fill a quarter of a first-level cache */

INLINE double bits_to_double(uint64_t bits) { double d; memcpy(&d, &bits, sizeof d); return d; }
INLINE float bits_to_float(uint32_t bits) { float f; memcpy(&f, &bits, sizeof f); return f; }

/* A small float with `m` mantissa bits and exponent bias `bias`. Subnormals are made by integer
   conversion, because the training may have told the processor to flush them. */
INLINE float small_float(uint32_t magnitude, int m, int bias) {
    uint32_t normal = (magnitude << (23 - m)) + ((uint32_t)(127 - bias) << 23);
    float subnormal = (float)(int32_t)magnitude * bits_to_float((uint32_t)(128 - bias - m) << 23);
    uint32_t low;
    memcpy(&low, &subnormal, sizeof low);
    return bits_to_float(magnitude >> m ? normal : low);
}

INLINE double decode_e4m3fn(uint8_t x) {
    uint32_t magnitude = x & 0x7f;
    double value = magnitude == 0x7f ? (double)NAN : small_float(magnitude, 3, 7);
    return x >> 7 ? -value : value;
}

INLINE double decode_e5m2(uint8_t x) {
    uint32_t magnitude = x & 0x7f;
    double value = magnitude > 0x7c    ? (double)NAN
                   : magnitude == 0x7c ? (double)INFINITY
                                       : small_float(magnitude, 2, 15);
    return x >> 7 ? -value : value;
}

INLINE float decode_float16(uint16_t x) {
    uint32_t magnitude = x & 0x7fff;
    float value = small_float(magnitude, 10, 15);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits |= magnitude >= 0x7c00 ? 0x7f800000u : 0; /* Inf keeps a zero mantissa, NaN does not */
    return bits_to_float(bits | (uint32_t)(x >> 15) << 31);
}

/* Elements as doubles: exact, but for 64-bit integers beyond 2^53, which are rounded. */
INLINE void decode(const uint8_t *restrict data, int dtype, size_t n, double *restrict out) {
#define EACH(type, expression)                                \
    for (size_t i = 0; i < n; i++) {                          \
        type x;                                               \
        memcpy(&x, data + i * sizeof x, sizeof x);            \
        out[i] = (double)(expression);                        \
    }                                                         \
    break;
    switch (dtype) {
    case BOOL: EACH(uint8_t, x != 0)
    case INT8: EACH(int8_t, x)
    case UINT8: EACH(uint8_t, x)
    case INT16: EACH(int16_t, x)
    case UINT16: EACH(uint16_t, x)
    case INT32: EACH(int32_t, x)
    case UINT32: EACH(uint32_t, x)
    case INT64: EACH(int64_t, x)
    case UINT64: EACH(uint64_t, x)
    case E4M3FN: EACH(uint8_t, decode_e4m3fn(x))
    case E5M2: EACH(uint8_t, decode_e5m2(x))
    case BFLOAT16: EACH(uint16_t, bits_to_float((uint32_t)x << 16))
    case FLOAT16: EACH(uint16_t, decode_float16(x))
    case FLOAT32: EACH(float, x)
    case FLOAT64: EACH(double, x)
    }
#undef EACH
}

INLINE size_t itemsize(int dtype) {
    static const unsigned char sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 2, 2, 4, 8};
    return sizes[dtype];
}

#endif
