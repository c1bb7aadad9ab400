"""The oracle's trainings once more, recorded: ``python recorded.py OUT WORLD:MODE,MODE...``."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import reprolab as rl

sys.path.insert(0, str(Path(__file__).parent))
import oracle


class Recorded(oracle.Unwatched):
    def __init__(self, lab, run):
        self.lab, self.run = lab, run

    @contextmanager
    def around(self, parts):
        optimizers = parts["optimizers"]
        by_name = {prefix.removesuffix("."): value for prefix, value in optimizers.items()}
        with rl.record(
            self.lab,
            run=self.run,
            model=parts["raw"] if self.run.endswith("-raw") else parts["model"],
            optimizer=by_name if len(by_name) > 1 else optimizers[""],
            scaler=parts["scaler"],
            config={"mode": self.run},
            policy=rl.Policy(checkpoint_every=2, rank_timeout=60),
        ) as self.recorder:
            yield self

    def batches(self, loader):
        return self.recorder.batches(loader)

    def step(self, loss):
        self.recorder.step(loss=loss)


def run_recorded(out, world, mode, rank):
    result = oracle.train(mode, rank, world, Recorded(out / "lab", f"{world}-{mode}"))
    arrays = {name: tensor.numpy() for name, tensor in result.items()}
    np.savez(out / f"recorded-{world}-{mode}-{rank}.npz", **arrays)


if __name__ == "__main__":
    oracle.main(run_recorded)
