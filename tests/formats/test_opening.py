"""Laws that hold for every format alike."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprolab.errors import CheckpointNotFound, DamagedData, ReprolabError
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.kernels import fingerprint_stream
from reprolab.vocabulary import Layout, Region, TensorSpec

SMALL = 256


def same(found, expected):
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and found.flags.c_contiguous
        and found.tobytes() == expected.tobytes()
    )


def test_every_tensor_is_read_bit_for_bit(kind, written, make):
    path, samples = written(kind)
    with open_checkpoint(path) as found:
        assert found.format == make.formats.get(kind, kind)
        assert set(found.layout.names) == set(samples)
        assert not found.unsupported
        for spec in found.layout.tensors:
            assert (spec.dtype, spec.shape) == (
                samples[spec.name].dtype.name,
                samples[spec.name].shape,
            )
            assert same(found.read(spec.name), samples[spec.name]), spec


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_region_is_that_of_the_whole(kind, written, data):
    path, samples = written(kind)
    with open_checkpoint(path) as found:
        name = data.draw(st.sampled_from(sorted(samples)))
        shape = samples[name].shape
        bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
        region = Region(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))
        place = tuple(slice(a, b) for a, b in bounds)
        assert same(
            found.read(name, region),
            np.ascontiguousarray(samples[name][place]).reshape(region.shape),
        )


def test_blocks_put_together_are_the_whole(kind, written):
    path, samples = written(kind)
    with open_checkpoint(path) as found:
        for spec in found.layout.tensors:
            blocks = [found.block(spec.name, b, SMALL) for b in range(spec.blocks(SMALL))]
            assert b"".join(block.tobytes() for block in blocks) == samples[spec.name].tobytes()
            assert all(block.nbytes == SMALL for block in blocks[:-1])
            with pytest.raises(IndexError, match="blocks"):
                found.block(spec.name, len(blocks), SMALL)


def test_fingerprints_do_not_depend_on_the_format(kind, written):
    path, samples = written(kind)
    layout, found = fingerprint_checkpoint(path, block_bytes=SMALL)
    specs = [TensorSpec(name, a.dtype.name, a.shape) for name, a in samples.items()]
    expected = fingerprint_stream(list(samples.values()), Layout(tuple(specs), SMALL))
    for index, name in enumerate(samples):
        mine = found.rows(layout.rows_of(layout.names.index(name)))
        theirs = expected.rows(Layout(tuple(specs), SMALL).rows_of(index))
        assert (mine.digest == theirs.digest).all()
        np.testing.assert_array_equal(mine.moments, theirs.moments)
        np.testing.assert_allclose(mine.sketch, theirs.sketch, rtol=1e-12, atol=0)
    assert layout.block_bytes == SMALL
    assert len(found) == layout.rows == sum(spec.blocks(SMALL) for spec in specs)


def test_arrays_outlive_the_checkpoint(kind, written):
    path, samples = written(kind)
    found = open_checkpoint(path)
    array = found.read("matrix.weight")
    found.close()
    found.close()
    assert same(array, samples["matrix.weight"])


def test_what_is_asked_wrongly_is_refused(kind, written):
    with open_checkpoint(written(kind)[0]) as found:
        with pytest.raises(KeyError, match=r"layout\.names"):
            found.read("no such tensor")
        with pytest.raises(ValueError, match="inside"):
            found.read("matrix.weight", Region((60, 0), (11, 33)))
        with pytest.raises(ValueError, match="inside"):
            found.read("matrix.weight", Region((0,), (1,)))
        with pytest.raises(ValueError, match="0 to 2310"):
            found.elements("matrix.weight", 5, 2311)


@pytest.mark.parametrize("kind", ["safetensors", "torch", "npz", "compressed npz"], indirect=False)
def test_a_file_cut_anywhere_is_refused(kind, written, tmp_path):
    whole = written(kind)[0].read_bytes()
    path = tmp_path / written(kind)[0].name
    for share in (0.999, 0.9, 0.5, 0.1, 0.01):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ReprolabError) as refusal:
            open_checkpoint(path)
        assert str(path) in str(refusal.value)


@pytest.mark.parametrize("kind", ["dcp", "zarr2", "zarr3", "reprolab"], indirect=False)
def test_a_folder_with_a_file_cut_short_is_refused(kind, written, tmp_path):
    import shutil

    source = written(kind)[0]
    root = tmp_path / "copy"
    if kind == "reprolab":
        shutil.copytree(source.parents[1], root)
        folder = root / "checkpoints" / source.name
    else:
        shutil.copytree(source, root)
        folder = root
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.stat().st_size > 8
        and not path.name.startswith((".z", "zarr.json"))
    ]
    for path in files:
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DamagedData) as refusal, open_checkpoint(folder) as found:
        found.read("matrix.weight")
    assert "matrix.weight" in str(refusal.value) or ".metadata" in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "head"),
    [("dcp", ".metadata"), ("zarr3", "zarr.json"), ("zarr2", ".zgroup"),
     ("shards", "model.safetensors.index.json")],
)  # fmt: skip
def test_the_file_that_stands_for_a_folder_opens_it(kind, head, written):
    path, samples = written(kind)
    with open_checkpoint(path / head) as found:
        assert set(found.layout.names) == set(samples)
    layout, _ = fingerprint_checkpoint(path / head, block_bytes=SMALL)
    assert set(layout.names) == set(samples)


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(CheckpointNotFound, match=r"no-such\.pt"):
        open_checkpoint(tmp_path / "no-such.pt")
    with pytest.raises(CheckpointNotFound):
        open_checkpoint("memory://no-such-bucket/x.npz")
