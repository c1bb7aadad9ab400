# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled fingerprint; ``twin_fingerprint`` is the same in NumPy."""

from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t


cdef extern from "fingerprint.h" nogil:
    void stretch(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                 uint64_t *digest, double *moments, double *sketch)
    size_t itemsize(int dtype)


cdef void accumulate_run(const uint8_t *data, int dtype, int64_t start, int64_t length,
                         int64_t size, int64_t per_block, uint64_t[::1] digest,
                         double[:, ::1] moments, double[:, ::1] sketch,
                         int64_t row0) noexcept nogil:
    cdef int64_t stop = start + length, low = start, high, row
    cdef size_t width = itemsize(dtype)
    while low < stop:
        row = low // per_block
        high = min(stop, (row + 1) * per_block)
        stretch(data + (low - start) * width, dtype, low, high - low, high == size,
                &digest[row0 + row], &moments[row0 + row, 0], &sketch[row0 + row, 0])
        low = high


def accumulate(const uint8_t[::1] data, int dtype, const int64_t[::1] starts, int64_t length,
               int64_t size, int64_t block_bytes, uint64_t[::1] digest, double[:, ::1] moments,
               double[:, ::1] sketch):
    """Add a tensor or a shard to its rows, except for the words it covers only in part."""
    cdef Py_ssize_t run
    cdef size_t width = itemsize(dtype)
    if not length:
        return
    with nogil:
        for run in range(starts.shape[0]):
            accumulate_run(&data[0] + run * length * width, dtype, starts[run], length, size,
                           block_bytes // width, digest, moments, sketch, 0)


def accumulate_stream(const uint64_t[::1] addresses, const uint8_t[::1] dtypes,
                      const int64_t[::1] sizes, const int64_t[::1] rows, int64_t block_bytes,
                      uint64_t[::1] digest, double[:, ::1] moments, double[:, ::1] sketch):
    """Add whole tensors, each to its rows; an address of 0 is a tensor that is absent."""
    cdef Py_ssize_t tensor
    with nogil:
        for tensor in range(addresses.shape[0]):
            if addresses[tensor]:
                accumulate_run(<const uint8_t *> <uintptr_t> addresses[tensor], dtypes[tensor], 0,
                               sizes[tensor], sizes[tensor],
                               block_bytes // itemsize(dtypes[tensor]), digest, moments, sketch,
                               rows[tensor])
