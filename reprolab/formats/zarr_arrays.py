"""Zarr arrays as tensors: chunks and shards are read where they are needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from reprolab.errors import DamagedData
from reprolab.formats.dtypes import numpy_dtype
from reprolab.formats.elements import Stored, Strided
from reprolab.formats.folders import Folder
from reprolab.formats.memory import reserve, within_limit
from reprolab.formats.sources import Part, Source
from reprolab.formats.zarr_codecs import decode
from reprolab.formats.zarr_metadata import Description, Encoding
from reprolab.vocabulary import Region

_KEPT = 1 << 28
"""Bytes of decoded chunks that one checkpoint keeps, as neighbouring blocks share chunks."""

_ABSENT = (1 << 64) - 1


class ChunkCache:
    """The decoded chunks used last, shared by the arrays of a checkpoint."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[object, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> np.ndarray | None:
        """A chunk, if it is still here."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: object, chunk: np.ndarray) -> None:
        """Keep a chunk, and let go of those not used for longest."""
        with self._lock:
            if key in self._held or chunk.nbytes > self._limit:
                return
            self._held[key] = chunk
            self._size += chunk.nbytes
            while self._size > self._limit:
                self._size -= self._held.popitem(last=False)[1].nbytes


class ZarrArray:
    """One array of a Zarr store.

    Parameters
    ----------
    folder : Folder
        Where its chunks are.
    description : Description
        Its metadata.
    cache : ChunkCache
        Where decoded chunks are kept.
    complete : bool
        Whether a chunk that is not stored is missing, rather than all fill value.
    """

    def __init__(
        self,
        folder: Folder,
        description: Description,
        cache: ChunkCache,
        *,
        complete: bool = False,
    ) -> None:
        self.dtype = description.dtype
        self.shape = description.shape
        self._folder = folder
        self._description = description
        self._cache = cache
        self._complete = complete
        self._kind = numpy_dtype(description.dtype)

    def read(self, region: Region) -> np.ndarray:
        """The elements of a box, from the chunks that it overlaps."""
        nbytes = prod(region.shape) * self._kind.itemsize
        reserve(nbytes, f"a region of shape {region.shape}")
        found = np.empty(region.shape, self._kind)
        description = self._description
        for index, source, target in _overlaps(region, description.chunk):
            key = description.key(index)
            held = self._folder.open(key) if self._complete else self._folder.find(key)
            if held is None:
                found[target] = description.fill
                continue
            try:
                part = Region(*_box(source))
                if description.sharding is None:
                    label = f"{self._folder.label}/{key}"
                    found[target] = self._chunk(held, description.chunk, part, label)
                else:
                    found[target] = self._shard(held, part, f"{self._folder.label}/{key}")
            finally:
                held.close()
        return found

    def _shard(self, shard: Source, region: Region, label: str) -> np.ndarray:
        description, sharding = self._description, self._description.sharding
        assert sharding is not None  # noqa: S101
        counts = tuple(a // b for a, b in zip(description.chunk, sharding.inner, strict=True))
        index = self._index(shard, counts, label)
        found = np.empty(region.shape, self._kind)
        for place, source, target in _overlaps(region, sharding.inner):
            offset, length = (int(number) for number in index[place])
            if offset == length == _ABSENT:
                found[target] = description.fill
                continue
            inner = f"{label} {place}"
            part = Part(shard, offset, length, inner)
            found[target] = self._chunk(part, sharding.inner, Region(*_box(source)), inner)
        return found

    def _index(self, shard: Source, counts: tuple[int, ...], label: str) -> np.ndarray:
        sharding = self._description.sharding
        assert sharding is not None  # noqa: S101
        size = 16 * prod(counts)
        stored = size + 4 * len(sharding.index.codecs)
        if stored > shard.size:
            raise DamagedData(
                f"a shard of {shard.size} bytes is too short for its index of {stored}", path=label
            )
        cached = self._cache.get((self, label))
        if cached is not None:
            return cached
        raw = shard.read(0 if sharding.index_first else shard.size - stored, stored)
        plain = decode(raw.tobytes(), sharding.index.codecs, size, label)
        index = plain.view(">u8" if sharding.index.big_endian else "<u8").reshape(*counts, 2)
        self._cache.put((self, label), index)
        return index

    def _chunk(
        self, source: Source, shape: tuple[int, ...], region: Region, label: str
    ) -> np.ndarray:
        encoding = self._description.encoding
        size = prod(shape) * self._kind.itemsize
        if not encoding.codecs and not encoding.big_endian:
            if source.size != size:
                raise DamagedData(
                    f"a chunk has {source.size} bytes; it must have {size}", path=label
                )
            return self._strided(source, shape, encoding).read(region)
        chunk = self._cache.get((self, label))
        if chunk is None:
            within_limit(size, f"a chunk of shape {shape}")
            within_limit(source.size, "an encoded chunk")
            raw = decode(source.read(0, source.size).tobytes(), encoding.codecs, size, label)
            kind = self._kind.newbyteorder(">") if encoding.big_endian else self._kind
            stored = tuple(shape[dim] for dim in encoding.order)
            whole = raw.view(kind).reshape(stored).transpose(np.argsort(encoding.order))
            chunk = np.ascontiguousarray(whole.astype(self._kind, copy=False)).reshape(shape)
            self._cache.put((self, label), chunk)
        place = tuple(slice(a, a + n) for a, n in zip(region.offset, region.shape, strict=True))
        return chunk[place]

    def _strided(self, source: Source, shape: tuple[int, ...], encoding: Encoding) -> Strided:
        strides = [0] * len(shape)
        step = 1
        for dim in reversed(encoding.order):
            strides[dim] = step
            step *= shape[dim]
        return Strided(Stored(source, self.dtype), shape, tuple(strides))


_Slices = tuple[slice, ...]


def _box(place: _Slices) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(s.start for s in place), tuple(s.stop - s.start for s in place)


def _overlaps(
    region: Region, chunk: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], _Slices, _Slices]]:
    """Chunks that a box overlaps: index, place within the chunk, place within the box."""
    if not prod(region.shape):
        return
    along = [
        range(begin // size, -(-(begin + extent) // size))
        for begin, extent, size in zip(region.offset, region.shape, chunk, strict=True)
    ]
    for index in product(*along):
        source, target = [], []
        for number, begin, extent, size in zip(
            index, region.offset, region.shape, chunk, strict=True
        ):
            low = max(begin, number * size)
            high = min(begin + extent, (number + 1) * size)
            source.append(slice(low - number * size, high - number * size))
            target.append(slice(low - begin, high - begin))
        yield index, tuple(source), tuple(target)
