import collections
import os
import shutil

import numpy as np
import pytest
import torch

from reprolab.errors import DamagedData, RefusedPickle, UnsupportedFormat
from reprolab.formats import fingerprint_checkpoint, open_checkpoint
from reprolab.kernels import fingerprint
from reprolab.vocabulary import Region

CONVERTED = ("s1_three", "s2_aligned", "s2_bf16", "s3_groups", "s3_three")
"""Written by DeepSpeed 0.19.8 on two or three ranks, with what its own converter made of them."""

PARAMETERS = ("emb.weight", "l1.weight", "l1.bias", "bn.weight", "bn.bias", "l2.weight")


def as_numpy(tensor):
    array = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    name = str(tensor.dtype).removeprefix("torch.")
    return array.view(np.dtype(name)).reshape(tuple(tensor.shape))


@pytest.mark.parametrize("name", CONVERTED)
def test_parameters_are_those_of_its_own_converter(unpacked, name):
    folder = unpacked("deepspeed") / name
    reference = torch.load(folder / "reference.pt")
    with open_checkpoint(folder) as found:
        assert set(PARAMETERS) <= set(reference)
        for key, tensor in reference.items():
            mine = found.read(key)
            # The converter turns buffers and frozen parameters into fp32; they are given as stored.
            assert (mine.astype(np.float32) == as_numpy(tensor).astype(np.float32)).all(), key
            if key in PARAMETERS:
                assert mine.dtype == np.float32
                assert mine.tobytes() == as_numpy(tensor).tobytes()
        assert (found.read("frozen.bias").shape, found.read("count")) == ((3,), 3)
        assert found.format == "deepspeed"
        assert found.metadata["deepspeed.global_steps"] == 3
        assert found.metadata["deepspeed.note"] == "hi"
        assert found.metadata["optimizer.param_groups.0.lr"] == 0.01


def test_the_optimizer_for_bfloat16_holds_masters_of_the_rounded_weights(unpacked):
    folder = unpacked("deepspeed") / "s1_bf16opt"
    weights = torch.load(folder / "global_step3" / "mp_rank_00_model_states.pt")["module"]
    with open_checkpoint(folder) as found:
        for key in PARAMETERS:
            master = torch.from_numpy(found.read(key).copy())
            assert torch.equal(master.to(torch.bfloat16), weights[key]), key


@pytest.mark.parametrize("name", [*CONVERTED, "s1_bf16opt"])
def test_optimizer_states_stand_under_their_parameters(unpacked, name):
    """After AdamW steps exp_avg_sq is never negative, and where it is zero so is exp_avg."""
    with open_checkpoint(unpacked("deepspeed") / name) as found:
        for key in PARAMETERS:
            first = found.read(f"optimizer.state.{key}.exp_avg")
            second = found.read(f"optimizer.state.{key}.exp_avg_sq")
            assert first.shape == second.shape == found.read(key).shape
            assert (second >= 0).all()
            assert (first[second == 0] == 0).all()
        rows = found.read("optimizer.state.emb.weight.exp_avg_sq")
        assert rows.any()


def test_stages_of_one_training_differ_only_by_rounding(unpacked):
    """The same model, data and seeds under ZeRO 2 and 3: a wrong order would be far off."""
    root = unpacked("deepspeed")
    with open_checkpoint(root / "s2_aligned") as two, open_checkpoint(root / "s3_groups") as three:
        for key in PARAMETERS:
            for name in (key, f"optimizer.state.{key}.exp_avg"):
                np.testing.assert_allclose(two.read(name), three.read(name), rtol=1e-3, atol=1e-5)


def test_without_zero_everything_is_in_the_model_file(unpacked):
    with open_checkpoint(unpacked("deepspeed") / "s0_fp32") as found:
        assert {"emb.weight", "head.weight", "optimizer.state.0.exp_avg"} <= set(found.layout.names)


def test_the_folder_of_the_step_opens_as_well(unpacked):
    folder = unpacked("deepspeed") / "s3_three"
    above, below = open_checkpoint(folder), open_checkpoint(folder / "global_step3")
    assert above.layout == below.layout


@pytest.mark.parametrize("name", ["s1_three", "s3_groups"])
def test_regions_across_partitions(unpacked, name):
    with open_checkpoint(unpacked("deepspeed") / name) as found:
        whole = found.read("l1.weight")
        rng = np.random.default_rng(0)
        for _ in range(50):
            low = [int(rng.integers(0, n + 1)) for n in whole.shape]
            high = [int(rng.integers(a, n + 1)) for a, n in zip(low, whole.shape, strict=True)]
            box = Region(tuple(low), tuple(b - a for a, b in zip(low, high, strict=True)))
            place = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
            assert (found.read("l1.weight", box) == whole[place]).all()


