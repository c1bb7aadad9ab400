import shutil

import pytest

COMPARED = """
import sys, tempfile, warnings
import torch
import reprolab as rl

warnings.simplefilter("ignore")
torch.set_num_threads(1)
backend, which = sys.argv[1], sys.argv[2:]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.d, self.b = torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.b(self.d(torch.relu(self.n(self.a(x)))))

def train(which):
    torch._dynamo.reset()
    torch.manual_seed(0)
    raw = Net()
    if which == "in place":
        raw.compile(backend=backend, fullgraph=True)
        called = raw
    else:
        called = torch.compile(raw, backend=backend, fullgraph=True)
    optimizer = torch.optim.AdamW(raw.parameters(), 0.01)
    x, y = torch.randn(4, 16, 8), torch.randint(2, (4, 16))
    losses = []

    def loop(rec):
        for i in range(4):
            loss = torch.nn.functional.cross_entropy(called(x[i]), y[i])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if rec is not None:
                rec.batch((x[i], y[i]))
                rec.step(loss=loss)

    if which == "unrecorded":
        loop(None)
    else:
        model = called if which == "wrapper" else raw
        lab = tempfile.mkdtemp()
        with rl.record(lab, run="run", model=model, optimizer=optimizer) as rec:
            loop(rec)
        run = rl.open_run(lab + "/run")
        reader = run.fingerprints(0)
        assert reader.layout("params", 0).names == tuple(n for n, _ in raw.named_parameters())
        assert (reader.tensor_moments("grads", 3)[:, 0] > 0).all()
        assert (reader.tensor_moments("grads_used", 3)[:, 0] > 0).all()
        spans = {f["name"] for f in run.facts() if f["kind"] == "span"}
        assert {"backward", "optimizer"} <= spans
        # Hooks inside of compiled code are left out, so that the compiled code stays the same.
        assert ("forward" in spans) == (which == "wrapper")
        assert run.attempts[0].environments[0]["training"]["compiled"] == (which == "wrapper")
    return losses, b"".join(p.detach().numpy().tobytes() for p in raw.parameters())

truth = train("unrecorded")
for one in which:
    assert train(one) == truth, one
print("same", len(which))
"""


@pytest.mark.processes
def test_compiled_models_keep_their_bits(script):
    assert "same 3" in script(COMPARED, "aot_eager", "wrapper", "raw", "in place").stdout


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler behind torch.compile is g++")
def test_code_made_by_a_compiler_keeps_its_bits(script):
    assert "same 1" in script(COMPARED, "inductor", "wrapper", timeout=240).stdout
