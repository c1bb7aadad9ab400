import copy
import io
import signal
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import reprolab as rl
from reprolab.errors import RecordingFailed, RunExists, UnsupportedTraining


def notes(run):
    return [fact["text"] for fact in run.facts(0) if fact["kind"] == "note"]


def ends(run):
    return [fact["reason"] for fact in run.facts(0) if fact["kind"] == "end"]


def hooks(model, optimizer):
    """All hooks on a training."""
    found = [
        *optimizer._optimizer_step_pre_hooks.values(),
        *optimizer._optimizer_step_post_hooks.values(),
    ]
    for module in model.modules():
        found += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    for parameter in model.parameters():
        found += (parameter._post_accumulate_grad_hooks or {}).values()
        found += (parameter._backward_hooks or {}).values()
    return found


def test_a_closed_recorder_leaves_no_hook(small):
    with small.record() as rec:
        small.train(rec)
        assert hooks(small.model, small.optimizer)
    assert not hooks(small.model, small.optimizer)
    assert rec.step_index == 1
    rec.close()


def test_every_nth_step_and_the_last_state(small):
    with small.record(policy=rl.Policy(every=3)) as rec:
        small.train(rec, 5)
    reader = small.opened().fingerprints(0)
    assert list(reader.steps("params")) == [0, 3, 5]
    assert list(reader.steps("grads")) == [0, 3]
    assert list(reader.steps("batch")) == [0, 3]
    assert all(reader.tensor_moments("grads_used", 3)[:, 0] > 0)
    losses = [f["step"] for f in small.opened().facts(0) if f["kind"] == "metric"]
    assert losses == [0, 1, 2, 3, 4]


def test_only_the_streams_of_the_policy(small):
    with small.record(policy=rl.Policy(streams=("params", "grads_local", "loss"))) as rec:
        small.train(rec)
    assert set(small.opened().fingerprints(0).streams) == {"params", "grads_local", "loss"}


def test_an_exception_of_the_training_passes_unchanged(small):
    error = ValueError("the user's own")

    def training():
        with small.record() as rec:
            small.train(rec, 2)
            rec.batch(torch.zeros(3))
            raise error

    with pytest.raises(ValueError, match="the user's own") as caught:
        training()
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    (reason,) = ends(small.opened())
    assert reason.startswith("ValueError at test_recorder.py:")
    run = small.opened()
    assert list(run.fingerprints(0).steps("grads")) == [0, 1]
    batches = [fact["step"] for fact in run.facts(0) if fact["kind"] == "batch"]
    assert batches == [0, 1, 2]  # The batch of the step that failed is told as well.


def test_an_ended_training_says_so(small):
    with small.record() as rec:
        small.train(rec)
    assert ends(small.opened()) == ["finished"]


def test_a_run_name_is_used_once(small):
    with small.record() as rec:
        small.train(rec)
    with pytest.raises(RunExists), small.record():
        pass
    with small.record("another"):
        pass


def test_two_recorders_on_one_model_are_refused(small):
    outer = torch.nn.Sequential(small.model)
    with small.record("first"):
        with pytest.raises(UnsupportedTraining, match="another recorder"):
            small.record("second").__enter__()
        with pytest.raises(UnsupportedTraining, match="another recorder"):
            rl.record("lab", run="third", model=outer).__enter__()
    with small.record("fourth"):
        pass


def test_a_recorder_is_used_only_while_open(small):
    rec = small.record()
    with pytest.raises(RecordingFailed, match="not entered yet"):
        rec.step()
    with pytest.raises(RecordingFailed, match="before it is entered"):
        _ = rec.path
    with rec:
        small.train(rec)
    with pytest.raises(RecordingFailed, match="closed"):
        rec.batch(torch.zeros(1))
    with pytest.raises(RecordingFailed, match="records once"):
        rec.__enter__()


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("optimiser", "did you mean optimizer?"),
        ("checkpoint_every", r"policy=Policy\(checkpoint_every=...\)"),
        ("check_point_every", r"policy=Policy\(checkpoint_every=...\)"),
        ("zzz", "it has lab, run, model"),
    ],
)
def test_unknown_keywords_get_a_hint(small, keyword, hint):
    with pytest.raises(TypeError, match=hint):
        small.record(**{keyword: 1})


def test_what_is_no_model_no_optimizer_no_policy_is_said_at_once(small):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module; got dict"):
        rl.record("lab", run="a", model={})
    with pytest.raises(TypeError, match="optimizer must be"):
        rl.record("lab", run="a", model=small.model, optimizer="adam")
    with pytest.raises(TypeError, match="policy must be"):
        small.record(policy={"every": 1})


