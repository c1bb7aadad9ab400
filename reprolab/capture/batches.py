"""Batches of any nesting as named tensors, with an identity for each sample."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from reprolab.capture.streams import Stream, real, spec
from reprolab.kernels import Fingerprint, fingerprint_stream
from reprolab.vocabulary import ITEMSIZE, Layout

_MOST_SAMPLES = 1024
_MOST_BYTES = 16 << 20
"""Beyond these, samples get no identities: the batch's own fingerprint stays."""


def flatten(batch: object, path: str = "") -> Iterator[tuple[str, torch.Tensor | np.ndarray]]:
    """The leaves of a batch with their paths, in order.

    Mappings, sequences and dataclasses are walked; tensors and arrays are leaves; numbers and
    text become tensors, a list of them one tensor. Anything else is left out.

    Examples
    --------
    >>> batch = {"x": np.ones((2, 3)), "label": [1, 0]}
    >>> [(path, tuple(leaf.shape)) for path, leaf in flatten(batch)]
    [('x', (2, 3)), ('label', (2,))]
    """
    if isinstance(batch, torch.Tensor):
        if batch.layout == torch.strided and not batch.is_nested:
            yield from _known(path, real(batch.detach()))
    elif isinstance(batch, np.ndarray):
        yield from _known(path, batch)
    elif isinstance(batch, bool | int | float | np.number):
        yield path, np.asarray(batch)
    elif isinstance(batch, str | bytes):
        yield path, _text([batch])
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from flatten(value, _below(path, key))
    elif isinstance(batch, list | tuple):
        names = getattr(batch, "_fields", range(len(batch)))
        if batch and all(isinstance(item, bool | int | float) for item in batch):
            yield path, np.asarray(batch)
        elif batch and all(isinstance(item, str | bytes) for item in batch):
            yield path, _text(list(batch))
        else:
            for name, item in zip(names, batch, strict=True):
                yield from flatten(item, _below(path, name))
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for entry in dataclasses.fields(batch):
            yield from flatten(getattr(batch, entry.name), _below(path, entry.name))


def _known(path: str, leaf: Any) -> Iterator[tuple[str, Any]]:
    if str(leaf.dtype).removeprefix("torch.") in ITEMSIZE:
        yield path, leaf


def _below(path: str, key: object) -> str:
    # As in JSON pointers, so that a slash in a key stays distinct from one between keys.
    name = str(key).replace("~", "~0").replace("/", "~1")
    return f"{path}/{name}" if path else name


def _text(items: list[str | bytes]) -> np.ndarray:
    text = json.dumps([item.hex() if isinstance(item, bytes) else item for item in items])
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


class Batches:
    """Reads the micro-batches of the step in progress.

    Parameters
    ----------
    block_bytes : int
        Size of a block.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._streams: list[Stream] = []
        self._read: list[tuple[Layout, Fingerprint]] = []
        self._identities: dict[object, Layout] = {}
        self.count = 0
        """Micro-batches in this step."""

    def read(self, batch: object, *, fingerprint: bool = True) -> dict[str, Any]:
        """Note one micro-batch.

        Parameters
        ----------
        batch : object
        fingerprint : bool
            Whether fingerprints are due in this step.

        Returns
        -------
        dict
            The fact about it: ``index`` within the step, ``ids`` of its samples, ``sizes``.
            A sample's id is a digest of its content, so that it is the same wherever in a
            batch, and on whichever rank, the sample turns up.
        """
        index = self.count
        self.count += 1
        leaves = list(flatten(batch))
        if fingerprint:
            if index == len(self._streams):
                self._streams.append(Stream("batch", self._block_bytes))
            self._read.append(self._streams[index].read(_numbered(index, leaves)))
        first = next((leaf for _, leaf in leaves if leaf.ndim), None)
        samples = 0 if first is None else len(first)
        size = sum(leaf.nbytes for _, leaf in leaves)
        ids = self._ids([leaf for _, leaf in leaves], samples, size)
        return {"index": index, "ids": ids, "sizes": {"samples": samples, "bytes": size}}

    def take(self) -> tuple[Layout, Fingerprint] | None:
        """All micro-batches as one stream, or `None` if there was none; starts afresh."""
        read, self._read = self._read, []
        self.count = 0
        if len(read) < 2:
            return read[0] if read else None
        layout = Layout(
            tuple(tensor for part, _ in read for tensor in part.tensors), self._block_bytes
        )
        parts = [found for _, found in read]
        return layout, Fingerprint(
            np.concatenate([part.digest for part in parts]),
            np.concatenate([part.moments for part in parts]),
            np.concatenate([part.sketch for part in parts]),
        )

    def _ids(self, leaves: list[Any], samples: int, size: int) -> list[str]:
        if not 0 < samples <= _MOST_SAMPLES or size > _MOST_BYTES:
            return []
        identity = np.zeros(samples, np.uint64)
        for leaf in leaves:
            if not leaf.ndim or len(leaf) != samples or not leaf.nbytes:
                continue
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
                return []
            layout = self._sample_layout(leaf, samples)
            # An ellipsis, because NumPy gives out single numbers that are no arrays otherwise.
            rows = [leaf[place, ...] for place in range(samples)]
            digests = fingerprint_stream(rows, layout).digest
            identity = identity * np.uint64(0x9E3779B97F4A7C15) + digests
        return [f"{number:016x}" for number in identity.tolist()]

    def _sample_layout(self, leaf: Any, samples: int) -> Layout:
        key = (samples, str(leaf.dtype), tuple(leaf.shape))
        if key not in self._identities:
            if len(self._identities) > 64:
                self._identities.clear()
            one = spec("sample", leaf[0, ...])
            # One block holds a sample whole, so that each has one digest.
            block_bytes = max(16, -(-one.nbytes // 16) * 16)
            self._identities[key] = Layout((one,) * samples, block_bytes)
        return self._identities[key]


def _numbered(index: int, leaves: list) -> list:
    return [(f"{index}/{path}" if path else str(index), leaf) for path, leaf in leaves]
