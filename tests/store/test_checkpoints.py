import ml_dtypes
import numpy as np
import pytest

from reprolab.errors import CheckpointError, DamagedData, FormatTooNew, StepNotCommitted
from reprolab.policy import Policy
from reprolab.store import open_run, paths, records
from reprolab.vocabulary import ITEMSIZE

BLOCK = 1 << 16


@pytest.fixture
def saved(tmp_path, make):
    """A run with one checkpoint, and its tensors."""
    specs = [
        make.spec("big", (3000, 1000)),
        make.spec("half", (3001,), "bfloat16"),
        make.spec("scalar", (), "float64"),
        make.spec("empty", (0, 4)),
    ]
    params = [(spec, make.values(spec)) for spec in specs]
    writer = make.begin(tmp_path, policy=Policy(block_bytes=BLOCK))
    writer.checkpoint(4, {"params": params, "rng": [(make.spec("r", (3,)), np.zeros(3, "f4"))]})
    writer.close()
    return open_run(tmp_path / "run"), {spec.name: (spec, values) for spec, values in params}


def chunk(run, name, key):
    return paths.checkpoint(run.path, 4) / "params" / name / key


def test_whole_tensors(saved):
    run, tensors = saved
    checkpoint = run.checkpoint(4)
    for name, (spec, values) in tensors.items():
        found = checkpoint.read("params", name)
        assert (found.dtype, found.shape) == (values.dtype, spec.shape)
        assert found.tobytes() == values.tobytes()
        lazy = checkpoint.tensor("params", name)
        assert lazy.shape == spec.shape
        assert np.asarray(lazy[...]).tobytes() == values.tobytes()


def test_a_tensor_is_read_into_given_memory(saved):
    run, tensors = saved
    spec, values = tensors["big"]
    out = np.empty(spec.shape, np.float32)
    found = run.checkpoint(4).read("params", "big", out=out)
    assert np.shares_memory(found, out)
    assert out.tobytes() == values.tobytes()
    with pytest.raises(ValueError, match="must be 12000000 bytes; got 4"):
        run.checkpoint(4).read("params", "big", out=np.empty(1, np.float32))
    with pytest.raises(ValueError, match="contiguous"):
        run.checkpoint(4).read("params", "big", out=np.empty((1000, 3000), np.float32).T)


def test_blocks_are_ranges_of_the_tensor(saved):
    run, tensors = saved
    checkpoint = run.checkpoint(4)
    for name, (spec, values) in tensors.items():
        per_block = BLOCK // ITEMSIZE[spec.dtype]
        flat = values.reshape(-1)
        for block in range(spec.blocks(BLOCK)):
            expected = flat[block * per_block : (block + 1) * per_block]
            assert checkpoint.block("params", name, block).tobytes() == expected.tobytes()


