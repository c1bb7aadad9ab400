# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""One pass over tensors: fingerprint, difference, and a plain read to measure them against."""

from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memset


cdef extern from "<fenv.h>" nogil:
    ctypedef struct fenv_t:
        pass
    const fenv_t *FE_DFL_ENV
    int fegetenv(fenv_t *environment)
    int fesetenv(const fenv_t *environment)


cdef extern from "levels.h" nogil:
    ctypedef struct difference_tally:
        int64_t differing, beyond, first, nan_mismatch, inf_mismatch
        uint64_t max_ulp
        double max_abs, sum_sq_diff, sum_sq_a
        int64_t *histogram
    ctypedef struct level:
        void (*stretch)(const uint8_t *data, int dtype, uint64_t first, size_t n, int ends_tensor,
                        uint64_t *digest, double *moments, double *sketch) noexcept nogil
        void (*tally)(difference_tally *t, const uint8_t *a, const uint8_t *b, int dtype, size_t n,
                      double atol, double rtol) noexcept nogil
        uint64_t (*read)(const uint8_t *data, size_t words) noexcept nogil
    int levels_here()
    const level *level_at(int index)
    size_t element_size(int dtype)


LEVELS = levels_here()
"""Instruction sets that the loops are compiled for and this processor runs."""

cdef const level *loops = level_at(levels_here() - 1)


def use_level(int index):
    """Choose the instruction set, from 0 (portable) to ``LEVELS - 1``; it changes no result."""
    global loops
    if not 0 <= index < LEVELS:
        raise ValueError(f"index must be from 0 to {LEVELS - 1}; got {index}")
    loops = level_at(index)


# Training may have told the processor to flush subnormal numbers to zero, or to round otherwise.
cdef void enter(fenv_t *environment) noexcept nogil:
    fegetenv(environment)
    fesetenv(FE_DFL_ENV)


cdef void add_run(const uint8_t *data, int dtype, int64_t start, int64_t length, int64_t size,
                  int64_t block_bytes, uint64_t *digest, double *moments,
                  double *sketch) noexcept nogil:
    cdef int64_t width = element_size(dtype), per_block = block_bytes // width
    cdef int64_t stop = start + length, low = start, high, row
    while low < stop:
        row = low // per_block
        high = min(stop, (row + 1) * per_block)
        loops.stretch(data + (low - start) * width, dtype, low, high - low, high == size,
                      digest + row, moments + 7 * row, sketch + 16 * row)
        low = high


def add_runs(uintptr_t address, int dtype, const int64_t[::1] starts, int64_t length, int64_t size,
             int64_t block_bytes, uint64_t[::1] digest, double[:, ::1] moments,
             double[:, ::1] sketch):
    """Add a shard to its tensor's rows, except for the words it covers only in part."""
    cdef Py_ssize_t run
    cdef const uint8_t *data = <const uint8_t *> address
    cdef fenv_t environment
    if not length or not starts.shape[0]:
        return
    with nogil:
        enter(&environment)
        for run in range(starts.shape[0]):
            add_run(data + run * length * element_size(dtype), dtype, starts[run], length, size,
                    block_bytes, &digest[0], &moments[0, 0], &sketch[0, 0])
        fesetenv(&environment)


def add_tensors(const uint64_t[::1] addresses, const uint8_t[::1] dtypes, const int64_t[::1] sizes,
                const int64_t[::1] rows, int64_t block_bytes, uint64_t[::1] digest,
                double[:, ::1] moments, double[:, ::1] sketch):
    """Add whole tensors, each to its rows; an address of 0 is a tensor that is absent."""
    cdef Py_ssize_t tensor
    cdef fenv_t environment
    if not digest.shape[0]:
        return
    with nogil:
        enter(&environment)
        for tensor in range(addresses.shape[0]):
            if addresses[tensor] and sizes[tensor]:
                add_run(<const uint8_t *> <uintptr_t> addresses[tensor], dtypes[tensor], 0,
                        sizes[tensor], sizes[tensor], block_bytes, &digest[rows[tensor]],
                        &moments[rows[tensor], 0], &sketch[rows[tensor], 0])
        fesetenv(&environment)


def tally(const uint8_t[::1] a, const uint8_t[::1] b, int dtype, double atol, double rtol,
          int64_t[::1] histogram):
    """Compare two buffers; fills `histogram` and returns the other fields in order."""
    cdef difference_tally t
    cdef fenv_t environment
    cdef Py_ssize_t kind
    cdef size_t n = a.shape[0] // element_size(dtype)
    memset(&t, 0, sizeof(t))
    t.first = -1
    if n:
        with nogil:
            enter(&environment)
            loops.tally(&t, &a[0], &b[0], dtype, n, atol, rtol)
            fesetenv(&environment)
    for kind in range(histogram.shape[0]):
        histogram[kind] = t.histogram[kind]
    return (t.differing, t.beyond, t.first, t.max_abs, t.max_ulp, t.sum_sq_diff, t.sum_sq_a,
            t.nan_mismatch, t.inf_mismatch)


def read(const uint8_t[::1] data):
    """Sum the 64-bit words of a buffer: the least one can do with it."""
    cdef uint64_t total = 0
    cdef size_t words = data.shape[0] // 8
    if words:
        with nogil:
            total = loops.read(&data[0], words)
    return total
