"""What the names in a torch pickle stand for: tensors over storages, and plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reprolab.formats.dtypes import TORCH_STORAGES
from reprolab.formats.pickles import Maker, Record, checked_key, stand_in
from reprolab.vocabulary import ITEMSIZE


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype of torch."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageKind:
    """A class of storages; None where only the tensor knows its dtype."""

    dtype: str | None


@dataclass(frozen=True, slots=True, eq=False)
class StorageRef:
    """A storage of the file, by its key."""

    dtype: str | None
    key: str
    elements: int


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor as a view of a storage."""

    dtype: str
    storage: StorageRef
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class NotDense:
    """A tensor that is not simply elements in memory."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRef:
    """A NumPy array that the pickle itself holds."""

    array: np.ndarray


def storage(pid: Any) -> StorageRef:
    """A persistent id of torch: ``("storage", kind, key, location, elements)``."""
    tag, kind, key, _, elements = pid
    if tag != "storage" or not isinstance(kind, StorageKind) or not isinstance(key, str):
        raise ValueError(f"a persistent id of kind {tag!r}")
    return StorageRef(kind.dtype, key, _count(elements))


def _count(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"expected a number of elements; got {number!r}")
    return number


def _counts(numbers: Any) -> tuple[int, ...]:
    return tuple(_count(number) for number in numbers)


def _tensor(dtype: str | None, held: StorageRef, offset: int, shape: Any, strides: Any) -> Any:
    if not isinstance(held, StorageRef):
        raise TypeError("a tensor without a storage")
    if dtype not in ITEMSIZE:
        return NotDense(f"its dtype is {dtype}, which has no fingerprint")
    return TensorRef(dtype, held, _counts(shape), _counts(strides), _count(offset))


def _bits(tensor: Any, metadata: Any) -> Any:
    lazy = [bit for bit in ("conj", "neg") if isinstance(metadata, dict) and metadata.get(bit)]
    return NotDense(f"it is saved with its {lazy[0]} bit set") if lazy else tensor


def _rebuild_v2(
    held: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    requires_grad: Any = None,
    hooks: Any = None,
    metadata: Any = None,
) -> Any:
    return _bits(_tensor(held.dtype, held, offset, shape, strides), metadata)


def _rebuild_v3(
    held: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    return _bits(_tensor(dtype.name, held, offset, shape, strides), metadata)


def _rebuild_from_type(maker: Any, kind: Any, args: Any, state: Any) -> Any:
    if not isinstance(maker, Maker):
        raise TypeError("a tensor without a function that rebuilds it")
    slots = state[1] if isinstance(state, tuple) and len(state) == 2 else state
    local = slots.get("_local_tensor") if isinstance(slots, dict) else None
    if isinstance(local, TensorRef) and len(args) > 2 and local.shape == tuple(args[2]):
        # A distributed tensor whose part on this rank is the whole of it.
        return local
    return maker.make(*args)


def _not_dense(reason: str) -> Maker:
    return Maker(lambda *args: NotDense(reason))


def _numpy_dtype(code: Any, *rest: Any) -> Record:
    return Record("numpy.dtype", (code,))


def _numpy_scalar(dtype: Any, raw: Any = b"") -> Any:
    return _from_raw(dtype, raw, ()).item()


def _numpy_array(kind: Any, shape: Any, code: Any) -> Record:
    return Record("numpy.ndarray")


def _from_raw(dtype: Any, raw: Any, shape: tuple[int, ...]) -> np.ndarray:
    code = dtype.args[0] if isinstance(dtype, Record) else None
    if (
        not isinstance(code, str)
        or not isinstance(raw, bytes)
        or code.lstrip("<>|")[:1] not in "biuf"
    ):
        raise TypeError(f"a NumPy dtype {code!r}")
    kind = np.dtype(code)
    if isinstance(dtype.state, tuple) and dtype.state[1] == ">":
        kind = kind.newbyteorder(">")
    return np.frombuffer(raw, kind).reshape(shape)


def resolved(value: Any) -> Any:
    """A NumPy array's stand-in as the array it holds; anything else as it is."""
    if isinstance(value, Record) and value.kind == "numpy.ndarray":
        _, shape, dtype, fortran, raw = value.state
        shape = _counts(shape)
        if isinstance(dtype, Record) and not str(dtype.args[0]).lstrip("<>|").startswith("O"):
            flat = shape[::-1] if fortran else shape
            array = _from_raw(dtype, raw, flat)
            return ArrayRef(array.T if fortran else array)
        return NotDense("it is a NumPy array of Python objects")
    return value


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r}")
    return _word(text).encode("latin-1")


def _word(value: Any) -> str:
    # Never the text of a container: shared references can make it exponentially long.
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"expected a word or number; got {type(value).__name__}")
    return str(value)


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    if isinstance(pairs, dict):
        return pairs
    return {checked_key(key): value for key, value in pairs}


def _set(values: Any = ()) -> set[Any]:
    return {checked_key(value) for value in values}


