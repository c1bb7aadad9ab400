# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A plain pass that only reads: what the benchmark holds the other kernels against."""

from libc.stdint cimport uint8_t, uint64_t


cdef extern from "reading.h" nogil:
    uint64_t read_words(const uint8_t *data, size_t words)


def read(const uint8_t[::1] data):
    """Sum the 64-bit words of a buffer."""
    cdef uint64_t total = 0
    cdef size_t words = data.shape[0] // 8
    if words:
        with nogil:
            total = read_words(&data[0], words)
    return total