def test_a_block_reads_only_the_chunks_that_hold_it(saved):
    run, _ = saved
    checkpoint = run.checkpoint(4)
    array = checkpoint.tensor("params", "big")
    assert array.chunks == (1000, 1000)
    checkpoint.block("params", "big", 0)
    assert checkpoint.chunks_read == 1
    edge = 4_000_000 // BLOCK
    checkpoint.block("params", "big", edge)
    assert checkpoint.chunks_read == 3
    for key in ("c.0.0", "c.1.0"):
        chunk(run, "big", key).unlink()
    assert len(checkpoint.block("params", "big", 3000 * 4000 // BLOCK)) > 0


@pytest.mark.parametrize("block", [-1, 184, 1000])
def test_a_block_beyond_the_tensor_is_refused(saved, block):
    with pytest.raises(CheckpointError, match="184 blocks"):
        saved[0].checkpoint(4).block("params", "big", block)


def test_the_layout_is_the_one_of_the_fingerprints(saved):
    run, tensors = saved
    layout = run.checkpoint(4).layout("params")
    assert layout.tensors == tuple(spec for spec, _ in tensors.values())
    assert layout.block_bytes == BLOCK


def test_what_is_not_there_is_said(saved):
    run, _ = saved
    checkpoint = run.checkpoint(4)
    with pytest.raises(StepNotCommitted, match="committed steps: 4"):
        run.checkpoint(5)
    with pytest.raises(CheckpointError, match=r"streams \['params', 'rng'\]"):
        checkpoint.read("grads", "big")
    with pytest.raises(CheckpointError, match=r"tensor bog.*among the 4.*big, half"):
        checkpoint.read("params", "bog")
    with pytest.raises(CheckpointError, match=r"rank 3.*ranks \[0\] hold it"):
        checkpoint.read("params", "big", rank=3)


def test_the_only_ranks_own_copy_needs_no_rank(saved):
    checkpoint = saved[0].checkpoint(4)
    assert checkpoint.ranks_of("rng", "r") == [0]
    assert checkpoint.read("rng", "r").tolist() == [0, 0, 0]


def test_a_flipped_bit_in_a_chunk_is_found_by_every_way_of_reading(saved):
    run, _ = saved
    path = chunk(run, "big", "c.1.0")
    damaged = bytearray(path.read_bytes())
    damaged[77] ^= 16
    path.write_bytes(damaged)
    checkpoint = run.checkpoint(4)
    where = r"run run, step 4.* stream params, tensor big|c\.1\.0"
    with pytest.raises(DamagedData, match=where):
        checkpoint.read("params", "big")
    with pytest.raises(DamagedData, match=where):
        checkpoint.block("params", "big", 70)
    lazy = checkpoint.tensor("params", "big")
    with pytest.raises(ValueError, match="checksum"):
        lazy[1500]
    (problem,) = checkpoint.verify()
    assert problem.where["chunk"] == path
    assert problem.where["tensor"] == "big"
    assert checkpoint.block("params", "big", 0) is not None


@pytest.mark.parametrize("damage", ["missing", "short", "metadata", "no metadata"])
def test_files_that_changed_are_found_before_zarr_reads_zeros(saved, damage):
    run, _ = saved
    path = chunk(run, "big", "zarr.json" if "metadata" in damage else "c.2.0")
    if damage in ("missing", "no metadata"):
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.write_text(path.read_text().replace("1000", "1001"))
    checkpoint = run.checkpoint(4)
    for read in (checkpoint.tensor, checkpoint.read):
        with pytest.raises(DamagedData) as caught:
            read("params", "big")
        assert path in caught.value.where.values()
    assert len(checkpoint.verify()) == 1


def test_swapped_chunks_are_found(saved):
    run, _ = saved
    one, other = chunk(run, "big", "c.0.0"), chunk(run, "big", "c.1.0")
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    (problem,) = run.checkpoint(4).verify()
    assert "swapped" in problem.message


def test_a_flipped_bit_in_the_commit_is_found(saved):
    run, _ = saved
    path = paths.commit(run.path, 4)
    text = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, 8 * (len(text) - 1), 300).tolist():
        damaged = bytearray(text)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedData, match="run run, step 4"):
            run.checkpoint(4)


def test_a_step_without_commit_or_folder_does_not_exist(saved):
    run, _ = saved
    paths.checkpoint(run.path, 9).mkdir()
    assert run.checkpoints == [4]
    with pytest.raises(StepNotCommitted):
        run.checkpoint(9)
    paths.checkpoint(run.path, 4).rename(run.path / "elsewhere")
    assert run.checkpoints == []
    with pytest.raises(StepNotCommitted, match="none"):
        run.checkpoint(4)


def rewrite(run, **changes):
    path = paths.commit(run.path, 4)
    record = records.read_file(path)
    for key, value in changes.items():
        if key in record:
            record[key] = value
        else:
            record["arrays"][0][key] = value
    path.write_bytes(records.write_text(record))


def test_other_kinds_are_for_a_newer_version(saved):
    rewrite(saved[0], kind="delta")
    with pytest.raises(FormatTooNew, match="'delta'"):
        saved[0].checkpoint(4)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "../../../run.json"},
        {"path": "/etc"},
        {"dtype": "object"},
        {"shape": [-1]},
        {"chunk": [7]},
        {"arrays": [{}]},
        {"arrays": 3},
    ],
)
def test_a_record_that_checks_and_makes_no_sense_is_damage(saved, changes):
    rewrite(saved[0], **changes)
    with pytest.raises(DamagedData):
        saved[0].checkpoint(4)


def test_a_huge_shape_takes_no_memory(saved):
    rewrite(saved[0], shape=[10**15, 1000])
    checkpoint = saved[0].checkpoint(4)
    with pytest.raises(DamagedData, match="missing"):
        checkpoint.read("params", "big")
    assert len(checkpoint.verify()) == 100


def test_small_floats_keep_their_dtype(tmp_path, make):
    specs = [make.spec(dtype, (5,), dtype) for dtype in ("float8_e4m3fn", "float8_e5m2")]
    writer = make.begin(tmp_path)
    writer.checkpoint(0, {"params": [(spec, make.values(spec)) for spec in specs]})
    writer.close()
    checkpoint = open_run(tmp_path / "run").checkpoint(0)
    assert checkpoint.read("params", "float8_e5m2").dtype == ml_dtypes.float8_e5m2
    assert checkpoint.tensor("params", "float8_e4m3fn").dtype == ml_dtypes.float8_e4m3fn
