"""An open checkpoint of any format, read tensor by tensor and region by region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from types import TracebackType
from typing import Any

import numpy as np

from reprolab.errors import DamagedData, ReprolabError
from reprolab.formats.dtypes import numpy_dtype
from reprolab.formats.elements import Strided
from reprolab.formats.memory import reserve
from reprolab.formats.tensors import StoredTensor, boxes
from reprolab.vocabulary import BLOCK_BYTES, ITEMSIZE, Layout, Region, TensorSpec


class CheckpointFile:
    """A checkpoint that some tool wrote, open for reading. A context manager.

    Opening reads headers only; :meth:`read` and :meth:`block` read the bytes they need and nothing
    else, and may be called from several threads at once. Files are expected to stay as they are
    while they are open, as they do where a newer checkpoint is written under a new name.

    Attributes
    ----------
    path : str
        The path or URL it was opened from; enough to open it again in another process.
    format : str
        ``"safetensors"``, ``"torch"``, ``"dcp"``, ``"deepspeed"``, ``"orbax"``, ``"zarr"``,
        ``"npz"`` or ``"reprolab"``.
    layout : Layout
        Its tensors in the file's order.
    tensors : dict of str to StoredTensor
        What reads each of them.
    unsupported : dict of str to str
        Tensors that cannot be read, and why.
    metadata : dict
        What the file says besides tensors, under dotted names.
    """

    def __init__(
        self,
        path: str,
        format: str,  # noqa: A002  (the word a reader looks for)
        tensors: Mapping[str, StoredTensor],
        *,
        unsupported: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.format = format
        self.unsupported = dict(unsupported or {})
        self.metadata = dict(metadata or {})
        self.tensors = dict(tensors)
        self._close = close
        for name, tensor in self.tensors.items():
            if prod(tensor.shape) * ITEMSIZE[tensor.dtype] >= 1 << 63:
                raise DamagedData(
                    f"a shape of {tensor.shape} is more than any file can hold",
                    path=path,
                    tensor=name,
                )
        self.layout = Layout(
            tuple(
                TensorSpec(name, tensor.dtype, tuple(tensor.shape))
                for name, tensor in self.tensors.items()
            )
        )

    def __repr__(self) -> str:
        return f"<CheckpointFile {self.format} {self.path!r}: {len(self.tensors)} tensors>"

    def __enter__(self) -> CheckpointFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files; arrays that were read stay valid."""
        if self._close is not None:
            self._close()
            self._close = None

    def read(self, name: str, region: Region | None = None) -> np.ndarray:
        """Elements of a tensor, or of a box of it.

        Parameters
        ----------
        name : str
            One of ``layout.names``.
        region : Region, optional
            The box; the whole tensor by default.

        Returns
        -------
        ndarray
            Contiguous, of the tensor's dtype (``ml_dtypes`` for bfloat16 and float8).

        Raises
        ------
        KeyError
            Where there is no such tensor.
        ValueError
            Where the region is not inside the tensor.
        DamagedData
            Where the bytes are not what the header says.
        TooLarge
            Where this machine has not the memory.
        """
        tensor = self._tensor(name)
        if region is None:
            region = Region((0,) * len(tensor.shape), tensor.shape)
        inside = len(region.offset) == len(tensor.shape) and all(
            begin + length <= extent
            for begin, length, extent in zip(region.offset, region.shape, tensor.shape, strict=True)
        )
        if not inside:
            raise ValueError(
                f"a region of tensor {name!r} must lie inside {tensor.shape}; got {region}"
            )
        return self._guarded(name, tensor, region)

    def block(self, name: str, block: int, block_bytes: int = BLOCK_BYTES) -> np.ndarray:
        """Elements of one block of comparison, flat, in row-major order.

        Parameters
        ----------
        name : str
            One of ``layout.names``.
        block : int
            Which block of the tensor.
        block_bytes : int
            Size of a block.

        Returns
        -------
        ndarray [elements]
        """
        tensor = self._tensor(name)
        per_block = block_bytes // ITEMSIZE[tensor.dtype]
        size = prod(tensor.shape)
        if not 0 <= block < -(-size // per_block):
            raise IndexError(
                f"tensor {name!r} has {-(-size // per_block)} blocks of {block_bytes} bytes; "
                f"got {block}"
            )
        return self.elements(name, block * per_block, min(size, (block + 1) * per_block))

    def elements(self, name: str, start: int, stop: int) -> np.ndarray:
        """Elements ``[start, stop)`` of a tensor in row-major order, flat."""
        tensor = self._tensor(name)
        if not 0 <= start <= stop <= prod(tensor.shape):
            raise ValueError(
                f"elements must lie in 0 to {prod(tensor.shape)} of tensor {name!r}; "
                f"got {start} to {stop}"
            )
        kind = numpy_dtype(tensor.dtype)
        reserve((stop - start) * kind.itemsize, f"{stop - start} elements of tensor {name!r}")
        parts = [
            self._guarded(name, tensor, box).reshape(-1) for box in boxes(tensor.shape, start, stop)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, kind)

    @contextmanager
    def lent(self, name: str, start: int, stop: int) -> Iterator[np.ndarray]:
        """Elements ``[start, stop)`` of a tensor, flat, to look at and let go of.

        Where they lie in one piece of a local file they are not copied, and what was read of the
        file leaves this process's memory afterwards.
        """
        tensor = self._tensor(name)
        if not isinstance(tensor, Strided):
            yield self.elements(name, start, stop)
            return
        with tensor.lent(start, stop) as held:
            yield self.elements(name, start, stop) if held is None else held

    def _tensor(self, name: str) -> StoredTensor:
        if name in self.tensors:
            return self.tensors[name]
        if name in self.unsupported:
            raise KeyError(f"tensor {name!r} cannot be read: {self.unsupported[name]}")
        raise KeyError(f"{self.path} has no tensor {name!r}; layout.names lists what it has")

    def _guarded(self, name: str, tensor: StoredTensor, region: Region) -> np.ndarray:
        try:
            return tensor.read(region)
        except ReprolabError as error:
            raise error.at(tensor=name, path=self.path) from error.__cause__
