/* Elements of every dtype as floats and doubles. */
#ifndef REPROLAB_ELEMENTS_H
#define REPROLAB_ELEMENTS_H

#include "vectors.h"

/* Codes are positions in vocabulary.ITEMSIZE; a test holds the two lists together. */
enum dtype { BOOL, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64,
             E4M3FN, E5M2, BFLOAT16, FLOAT16, FLOAT32, FLOAT64 };

INLINE size_t itemsize(int dtype) {
    static const unsigned char sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 2, 2, 4, 8};
    return sizes[dtype];
}

INLINE int is_float(int dtype) { return dtype >= E4M3FN; }

/* Bits of infinity; NaN is above. e4m3fn has no infinity: its one NaN stands there. */
INLINE uint64_t infinity_bits(int dtype) {
    switch (dtype) {
    case E4M3FN: return 0x7f;
    case E5M2: return 0x7c;
    case BFLOAT16: return 0x7f80;
    case FLOAT16: return 0x7c00;
    case FLOAT32: return 0x7f800000;
    default: return 0x7ff0000000000000;
    }
}

INLINE float as_float(uint32_t bits) { float f; memcpy(&f, &bits, sizeof f); return f; }
INLINE uint32_t as_bits(float f) { uint32_t bits; memcpy(&bits, &f, sizeof bits); return bits; }

/* A small float with `m` mantissa bits and exponent bias `bias`: its bits moved to the place of a
   float32's are the value, subnormals too, divided by a power of two. */
INLINE float small_float(uint32_t x, int width, int m, int bias, uint32_t infinite) {
    const uint32_t magnitude = x & ((1u << (width - 1)) - 1);
    uint32_t bits =
        as_bits(as_float(magnitude << (23 - m)) * as_float((uint32_t)(254 - bias) << 23));
    bits |= magnitude >= infinite ? 0x7f800000u : 0; /* Inf keeps a zero mantissa, NaN does not */
    return as_float(bits | (x >> (width - 1)) << 31);
}
INLINE float decode_e4m3fn(uint8_t x) {
    return (x & 0x7f) == 0x7f ? (float)NAN : small_float(x, 8, 3, 7, 0x80);
}
INLINE float decode_e5m2(uint8_t x) { return small_float(x, 8, 2, 15, 0x7c); }
INLINE float decode_float16(uint16_t x) { return small_float(x, 16, 10, 15, 0x7c00); }

#define DECODE(name, wide)                                                                         \
    INLINE void name(const uint8_t *restrict data, int dtype, size_t n, wide *restrict out) {    \
        switch (dtype) {                                                                         \
            EACH(wide, BOOL, uint8_t, x != 0)                                                    \
            EACH(wide, INT8, int8_t, x)                                                          \
            EACH(wide, UINT8, uint8_t, x)                                                        \
            EACH(wide, INT16, int16_t, x)                                                        \
            EACH(wide, UINT16, uint16_t, x)                                                      \
            EACH(wide, INT32, int32_t, x)                                                        \
            EACH(wide, UINT32, uint32_t, x)                                                      \
            EACH(wide, INT64, int64_t, x)                                                        \
            EACH(wide, UINT64, uint64_t, x)                                                      \
            EACH(wide, E4M3FN, uint8_t, decode_e4m3fn(x))                                        \
            EACH(wide, E5M2, uint8_t, decode_e5m2(x))                                            \
            EACH(wide, BFLOAT16, uint16_t, as_float((uint32_t)x << 16))                          \
            EACH(wide, FLOAT16, uint16_t, decode_float16(x))                                     \
            EACH(wide, FLOAT32, float, x)                                                        \
            EACH(wide, FLOAT64, double, x)                                                       \
        }                                                                                        \
    }
#define EACH(wide, code, type, expression)                                                       \
    case code:                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                         \
            type x;                                                                              \
            memcpy(&x, data + i * sizeof x, sizeof x);                                           \
            out[i] = (wide)(expression);                                                         \
        }                                                                                        \
        break;
DECODE(decode_floats, float)   /* exact up to 16 bits */
DECODE(decode, double)         /* exact, but for 64-bit integers beyond 2^53, which are rounded */
#undef EACH
#undef DECODE

/* Whether vectors of elements can be had from memory in a few instructions. */
INLINE int is_direct(int dtype) {
    return dtype == FLOAT32 || dtype == FLOAT64 || dtype == BFLOAT16;
}

INLINE vd load_elements(const uint8_t *data, int dtype) {
    if (dtype == FLOAT32) return widen(load_half(data));
    if (dtype == BFLOAT16) return from_halves(data);
    return load_d(data);
}

#endif