def test_an_optimizer_of_another_model_is_refused_before_anything_is_written(small, tmp_path):
    other = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*small.model.parameters(), *other.parameters()], lr=0.1)
    recorder = rl.record(tmp_path / "lab", run="a", model=small.model, optimizer=optimizer)
    with pytest.raises(UnsupportedTraining, match=r"parameter 6 of param_groups\[0\]"):
        recorder.__enter__()
    assert not (tmp_path / "lab").exists()


def test_a_step_without_anything_is_an_error(small):
    with small.record() as rec:
        small.train(rec)
        with pytest.raises(UnsupportedTraining, match="nothing happened since the last call"):
            rec.step()
        small.train(rec)
    assert rec.step_index == 2


def test_a_step_without_a_batch_warns_once(small):
    with small.record() as rec:
        small.model(torch.randn(3, 4)).sum().backward()
        with pytest.warns(UserWarning, match="no batch was seen in step 0"):
            rec.step()
        small.model(torch.randn(3, 4)).sum().backward()
        rec.step()
    assert list(small.opened().fingerprints(0).steps("grads")) == [0, 1]
    assert "batch" not in small.opened().fingerprints(0).streams


def test_metrics_are_numbers(small):
    with small.record() as rec:
        rec.batch(torch.zeros(2))
        with pytest.raises(TypeError, match="metric 'name' must be a number"):
            rec.step(name="text")
        rec.step(loss={"a": 1.5, "b": torch.tensor(2.0)}, grad_norm=torch.tensor([3.0]), n=4)
    values = {f["name"]: f["value"] for f in small.opened().facts(0) if f["kind"] == "metric"}
    assert values == {"loss/a": 1.5, "loss/b": 2.0, "grad_norm": 3.0, "n": 4.0}
    assert small.opened().fingerprints(0).layout("loss", 0).names == ("loss/a", "loss/b")


def test_a_loss_that_is_not_a_number_survives(small):
    with small.record() as rec:
        rec.batch(torch.zeros(2))
        rec.step(loss=torch.tensor(float("nan")), other=float("-inf"))
    values = {f["name"]: f["value"] for f in small.opened().facts(0) if f["kind"] == "metric"}
    assert str(values["loss"]) == "nan"
    assert values["other"] == float("-inf")


def test_a_model_that_grows_is_followed(small):
    with small.record() as rec:
        small.train(rec)
        head = torch.nn.Linear(2, 2)
        small.model.append(head)
        small.optimizer.add_param_group({"params": head.parameters()})
        small.train(rec)  # Noticed when this step ends.
        small.train(rec)
    run = small.opened()
    reader = run.fingerprints(0)
    assert "4.weight" not in reader.layout("params", 1).names
    assert "4.weight" in reader.layout("params", 2).names
    assert (
        dict(zip(reader.layout("grads", 2).names, reader.tensor_moments("grads", 2), strict=True))[
            "4.weight"
        ][0]
        == 4
    )
    assert notes(run) == ["the model changed: 4.bias, 4.weight added, nothing removed"]


def test_a_model_that_changes_its_dtype_is_followed(small):
    with small.record() as rec:
        small.train(rec)
        rec.batch(torch.zeros(1))
        small.model.double()
        rec.step()
        small.model(torch.randn(3, 4, dtype=torch.float64)).sum().backward()
        rec.batch(torch.zeros(1))
        rec.step()
    reader = small.opened().fingerprints(0)
    for stream in ("params", "grads"):
        dtypes = [reader.layout(stream, step).tensors[0].dtype for step in range(3)]
        assert dtypes == ["float32", "float32", "float64"], stream
    assert "the model changed" in notes(small.opened())


def test_a_parameter_that_thaws_gets_a_gradient(small):
    small.model[0].requires_grad_(False)
    with small.record() as rec:
        small.train(rec)
        small.model[0].requires_grad_(True)
        small.train(rec)
        small.train(rec)
    reader = small.opened().fingerprints(0)
    place = reader.layout("grads", 0).names.index("0.weight")
    counts = [reader.tensor_moments("grads", step)[place, 0] for step in range(3)]
    assert counts == [0, 0, 32]


