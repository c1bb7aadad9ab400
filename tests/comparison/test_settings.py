"""Settings that differ, and which of them enter no computation."""

import pytest

from reprolab.comparison.settings import INCIDENTAL, configuration, environment


class Stub:
    def __init__(self, config, environments=None, code=None, ranks=()):
        self.config = config
        self.ranks = list(ranks)
        self.attempts = [
            type(
                "Attempt",
                (),
                {
                    "index": index,
                    "environments": held,
                    "code": code or {},
                    "mesh": {"dp": len(held)},
                    "world_size": len(held),
                },
            )
            for index, held in enumerate(environments or [])
        ]


def test_only_keys_that_differ_are_listed_nested_ones_by_their_path():
    a = Stub({"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 1, "only_a": None})
    b = Stub({"optim": {"lr": 0.1, "betas": [0.9, 0.95]}, "seed": 1, "only_b": float("nan")})
    assert configuration(a, b).rows() == [
        ("optim.betas.1", "0.99", "0.95"),
        ("only_a", "null", None),
        ("only_b", None, "NaN"),
    ]


def test_a_value_that_ranks_do_not_share_names_them():
    a = Stub({}, [{0: {"t": 1}, 1: {"t": 1}, 2: {"t": 1}}])
    b = Stub({}, [{0: {"t": 1}, 1: {"t": 4}, 2: {"t": 1}}])
    assert environment(a, b).rows() == [("t", "1", "ranks 0, 2: 1; rank 1: 4", False)]


def test_attempts_are_told_apart():
    a = Stub({}, [{0: {"t": 1}}])
    b = Stub({}, [{0: {"t": 1}}, {0: {"t": 2}}])
    assert environment(a, b).rows() == [
        ("t", "1", "attempt 0 rank 0: 1; attempt 1 rank 0: 2", False)
    ]


def test_more_ranks_alone_change_the_mesh_only():
    a, b = Stub({}, [{0: {"t": 1}}]), Stub({}, [{0: {"t": 1}, 1: {"t": 1}}])
    assert environment(a, b)["key"].to_list() == ["mesh.dp", "world_size"]


def test_what_tells_processes_apart_comes_last_and_is_marked():
    a = Stub({}, [{0: {"process": {"pid": 1}, "threads": {"torch": 1}}}])
    b = Stub({}, [{0: {"process": {"pid": 2}, "threads": {"torch": 2}}}])
    found = environment(a, b)
    assert found["key"].to_list() == ["threads.torch", "process.pid"]
    assert found["incidental"].to_list() == [False, True]


@pytest.mark.parametrize(
    "key",
    ["process.pid", "process.host", "process.arguments.3", "process.executable", "variables.RANK",
     "distributed.rank", "code.modules.train.path", "variables.MASTER_PORT"],
)  # fmt: skip
def test_incidental(key):
    assert INCIDENTAL.search(key)


@pytest.mark.parametrize(
    "key",
    ["versions.torch", "threads.torch", "determinism.matmul_allow_tf32", "hardware.processor",
     "code.git.commit", "code.modules.train.sha256", "variables.OMP_NUM_THREADS",
     "distributed.backend", "distributed.world_size", "mesh.dp", "hardware.cuda:0.name"],
)  # fmt: skip
def test_not_incidental(key):
    assert not INCIDENTAL.search(key)
