"""Who writes what of a checkpoint: every rank works out the same plan from the same offers.

Ranks that hold equal bytes of a tensor share the work of writing it once, chunk by chunk. Where
ranks disagree, the bytes most ranks hold are the shared copy, and every other rank writes its own
beside it. A private stream has no shared copy.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprolab.store import paths
from reprolab.store.grid import Grid
from reprolab.vocabulary import ITEMSIZE, TensorSpec


@dataclass(frozen=True, slots=True)
class Offer:
    """One tensor as one rank holds it."""

    stream: str
    spec: TensorSpec
    digest: str
    """Sixteen hexadecimal digits."""

    def record(self) -> list[Any]:
        """In JSON's types."""
        return [self.stream, self.spec.name, self.spec.dtype, list(self.spec.shape), self.digest]

    @classmethod
    def of(cls, record: Sequence[Any]) -> Offer:
        """From JSON's types."""
        stream, name, dtype, shape, digest = record
        return cls(stream, TensorSpec(name, dtype, tuple(shape)), digest)


@dataclass(frozen=True, slots=True)
class Stored:
    """One array of a checkpoint."""

    stream: str
    spec: TensorSpec
    digest: str
    rank: int | None
    """The rank whose own copy it is; nothing for the shared copy."""
    holders: tuple[int, ...]
    """Ranks that held exactly these bytes."""
    grid: Grid
    writers: tuple[int, ...]
    """The rank that writes each chunk."""

    @property
    def path(self) -> str:
        """Place within the checkpoint's group."""
        return paths.stored(self.stream, self.spec.name, self.rank)

    @property
    def lead(self) -> int:
        """The rank that writes the metadata."""
        return self.writers[0] if self.writers else self.holders[0]


def plan(offers: Sequence[Sequence[Offer]], private: Container[str]) -> list[Stored]:
    """The arrays of a checkpoint.

    Parameters
    ----------
    offers : sequence of sequence of Offer
        What each rank holds, in its own order.
    private : container of str
        Streams whose tensors belong to their rank alone.

    Raises
    ------
    ValueError
        If a rank offers a tensor twice or two paths would meet.
    """
    load = [0] * len(offers)
    arrays = []
    for held in _by_name(offers).values():
        for offer, rank, holders in _copies(held, private):
            grid = Grid.fit(offer.spec.shape, ITEMSIZE[offer.spec.dtype])
            writers = _share(grid, holders, load)
            arrays.append(
                Stored(offer.stream, offer.spec, offer.digest, rank, holders, grid, writers)
            )
    taken: dict[str, Stored] = {}
    for array in arrays:
        other = taken.setdefault(array.path.lower(), array)
        if other is not array:
            raise ValueError(
                f"tensors {other.spec.name!r} and {array.spec.name!r} of stream {array.stream!r} "
                "would be stored in the same place; rename one"
            )
    return arrays


def _by_name(offers: Sequence[Sequence[Offer]]) -> Mapping[tuple[str, str], dict[int, Offer]]:
    found: dict[tuple[str, str], dict[int, Offer]] = {}
    for rank, held in enumerate(offers):
        for offer in held:
            ranks = found.setdefault((offer.stream, offer.spec.name), {})
            if rank in ranks:
                raise ValueError(f"stream {offer.stream!r} has {offer.spec.name!r} twice")
            ranks[rank] = offer
    return found


def _copies(
    held: Mapping[int, Offer], private: Container[str]
) -> Iterator[tuple[Offer, int | None, tuple[int, ...]]]:
    """Each copy to store: an offer, its rank unless it is shared, and the ranks that hold it."""
    alike: dict[Offer, list[int]] = {}
    for rank, offer in held.items():
        alike.setdefault(offer, []).append(rank)
    shared = max(alike, key=lambda offer: (len(alike[offer]), -alike[offer][0]))
    for offer, ranks in alike.items():
        if offer is shared and offer.stream not in private:
            yield offer, None, tuple(ranks)
        else:
            yield from ((offer, rank, (rank,)) for rank in ranks)


def _share(grid: Grid, holders: Sequence[int], load: list[int]) -> tuple[int, ...]:
    """Give each chunk to the holder with the least to write so far."""
    writers = []
    for _ in range(grid.size):
        rank = min(holders, key=lambda holder: (load[holder], holder))
        load[rank] += grid.chunk_size
        writers.append(rank)
    return tuple(writers)
