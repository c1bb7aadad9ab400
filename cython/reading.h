/* The least one can do with a buffer: read all of it. */
#ifndef REPROLAB_READING_H
#define REPROLAB_READING_H

#include "dispatch.h"

CLONES static uint64_t read_words(const uint8_t *data, size_t words) {
    v8u sum[4] = {{0}};
    size_t i = 0;
    for (; i + 32 <= words; i += 32)
        for (int part = 0; part < 4; part++) sum[part] += load_u(data + 8 * (i + 8 * part));
    sum[0] += sum[1] + sum[2] + sum[3];
    uint64_t total = 0;
    for (int lane = 0; lane < 8; lane++) total += sum[0][lane];
    for (; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        total += word;
    }
    return total;
}

#endif