_LOCAL_PART = (
    "it is one rank's part of a distributed tensor; save with torch.distributed.checkpoint instead"
)

ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): Maker(_dict),
    ("collections", "defaultdict"): Maker(lambda *args: {}),
    ("collections", "Counter"): Maker(_dict),
    ("_codecs", "encode"): Maker(_encode),
    ("torch", "Size"): Maker(lambda numbers=(): tuple(numbers)),
    ("torch", "device"): Maker(lambda *args: ":".join(map(_word, args))),
    ("torch", "Tensor"): stand_in("torch", "Tensor"),
    ("torch.serialization", "_get_layout"): Maker(_word),
    ("torch.storage", "UntypedStorage"): StorageKind(None),
    ("torch.storage", "TypedStorage"): StorageKind(None),
    ("torch.nn.parameter", "Parameter"): stand_in("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"): stand_in("torch.nn.parameter", "Buffer"),
    ("torch._utils", "_rebuild_tensor"): Maker(_rebuild_v2),
    ("torch._utils", "_rebuild_tensor_v2"): Maker(_rebuild_v2),
    ("torch._utils", "_rebuild_tensor_v3"): Maker(_rebuild_v3),
    ("torch._utils", "_rebuild_parameter"): Maker(lambda tensor, *rest: tensor),
    ("torch._utils", "_rebuild_parameter_with_state"): Maker(lambda tensor, *rest: tensor),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): Maker(lambda tensor, *rest: tensor),
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): Maker(lambda array, *rest: array),
    ("torch._utils", "_rebuild_xla_tensor"): Maker(lambda array, *rest: array),
    ("torch._tensor", "_rebuild_from_type_v2"): Maker(_rebuild_from_type),
    ("torch._utils", "_rebuild_sparse_tensor"): _not_dense("it is sparse"),
    ("torch._utils", "_rebuild_nested_tensor"): _not_dense("it is a nested tensor"),
    ("torch._utils", "_rebuild_qtensor"): _not_dense("it is quantized"),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _not_dense("it has no data (meta device)"),
    ("torch._utils", "_rebuild_wrapper_subclass"): _not_dense(_LOCAL_PART),
    ("numpy", "dtype"): Maker(_numpy_dtype),
    ("numpy", "ndarray"): stand_in("numpy", "ndarray"),
}

for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    ALLOWED[_module, "scalar"] = Maker(_numpy_scalar)
    ALLOWED[_module, "_reconstruct"] = Maker(_numpy_array)
for _module in ("builtins", "__builtin__"):
    ALLOWED[_module, "set"] = Maker(_set)
    ALLOWED[_module, "frozenset"] = Maker(_set)
    ALLOWED[_module, "bytearray"] = Maker(lambda *args: args[0] if args else b"")
    ALLOWED[_module, "bytes"] = Maker(lambda *args: args[0] if args else b"")
    ALLOWED[_module, "complex"] = Maker(
        lambda real, imaginary: f"{float(real)}{float(imaginary):+}j"
    )
    ALLOWED[_module, "slice"] = Maker(lambda *args: list(args))
    for _name in ("dict", "list", "int", "float", "str", "bool", "tuple"):
        ALLOWED[_module, _name] = Record(f"builtins.{_name}")
for _module in ("torch", "torch.cuda"):
    for _name, _dtype in TORCH_STORAGES.items():
        ALLOWED[_module, _name] = StorageKind(_dtype)
    for _name in ("ComplexFloat", "ComplexDouble"):
        ALLOWED[_module, f"{_name}Storage"] = StorageKind(_name)
for _name in ("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4"):
    ALLOWED["torch", f"{_name}Storage"] = StorageKind(_name)
for _name in (
    *ITEMSIZE, *(f"{_sign}int{_bits}" for _sign in ("", "u") for _bits in range(1, 8)),
    "complex32", "complex64", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn_x2", "qint8", "quint8", "qint32", "quint4x2", "quint2x4",
    "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
):  # fmt: skip
    ALLOWED["torch", _name] = Dtype(_name)
for _name in (
    "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
    "per_channel_affine_float_qparams", "strided", "sparse_coo", "contiguous_format",
):  # fmt: skip
    ALLOWED["torch", _name] = f"torch.{_name}"
for _module in ("torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse"):
    for _name in TORCH_STORAGES:
        _class = _name.replace("Storage", "Tensor")
        ALLOWED[_module, _class] = f"{_module}.{_class}"
for _module, _name in (
    ("argparse", "Namespace"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib", "WindowsPath"),
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
    ("torch.distributed.tensor", "DTensor"),
    ("torch.distributed.tensor._dtensor_spec", "DTensorSpec"),
    ("torch.distributed.tensor._dtensor_spec", "TensorMeta"),
    ("torch.distributed.tensor.placement_types", "Shard"),
    ("torch.distributed.tensor.placement_types", "_StridedShard"),
    ("torch.distributed.tensor.placement_types", "Replicate"),
    ("torch.distributed.tensor.placement_types", "Partial"),
    ("torch.distributed.tensor._dtensor_spec", "ShardOrderEntry"),
    ("torch.distributed.device_mesh", "DeviceMesh"),
    ("torch.distributed._mesh_layout", "_MeshLayout"),
    ("torch.distributed._mesh_layout", "_FlatLayout"),
):
    ALLOWED[_module, _name] = stand_in(_module, _name)
