"""Ways in which tensors differ, and estimates from blocks."""

import ml_dtypes
import numpy as np

from reprolab.comparison.distances import KINDS, apart, by_blocks, narrow_floats
from reprolab.kernels import Fingerprint, estimate, fingerprint
from reprolab.vocabulary import TensorSpec


def measured(a, b):
    return apart(a, b, estimate(a, b))


def kind(a, b):
    return KINDS[measured(a, b).kind[0]]


def test_each_way_of_differing_has_its_kind():
    one = fingerprint(np.ones(8, np.float32))
    none = Fingerprint.zeros(1)
    nan = fingerprint(np.array([1] * 7 + [np.nan], np.float32))
    infinite = fingerprint(np.array([1] * 7 + [np.inf], np.float32))
    assert kind(one, fingerprint(np.full(8, 2, np.float32))) == "apart"
    assert kind(none, one) == "absent in a"
    assert kind(one, none) == "absent in b"
    assert kind(one, nan) == kind(infinite, one) == kind(nan, infinite) == "non-finite"
    assert measured(one, nan).relative[0] == np.inf
    zero, minus = fingerprint(np.zeros(8, np.float32)), fingerprint(-np.zeros(8, np.float32))
    assert kind(zero, minus) == "below resolution"


def test_the_same_is_no_distance():
    one = fingerprint(np.ones(8, np.float32))
    found = measured(one, one)
    assert not found.differs[0]
    assert found.distance[0] == found.relative[0] == found.error[0] == 0


def test_squares_that_leave_float64_are_not_measured():
    huge = fingerprint(np.full(8, 1e300))
    found = measured(huge, fingerprint(np.full(8, 2e300)))
    assert found.differs[0]
    assert found.relative[0] == np.inf
    assert not np.isnan(found.distance[0])


def test_blocks_give_a_better_estimate_than_the_whole():
    draw = np.random.default_rng(0)
    errors = []
    for _ in range(60):
        a = draw.normal(size=16 * 64).astype(np.float32)
        b = a + draw.normal(size=a.shape).astype(np.float32)
        two = [fingerprint(side, block_bytes=64) for side in (a, b)]
        whole = estimate(*(side.total() for side in two))
        narrow = np.zeros(64, bool)
        finer, differing = by_blocks(whole, np.array([0]), np.array([0]), *two, narrow)
        assert differing.tolist() == [64]
        assert finer.error[0] / finer.squared[0] < whole.error[0] / whole.squared[0] / 6
        exact = np.square(a.astype(float) - b.astype(float)).sum()
        errors.append((finer.squared[0] - exact) / finer.error[0])
    assert np.mean(np.abs(errors) < 3) > 0.95


def test_narrow_floats_are_those_of_at_most_sixteen_bits():
    names = ["bfloat16", "float16", "float8_e5m2", "float32", "float64", "int8", "bool"]
    found = narrow_floats([TensorSpec("t", name, ()) for name in names])
    assert found.tolist() == [True, True, True, False, False, False, False]


def test_one_unit_in_the_last_place_of_bfloat16_is_measured():
    a = np.ones(4096, ml_dtypes.bfloat16)
    b = a.copy()
    b[7] = ml_dtypes.bfloat16(1.0078125)
    two = fingerprint(a), fingerprint(b)
    found = apart(*two, estimate(*two, narrow=True))
    assert KINDS[found.kind[0]] == "apart"
    assert found.distance[0] == 0.0078125
