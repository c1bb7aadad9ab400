import numpy as np
import pytest

from reprolab.vocabulary import ITEMSIZE


@pytest.fixture(scope="session")
def random_array():
    """Arrays of any dtype from a seed; `special` takes all bit patterns, NaN and Inf with them."""

    def make(dtype, shape, seed, *, special=False):
        rng = np.random.default_rng(seed)
        size = int(np.prod(shape, dtype=int))
        bits = rng.integers(0, 256, size * ITEMSIZE[dtype], dtype=np.uint8)
        if dtype == "bool":
            bits &= 1
        elif "float" in dtype and not special:
            return (rng.standard_normal(size) * 0.1).astype(dtype).reshape(shape)
        return bits.view(dtype).reshape(shape)

    return make
