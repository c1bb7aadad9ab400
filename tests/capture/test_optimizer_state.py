import pytest
import torch

from reprolab.capture.census import Census
from reprolab.capture.optimizer_state import by_prefix, optimizer_tensors
from reprolab.errors import UnsupportedTraining


def tensors(model, optimizers, scaler=None):
    return dict(optimizer_tensors(by_prefix(optimizers), Census.of(model), scaler))


def stepped(model, optimizer):
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    return tensors(model, optimizer)


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda p: torch.optim.SGD(p, 0.1), set()),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), {"weight.momentum_buffer"}),
        (lambda p: torch.optim.Adam(p, amsgrad=True), {"weight.step", "bias.max_exp_avg_sq"}),
        (lambda p: torch.optim.Adagrad(p), {"weight.sum"}),
    ],
)
def test_state_by_name_of_the_parameter(make, state):
    model = torch.nn.Linear(2, 2)
    found = stepped(model, make(model.parameters()))
    assert state <= found.keys()
    assert all(not name.startswith("param_groups") for name in state)


def test_numbers_are_0d_float64_with_their_value():
    model = torch.nn.Linear(2, 2)
    found = tensors(model, torch.optim.AdamW(model.parameters(), lr=0.0011, betas=(0.8, 0.95)))
    assert found["param_groups.0.lr"].dtype == torch.float64
    assert found["param_groups.0.lr"].shape == ()
    values = {name: tensor.item() for name, tensor in found.items()}
    assert values["param_groups.0.lr"] == 0.0011
    assert values["param_groups.0.betas.1"] == 0.95
    assert values["param_groups.0.amsgrad"] == 0.0
    assert "param_groups.0.foreach" not in values  # None is no number.


def test_a_learning_rate_that_is_a_tensor():
    model = torch.nn.Linear(2, 2)
    found = tensors(model, torch.optim.Adam(model.parameters(), lr=torch.tensor(0.5)))
    assert found["param_groups.0.lr"].dtype == torch.float32
    assert found["param_groups.0.lr"].item() == 0.5


def test_nested_state_of_lbfgs():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x = torch.randn(5, 2)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = tensors(model, optimizer)
    assert {"weight.func_evals", "weight.old_dirs.0", "weight.d"} <= found.keys()


def test_several_optimizers_and_a_scaler():
    model = torch.nn.Linear(2, 2)
    pair = [torch.optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    found = tensors(model, pair, scaler)
    assert found["scaler.scale"].item() == 4.0
    assert {"0.param_groups.0.lr", "1.param_groups.0.momentum"} <= found.keys()
    assert "a.param_groups.0.lr" in tensors(model, {"a": pair[0]})


def test_state_sharded_over_ranks_is_refused():
    class ZeroRedundancyOptimizer(torch.optim.SGD):
        pass

    with pytest.raises(UnsupportedTraining, match="shards its state"):
        by_prefix(ZeroRedundancyOptimizer(torch.nn.Linear(1, 1).parameters(), 0.1))
