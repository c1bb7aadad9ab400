import json

import torch

from reprolab.capture.census import Census
from reprolab.capture.optimizer_state import by_prefix
from reprolab.capture.training import Training


def parts():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(
        [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], lr=0.1, fused=False
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    return Census.of(model), Training(by_prefix(optimizer), scheduler, scaler)


def test_what_a_checkpoint_holds_beside_tensors_can_be_loaded_back():
    census, training = parts()
    found = training.resumable(census)
    assert json.loads(json.dumps(found)) == found
    groups = found["optimizers"][""]
    assert [group["params"] for group in groups] == [["weight"], ["bias"]]
    assert [group["lr"] for group in groups] == [0.5, 0.1]
    assert found["scaler"]["scale"] == 8.0
    before = training.scheduler.state_dict()
    training.scheduler.load_state_dict(found["scheduler"])
    assert training.scheduler.state_dict() == before


def test_classes_and_settings_of_the_machinery():
    census, training = parts()
    found = training.machinery(census)
    assert json.loads(json.dumps(found)) == found
    assert found["model"] == "torch.nn.modules.linear.Linear"
    assert found["optimizers"]["optimizer"]["class"] == "torch.optim.adamw.AdamW"
    assert found["optimizers"]["optimizer"]["defaults"]["fused"] is False
    assert found["scheduler"] == "torch.optim.lr_scheduler.StepLR"
    assert found["ddp"] == []
    assert Training().machinery(census)["scaler"] is None