def test_fingerprints(unpacked):
    layout, found = fingerprint_checkpoint(unpacked("deepspeed") / "s3_three", block_bytes=64)
    with open_checkpoint(unpacked("deepspeed") / "s3_three") as opened:
        for index, name in enumerate(layout.names):
            expected = fingerprint(opened.read(name), block_bytes=64)
            assert (found.digest[layout.rows_of(index)] == expected.digest).all()


@pytest.fixture
def copied(unpacked, tmp_path):
    def copy(name):
        return shutil.copytree(unpacked("deepspeed") / name, tmp_path / name)

    return copy


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("s1_three", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("s3_three", "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"),
        ("s3_three", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
    ],
)
def test_a_missing_partition_is_named(copied, name, file):
    folder = copied(name)
    (folder / "global_step3" / file).unlink()
    with pytest.raises(DamagedData, match=file):
        open_checkpoint(folder)


def test_missing_model_files_are_said(copied):
    folder = copied("s3_three")
    (folder / "global_step3" / "zero_pp_rank_2_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(DamagedData, match="2 model files"):
        open_checkpoint(folder)
    for path in (folder / "global_step3").glob("*optim*"):
        path.unlink()
    with pytest.raises(DamagedData, match="optimizer files"):
        open_checkpoint(folder)


def rewrite(path, change):
    class Anything:
        """Stands for DeepSpeed's own classes, which are not installed here."""

        def __init__(self, *args):
            self.args = args

        def __setstate__(self, state):
            self.__dict__.update(state if isinstance(state, dict) else {})

        def __reduce__(self):
            return collections.OrderedDict, ()

    import pickle

    class Loader:
        class Unpickler(pickle.Unpickler):
            def find_class(self, module, name):
                if module.startswith("deepspeed"):
                    return int if name == "ZeroStageEnum" else Anything
                return super().find_class(module, name)

        load = staticmethod(pickle.load)

    value = torch.load(path, weights_only=False, pickle_module=Loader)
    change(value)
    torch.save(value, path)


def test_files_that_do_not_belong_together_are_refused(copied):
    folder = copied("s1_three")
    model = folder / "global_step3" / "mp_rank_00_model_states.pt"
    rewrite(model, lambda v: v["param_shapes"][0].update({"l1.weight": torch.Size([90, 5])}))
    with pytest.raises(DamagedData, match=r"tensor l[12]\.weight|do not belong"):
        open_checkpoint(folder)
    folder = copied("s3_groups")
    for model in (folder / "global_step3").glob("*model_states.pt"):
        rewrite(model, lambda v: v["param_shapes"][0].pop("l1.weight"))
    with pytest.raises(DamagedData, match="do not belong together"):
        open_checkpoint(folder)


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize(
    "file", ["mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"]
)
def test_a_real_payload_is_refused_and_does_not_run(copied, tmp_path, file):
    folder = copied("s1_three")
    marker = tmp_path / "it-ran"
    path = folder / "global_step3" / file
    rewrite(path, lambda value: value.update(extra=Payload(marker)))
    with pytest.raises(RefusedPickle, match=r"posix\.system"):
        open_checkpoint(folder)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "the payload is no payload, so the test above proves nothing"


def test_several_model_ranks_keep_apart(copied):
    folder = copied("s0_fp32")
    step = folder / "global_step3"
    shutil.copy(step / "mp_rank_00_model_states.pt", step / "mp_rank_01_model_states.pt")
    with open_checkpoint(folder) as found:
        assert "mp_rank_01.emb.weight" in found.layout.names
        assert "mp_rank_00.emb.weight" in found.layout.names


def test_pipelines_and_universal_checkpoints_are_refused_with_advice(copied):
    folder = copied("s0_fp32")
    (folder / "global_step3" / "layer_00-model_00-model_states.pt").write_bytes(b"")
    with pytest.raises(UnsupportedFormat, match=r"pipeline.*zero_to_fp32"):
        open_checkpoint(folder)


def test_a_tag_that_is_not_there_is_named(copied):
    folder = copied("s0_fp32")
    (folder / "latest").write_text("global_step9")
    with pytest.raises(DamagedData, match="global_step9"):
        open_checkpoint(folder)
    (folder / "latest").write_text("../s0_fp32/global_step3")
    with pytest.raises(UnsupportedFormat):
        open_checkpoint(folder)
