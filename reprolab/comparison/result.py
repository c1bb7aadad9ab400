"""The result of a comparison."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl

from reprolab.comparison import display, frames
from reprolab.comparison.bits import plain
from reprolab.comparison.distances import KINDS, apart, narrow_floats
from reprolab.comparison.first import FirstDifference, blocks
from reprolab.comparison.frames import Heat, Measured
from reprolab.comparison.matching import LayoutDifference
from reprolab.comparison.outcome import Outcome
from reprolab.comparison.pairing import Pairing
from reprolab.errors import NothingToCompare
from reprolab.kernels import estimate
from reprolab.store import Run
from reprolab.vocabulary import ITEMSIZE, MOMENTS

FORMAT = 1
"""Version of what :meth:`Comparison.to_dict` returns."""


class Comparison:
    """What :func:`reprolab.compare` found.

    The first difference and the verdict are there at once; distances are read and measured when
    they are first asked for.
    """

    def __init__(
        self, a: Run, b: Run, pairing: Pairing, outcome: Outcome, losses: pl.DataFrame, verdict: str
    ) -> None:
        self.a = a
        """The run a."""
        self.b = b
        """The run b; where the ranks of one run were compared, the same as a."""
        self.verdict = verdict
        """What was found, in one paragraph."""
        self.losses = losses
        """Columns step, side ("a" or "b"), rank, loss."""
        self._pairing = pairing
        self._outcome = outcome

    @property
    def same(self) -> bool:
        """Whether nothing that was compared differs."""
        return self.first is None and not self.layout_differences

    @property
    def first(self) -> FirstDifference | None:
        """Where the sides part; None where they do not."""
        return self._outcome.first

    @property
    def streams(self) -> list[str]:
        """Streams compared, in causal order."""
        return list(self._pairing.streams)

    @property
    def ranks(self) -> list[int]:
        """Ranks compared; rows and heat maps speak of them by these numbers."""
        return sorted({track.rank for track in self._pairing.tracks})

    @property
    def steps(self) -> np.ndarray:
        """Steps compared, int64, ascending."""
        return self._outcome.extent.steps

    @property
    def reference(self) -> int | None:
        """Where ranks of one run were compared, the rank that the others were compared with."""
        return self._outcome.reference

    @property
    def layout_differences(self) -> list[LayoutDifference]:
        """Tensors that only one side holds, or with another shape or dtype."""
        return list(self._outcome.layout_differences)

    @property
    def configuration(self) -> pl.DataFrame:
        """Keys of the configuration that differ: key, a, b (as JSON)."""
        return self._outcome.configuration

    @property
    def environment(self) -> pl.DataFrame:
        """Keys of the environment that differ: key, a, b, incidental (host, process, paths)."""
        return self._outcome.environment

    @property
    def metrics(self) -> pl.DataFrame:
        """Recorded metrics that differ: step, rank, name, a, b."""
        return self._outcome.metrics

    @property
    def notes(self) -> list[str]:
        """What was not compared, how runs ended early, and what was damaged and skipped."""
        skipped = [f"damaged and skipped: {line}" for line in self._pairing.context.damage]
        return [*self._pairing.notes, *self._outcome.endings, *skipped]

    @property
    def rows(self) -> pl.DataFrame:
        """One row for every tensor that differs, by step, stream, rank and position.

        Columns step, stream, rank, tensor, position (in the stream), kind (how it differs),
        distance (L2), error (its standard error), relative (to the larger norm), blocks,
        differing (blocks; null where the sides cut the tensor differently).
        """
        return self._measured.rows

    @property
    def growth(self) -> pl.DataFrame:
        """One row for every stream and step: how far the sides are apart, 0 where identical.

        Columns step, stream, ranks and tensors (that differ), distance, error, relative; the
        distance is the root mean square over the ranks. Relative is infinite where the numbers
        of NaN or infinite elements differ.
        """
        return self._measured.growth

    def heat(self, stream: str | None = None, rank: int | None = None) -> Heat:
        """Relative distances of one stream, tensor by step.

        Parameters
        ----------
        stream : str, optional
            The stream; by default that of the first difference, else ``params``.
        rank : int, optional
            One rank; by default the largest distance over all ranks.

        Returns
        -------
        Heat
            ``steps``, ``tensors``, ``values`` (log10; -inf equal, +inf not finite, NaN missing).
        """
        if stream is None:
            stream = self.first.stream if self.first else "params"
            stream = stream if stream in self.streams else self.streams[0]
        if stream not in self.streams:
            raise NothingToCompare(
                f"this stream was not compared; these were: {', '.join(self.streams)}",
                stream=stream,
            )
        return frames.heat(self._pairing.tracks, self.rows, stream, rank)

    def blocks(self, step: int, stream: str, tensor: str, rank: int) -> pl.DataFrame:
        """Every block of one tensor on both sides.

        Returns
        -------
        polars.DataFrame
            Columns block, start (flat index of its first element), elements, differs, kind,
            distance, error, relative, then the moments of both sides (``a_min``, ``b_min``, ...).

        Raises
        ------
        NothingToCompare
            Where this was not compared, or the sides cut the tensor into other blocks.
        """
        place = {"step": step, "rank": rank, "stream": stream, "tensor": tensor}
        for track in self._pairing.tracks:
            at = np.flatnonzero(track.steps == step)
            if track.stream != stream or track.rank != rank or not len(at):
                continue
            segment = track.segment(int(at[0]))
            names = [spec.name for spec in segment.match.tensors]
            if tensor not in names:
                break
            index = names.index(tensor)
            pair = blocks(track, segment, step, index)
            if pair is None:
                raise NothingToCompare(
                    "the sides cut this tensor into blocks of different sizes, or its records are "
                    "damaged",
                    **place,
                )
            spec = segment.match.tensors[index]
            each = segment.layouts[0].block_bytes // ITEMSIZE[spec.dtype]
            start = np.arange(len(pair[0]), dtype=np.int64) * each
            found = apart(*pair, estimate(*pair, narrow=narrow_floats([spec])[0]))
            kinds = [
                KINDS[kind] if differs else None
                for kind, differs in zip(found.kind, found.differs, strict=True)
            ]
            moments = {
                f"{side}_{name}": one.moments[:, column]
                for column, name in enumerate(MOMENTS)
                for side, one in zip("ab", pair, strict=True)
            }
            return pl.DataFrame(
                {
                    "block": np.arange(len(start)),
                    "start": start,
                    "elements": np.minimum(each, spec.size - start),
                    "differs": found.differs,
                    "kind": pl.Series(kinds, dtype=pl.Enum(KINDS)),
                    "distance": found.distance,
                    "error": found.error,
                    "relative": found.relative,
                    **moments,
                }
            )
        raise NothingToCompare("this was not compared", **place)

    def to_dict(self) -> dict[str, object]:
        """Everything but the frames of distances, as plain values for JSON.

        Returns
        -------
        dict
            ``format`` (1), ``same``, ``verdict``, ``a`` and ``b`` (``run``, ``path``),
            ``reference`` (rank, or None), ``compared`` (``steps``, ``first_step``, ``last_step``,
            ``ranks``, ``streams``, ``tensors``, ``bytes``), ``first`` (see
            :meth:`FirstDifference.to_dict`) or None, ``layout_differences`` (``stream``,
            ``tensor``, ``text``), ``configuration`` and ``environment`` (``key``, ``a``, ``b``),
            ``metrics`` (``step``, ``rank``, ``name``, ``a``, ``b``: the first of each name),
            ``notes``. NaN and infinities are text. Keys are only ever added.
        """
        first_of_each = self.metrics.unique("name", keep="first", maintain_order=True)
        return {
            "format": FORMAT,
            "same": self.same,
            "verdict": self.verdict,
            "a": {"run": self.a.name, "path": str(self.a.path)},
            "b": {"run": self.b.name, "path": str(self.b.path)},
            "reference": self.reference,
            "compared": self._outcome.extent.to_dict(),
            "first": self.first.to_dict() if self.first else None,
            "layout_differences": [
                {"stream": entry.stream, "tensor": entry.tensor, "text": str(entry)}
                for entry in self.layout_differences
            ],
            "configuration": self.configuration.to_dicts(),
            "environment": self.environment.to_dicts(),
            "metrics": [
                {key: plain(value) for key, value in row.items()}
                for row in first_of_each.to_dicts()
            ],
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        return f"Comparison({self.a.name!r}, {self.b.name!r}): {self.verdict}"

    def _repr_mimebundle_(self, **options: object) -> object:
        return display.bundle(self, **options)

    @cached_property
    def _measured(self) -> Measured:
        return frames.measure(self._pairing.tracks)
