import pytest
from torch._weights_only_unpickler import _get_allowed_globals

from reprolab.formats.pickles import Maker, Record
from reprolab.formats.torch_objects import ALLOWED, Dtype, StorageKind
from reprolab.vocabulary import ITEMSIZE


def test_all_that_torch_itself_holds_harmless_is_known():
    known = {f"{module}.{name}" for module, name in ALLOWED}
    assert set(_get_allowed_globals()) <= known


def test_no_name_stands_for_anything_that_acts():
    for key, value in ALLOWED.items():
        assert isinstance(value, (Maker, Record, Dtype, StorageKind, str)), key
        if isinstance(value, Maker):
            module = value.make.__module__
            assert module.startswith("reprolab.formats"), key


def test_every_dtype_with_a_fingerprint_is_known():
    assert {value.name for value in ALLOWED.values() if isinstance(value, Dtype)} >= set(ITEMSIZE)


@pytest.mark.parametrize("module", ["builtins", "os", "posix", "subprocess", "sys", "importlib"])
def test_nothing_of_the_machine_is_known(module):
    names = {name for at, name in ALLOWED if at == module}
    assert names <= {
        "set", "frozenset", "bytearray", "bytes", "complex", "slice",
        "dict", "list", "int", "float", "str", "bool", "tuple",
    }  # fmt: skip
