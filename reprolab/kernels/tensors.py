"""Tensors of NumPy and torch as dtype names, shapes and bytes.

torch is never imported here: a tensor of torch can only arrive where torch is loaded already.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from reprolab.errors import UnsupportedDtype
from reprolab.vocabulary import ITEMSIZE

DTYPES = tuple(ITEMSIZE)
"""Names of the dtypes, in the order of the codes the compiled kernels know them by."""

CODES = {name: code for code, name in enumerate(DTYPES)}
"""Code of each dtype name."""


def is_torch(tensor: Any) -> bool:
    """Whether `tensor` is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def dtype_name(tensor: Any) -> str:
    """Name of the dtype of a NumPy array or torch tensor, a key of ``vocabulary.ITEMSIZE``.

    Raises
    ------
    UnsupportedDtype
        Where the kernels know no such dtype.
    TypeError
        Where `tensor` is neither.
    """
    try:
        return _names[tensor.dtype]
    except (AttributeError, KeyError):
        pass
    if not (is_torch(tensor) or isinstance(tensor, np.ndarray | np.generic)):
        raise TypeError(f"expected a NumPy array or a torch tensor; got {type(tensor).__name__}")
    name = tensor.dtype.name if not is_torch(tensor) else str(tensor.dtype).removeprefix("torch.")
    if name not in ITEMSIZE:
        raise UnsupportedDtype(f"dtype must be one of {', '.join(DTYPES)}; got {name}")
    _names[tensor.dtype] = name
    return name


_names: dict[Any, str] = {}


def on_host(tensor: Any) -> bool:
    """Whether the bytes of `tensor` are in this process's memory."""
    return not is_torch(tensor) or tensor.device.type == "cpu"


def dense(tensor: Any) -> Any:
    """The same tensor, contiguous, little-endian and without lazy bits; copied only if it must be.

    Raises
    ------
    TypeError
        For anything that is not a dense tensor with data of its own.
    """
    if not is_torch(tensor):
        if tensor.dtype.byteorder == ">":
            tensor = tensor.astype(tensor.dtype.newbyteorder("<"))
        return np.asarray(tensor, order="C")
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        raise TypeError(
            "expected a dense tensor with data; "
            f"got layout {tensor.layout} on device {tensor.device}"
        )
    if not tensor.is_contiguous() or tensor.is_neg():
        tensor = tensor.detach().resolve_neg().contiguous()
    if not tensor.data_ptr() and tensor.numel():
        raise TypeError(
            f"a {type(tensor).__name__} has no memory of its own; pass its local tensor and region"
        )
    return tensor


def flat_bytes(tensor: Any) -> np.ndarray:
    """Bytes of a dense tensor on the host, uint8 [nbytes]; no copy."""
    if is_torch(tensor):
        return tensor.detach().reshape(-1).view(sys.modules["torch"].uint8).numpy()
    return tensor.reshape(-1).view(np.uint8)


def address(tensor: Any) -> int:
    """Where the first byte of a dense tensor on the host is."""
    if is_torch(tensor):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]
