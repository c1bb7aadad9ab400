import random

import numpy as np
import pytest
import torch

from reprolab.capture.rng import rng_states


def states():
    return {name: bytes(tensor.numpy()) for name, tensor in rng_states()}


def test_reading_draws_nothing():
    assert states() == states()


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("torch", lambda: torch.rand(1)),
        ("numpy", lambda: np.random.rand()),  # noqa: NPY002
        ("python", random.random),
        ("numpy", lambda: np.random.standard_normal()),  # noqa: NPY002
        ("python", lambda: random.gauss(0, 1)),
    ],
)
def test_a_draw_shows_in_its_generator_alone(name, draw):
    for _ in range(2):  # The second normal deviate of a pair only empties the cache.
        before = states()
        draw()
        after = states()
        assert {key for key in before if before[key] != after[key]} == {name}


def test_the_bytes_are_the_whole_state():
    """From the bytes alone both generators can be set to draw the same again."""
    np.random.standard_normal()  # noqa: NPY002
    random.gauss(0, 1)
    found = dict(rng_states())
    expected = [np.random.standard_normal(4), np.random.rand(3)]  # noqa: NPY002
    expected_python = [random.gauss(0, 1), random.random()]

    def words(name):
        data = found[name].numpy().tobytes()
        position, full = np.frombuffer(data[2496:2512], "<i8")
        return np.frombuffer(data[:2496], "<u4"), int(position), bool(full), data[2512:]

    key, position, full, gauss = words("numpy")
    np.random.set_state(("MT19937", key, position, full, np.frombuffer(gauss, "<f8")[0]))  # noqa: NPY002
    again = [np.random.standard_normal(4), np.random.rand(3)]  # noqa: NPY002
    assert all((a == b).all() for a, b in zip(expected, again, strict=True))
    key, position, full, gauss = words("python")
    kept = float(np.frombuffer(gauss, "<f8")[0]) if full else None
    random.setstate((3, (*map(int, key), position), kept))
    assert [random.gauss(0, 1), random.random()] == expected_python


def test_another_bit_generator_of_numpy():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        first = states()["numpy"]
        np.random.rand()  # noqa: NPY002
        second = states()["numpy"]
    finally:
        np.random.set_bit_generator(before)
    assert b"PCG64" in first
    assert first != second
    assert len(first) == len(second)
