"""Speed of the kernels against a plain read of the same buffers, and against their peers.

Run ``python benchmarks/kernels.py`` for a table, with ``--json`` for one flat JSON object. All
contestants take turns in every round, on one thread, and are charged its processor time; a ratio
is the median over the rounds of the ratio within a round. So whatever else the machine does counts
little, and alike.

Buffers hold normal numbers, and in the second of each pair every element is a few units in the
last place off: what a changed order of summation leaves behind, and the most work the histogram
can be given.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from reprolab.kernels import COMPILED, difference, fingerprint
from reprolab.kernels.backend import passes


def buffers(dtype: torch.dtype, mebibytes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    itemsize = torch.empty((), dtype=dtype).element_size()
    a = torch.empty(mebibytes * 2**20 // itemsize, dtype=dtype)
    b = torch.empty_like(a)
    word = {2: torch.int16, 4: torch.int32}[itemsize]
    for low in range(0, len(a), 2**22):
        part = a[low : low + 2**22]
        part.copy_(torch.randn(len(part), generator=generator) * 0.02)
        off = torch.randint(-3, 4, part.shape, generator=generator, dtype=word)
        b[low : low + 2**22].view(word).copy_(part.view(word) + off)
    return a, b


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """What `np.allclose` can be given; it knows bfloat16 through ml_dtypes alone."""
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def measure(dtype: torch.dtype, mebibytes: int, rounds: int) -> dict[str, list[float]]:
    a, b = buffers(dtype, mebibytes)
    x, y = as_numpy(a), as_numpy(b)
    bytes_a, bytes_b = x.view(np.uint8), y.view(np.uint8)
    tolerance = {"rtol": 1e-2, "atol": 1e-3}
    assert difference(a, b).differing > 0.5 * len(a)
    contestants: dict[str, Callable[[], object]] = {
        "read one": lambda: passes.read(bytes_a),
        "fingerprint": lambda: fingerprint(a),
        "read both": lambda: (passes.read(bytes_a), passes.read(bytes_b)),
        "difference": lambda: difference(a, b),
    }
    slow: dict[str, Callable[[], object]] = {
        "np.allclose": lambda: np.allclose(x, y, **tolerance),
        "torch.allclose": lambda: torch.allclose(a, b, **tolerance),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants | slow}
    for turn in range(rounds):
        # The peers take seconds: a few rounds of them are enough, each beside the kernels.
        for name, work in (contestants | (slow if turn % 4 == 0 else {})).items():
            times[name].append(seconds(work))
    return times


def ratios(times: dict[str, list[float]]) -> dict[str, float]:
    def faster(name: str, than: str, every: int = 1) -> float:
        return median(
            slow / quick for slow, quick in zip(times[than], times[name][::every], strict=True)
        )

    return {
        "difference_vs_read": faster("difference", "read both"),
        "fingerprint_vs_read": faster("fingerprint", "read one"),
        "difference_vs_np_allclose": faster("difference", "np.allclose", 4),
        "difference_vs_torch_allclose": faster("difference", "torch.allclose", 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one flat JSON object")
    parser.add_argument("--mebibytes", type=int, default=256, help="size of a buffer")
    parser.add_argument("--rounds", type=int, default=17)
    options = parser.parse_args()
    if not COMPILED:
        raise SystemExit("the compiled kernels are missing; there is nothing to measure")
    torch.set_num_threads(1)

    result: dict[str, float] = {}
    for name, dtype, suffix in (
        ("float32", torch.float32, ""),
        ("bfloat16", torch.bfloat16, "_bf16"),
    ):
        times = measure(dtype, options.mebibytes, options.rounds)
        found = ratios(times)
        result |= {key + suffix: round(value, 3) for key, value in found.items()}
        if options.json:
            continue
        print(f"{name}, {options.mebibytes} MiB a buffer, one thread, {options.rounds} rounds")
        for contestant, took in times.items():
            moved = (
                options.mebibytes * 2**20 * (1 if contestant in ("read one", "fingerprint") else 2)
            )
            print(f"  {contestant:<16} {moved / median(took) / 1e9:8.2f} GB/s")
        for key, value in found.items():
            print(f"  {key:<32} {value:8.2f}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
