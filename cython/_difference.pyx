# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled difference; ``twin_difference`` is the same in NumPy."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef extern from "difference.h" nogil:
    ctypedef struct difference_tally:
        int64_t differing, beyond, first, nan_mismatch, inf_mismatch
        uint64_t max_ulp
        double max_abs, sum_sq_diff, sum_sq_a
        int64_t *histogram
    void tally_buffers "tally"(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype,
                               size_t n, double atol, double rtol)
    size_t itemsize(int dtype)


def tally(const uint8_t[::1] a, const uint8_t[::1] b, int dtype, double atol, double rtol,
          int64_t[::1] histogram):
    """Compare two buffers; fills `histogram` and returns the other fields in order."""
    cdef difference_tally t
    cdef Py_ssize_t kind
    cdef size_t n = a.shape[0] // itemsize(dtype)
    t.differing = t.beyond = t.nan_mismatch = t.inf_mismatch = 0
    t.first = -1
    t.max_ulp = 0
    t.max_abs = t.sum_sq_diff = t.sum_sq_a = 0
    for kind in range(histogram.shape[0]):
        t.histogram[kind] = 0
    if n:
        with nogil:
            tally_buffers(&t, &a[0], &b[0], dtype, n, atol, rtol)
    for kind in range(histogram.shape[0]):
        histogram[kind] = t.histogram[kind]
    return (t.differing, t.beyond, t.first, t.max_abs, t.max_ulp, t.sum_sq_diff, t.sum_sq_a,
            t.nan_mismatch, t.inf_mismatch)