def test_copies_and_pickles_of_the_model_leave_the_recorder_behind(small):
    with small.record() as rec:
        average = copy.deepcopy(small.model)
        again = copy.deepcopy(average)
        saved = io.BytesIO()
        torch.save(small.model, saved)
        small.train(rec)
        average(torch.randn(2, 4)).sum().backward()
        again(torch.randn(2, 4)).sum().backward()
        spans = rec._scribe._spans.take()
    assert not [span for span in spans if span.name in ("forward", "backward")]
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    assert loaded(torch.randn(2, 4)).shape == (2, 2)
    saved.seek(0)
    assert b"reprolab" not in saved.read()


def test_nested_and_broken_backward_passes(small):
    with small.record() as rec:
        x, y = torch.randn(6, 4), torch.randint(2, (6,))
        rec.batch((x, y))
        hidden = small.model(x)
        handle = small.model[0].weight.register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            F.cross_entropy(hidden, y).backward()
        handle.remove()
        small.optimizer.zero_grad()
        F.cross_entropy(small.model(x), y).backward()
        expected = small.model[0].weight.grad.double().sum().item()
        rec.step()
    reader = small.opened().fingerprints(0)
    place = reader.layout("grads", 0).names.index("0.weight")
    assert reader.tensor_moments("grads", 0)[place, 5] == pytest.approx(expected, rel=1e-12)


def test_alternating_losses_keep_each_last_gradient(tmp_path):
    """As in adversarial training: one backward pass must not wipe out another's gradients."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    optimizers = {
        name: torch.optim.SGD(part.parameters(), 0.1, momentum=0.9) for name, part in model.items()
    }
    with rl.record(tmp_path, run="run", model=model, optimizer=optimizers) as rec:
        for _ in range(2):
            x = torch.randn(3, 2)
            rec.batch(x)
            for name, part in model.items():
                part(x).pow(2).sum().backward()
                optimizers[name].step()
                optimizers[name].zero_grad(set_to_none=False)
            rec.step()
    reader = rl.open_run(tmp_path / "run").fingerprints(0)
    for stream in ("grads_local", "grads", "grads_used"):
        moments = dict(
            zip(reader.layout(stream, 1).names, reader.tensor_moments(stream, 1), strict=True)
        )
        assert all(row[0] > 0 and row[6] > 0 for row in moments.values()), stream
    assert {"a.a.weight.momentum_buffer", "b.param_groups.0.momentum"} <= set(
        reader.layout("optimizer", 2).names
    )


def test_sparse_gradients_are_refused(tmp_path):
    model = torch.nn.Embedding(5, 3, sparse=True)
    with rl.record(tmp_path, run="run", model=model):
        loss = model(torch.tensor([1, 2])).sum()
        with pytest.raises(UnsupportedTraining, match="sparse=False") as caught:
            loss.backward()
    assert caught.value.where["tensor"] == "weight"


def test_batches_are_taken_as_a_plain_loop_takes_them(small):
    class Loader:
        def __init__(self):
            self.calls = []

        def __iter__(self):
            self.calls.append("iter")
            for index in range(3):
                self.calls.append(index)
                yield torch.full((2, 4), float(index))

    loader = Loader()
    with small.record() as rec:
        taken = rec.batches(loader)
        assert loader.calls == []
        for batch in taken:
            small.model(batch).sum().backward()
            rec.step()
    assert loader.calls == ["iter", 0, 1, 2]
    facts = [fact for fact in small.opened().facts(0) if fact["kind"] == "batch"]
    assert [fact["step"] for fact in facts] == [0, 1, 2]


KILLED = """
import sys, torch, reprolab as rl
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with rl.record(sys.argv[1], run="run", model=model, optimizer=optimizer,
               policy=rl.Policy(checkpoint_every=2)) as rec:
    step = 0
    while True:
        x = torch.randn(8, 4)
        rec.batch(x)
        loss = model(x).pow(2).mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        rec.step(loss=loss)
        step += 1
        print(step, flush=True)
"""


def test_a_killed_training_is_readable_up_to_its_last_step(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "lab")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if int(line) == 5:
                    break
        finally:
            process.send_signal(signal.SIGKILL)
        printed = [int(line) for line in process.stdout.read().split()]
    finished = max([5, *printed])
    run = rl.open_run(tmp_path / "lab" / "run")
    reader = run.fingerprints(0)
    # A line printed means a step closed; the one under way may be there as well.
    assert list(reader.steps("grads"))[:finished] == list(range(finished))
    assert list(reader.steps("params"))[: finished + 1] == list(range(finished + 1))
    losses = [f for f in run.facts(0) if f["kind"] == "metric"]
    assert len(losses) >= finished
    assert not ends(run)
    assert {0, 2, 4} <= set(run.checkpoints)
    assert not run.checkpoint(4).verify()
