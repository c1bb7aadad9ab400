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


def locate(tensor: Any) -> tuple[Any, int | None]:
    """The same tensor, contiguous, little-endian and without lazy bits, and where it lies.

    Parameters
    ----------
    tensor : ndarray or torch.Tensor
        It is copied only if it must be.

    Returns
    -------
    dense : ndarray or torch.Tensor
        To be kept for as long as the address is used.
    address : int or None
        Of its first byte; ``None`` where that is not in this process's memory.

    Raises
    ------
    TypeError
        For anything that is not a dense tensor with data of its own.
    """
    if not is_torch(tensor):
        if tensor.dtype.byteorder == ">":
            tensor = tensor.astype(tensor.dtype.newbyteorder("<"))
        dense = np.asarray(tensor, order="C")
        return dense, dense.__array_interface__["data"][0]
    device = tensor.device.type
    if tensor.layout is not sys.modules["torch"].strided or device == "meta":
        raise TypeError(
            f"expected a dense tensor with data; got layout {tensor.layout} on device {device}"
        )
    if not tensor.is_contiguous() or tensor.is_neg():
        tensor = tensor.detach().resolve_neg().contiguous()
    address = tensor.data_ptr()
    if not address and tensor.numel():
        raise TypeError(
            f"a {type(tensor).__name__} has no memory of its own; pass its local tensor and region"
        )
    return tensor, address if device == "cpu" else None


def flat_bytes(tensor: Any) -> np.ndarray:
    """Bytes of a dense tensor in this process's memory, uint8 [nbytes]; no copy."""
    if is_torch(tensor):
        return tensor.detach().reshape(-1).view(sys.modules["torch"].uint8).numpy()
    return tensor.reshape(-1).view(np.uint8)


def bytes_at(tensor: Any, places: np.ndarray) -> np.ndarray:
    """Some bytes of a dense tensor on any device, uint8 as `places`."""
    if not is_torch(tensor):
        return flat_bytes(tensor)[places]
    torch = sys.modules["torch"]
    data = tensor.detach().reshape(-1).view(torch.uint8)
    return data[torch.from_numpy(places).to(data.device)].cpu().numpy()
