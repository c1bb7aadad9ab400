"""What the second training of a pair does differently, by name."""

from __future__ import annotations

from collections.abc import Mapping

FAULTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "none": ("nothing is changed", {}),
    "reduction-order": (
        "gradients are reduced in smaller buckets, so their sums are rounded in another order",
        {"bucket_cap_mb": 0.3},
    ),
    "data-order": (
        "the second epoch repeats the order of the first: set_epoch was forgotten",
        {"reshuffle": False},
    ),
    "dropout-seed": ("the generator behind dropout starts from another seed", {"dropout_seed": 2}),
    "bit-flip": ("one bit of one weight flips on one rank", {"flip_before": 32}),
    "learning-rate": (
        "from step 24 on the learning rate is one per cent higher",
        {"lr_factor": 1.01, "lr_factor_from": 24},
    ),
}
"""For each fault: what really happens, and the settings that make it happen."""
