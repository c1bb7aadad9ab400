"""How long each computation should have taken, given how much work it was.

Batches differ: long sequences take longer, and no rank is to blame for them. How much work a
microbatch is shows in its tokens, where they are recorded; or, in a pipeline, in how long the
*other* stages took for the same microbatch. Per operation and stage a straight line from that
measure to the duration is fitted, twice, the second time without outliers. It is used only where it
leaves clearly less scatter than the plain median does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprolab.diagnosis.straggling.clocks import SCATTER
from reprolab.diagnosis.straggling.model import Model
from reprolab.diagnosis.straggling.pipeline import BACKWARD, FORWARD
from reprolab.tables.operations import WORK

OUTLIER = 4.0
"""Standard deviations beyond which an operation does not count in the second fit."""
USEFUL = 0.8
"""A measure of work must reduce the scatter to this share of what it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Expected durations, and what they were found from."""

    expected: np.ndarray
    """float64 [nodes, steps]: seconds the work should have taken; for communication, the usual."""
    measure: str | None
    """``"tokens"``, ``"the other stages"``, or None where all work of a class counts as equal."""
    explained: float
    """Share of the variance of the computations' durations, within stages, that work explains."""
    together: float
    """Correlation of a microbatch's forward and backward durations, within ranks; NaN without
    microbatches. Near 1 where microbatches differ in size."""


def workload(model: Model) -> Workload:
    """Estimate expected durations of all operations of a model."""
    nodes, own = model.graph.nodes, model.timing.own
    usual = _usual(model)
    together = _together(model)
    best = Workload(usual, None, 0.0, together)
    candidates = [("tokens", model.timing.tokens), ("the other stages", _other_stages(model))]
    works = nodes["role"].to_numpy() == WORK
    for measure, size in candidates:
        if size is None:
            continue
        expected, fitted = _line(model, size, usual)
        if not fitted.any():
            continue
        plain, left = (own - usual)[fitted], (own - expected)[fitted]
        scatter, rest = _scatter(plain), _scatter(left)
        if scatter > 0 and rest < USEFUL * scatter:
            explained = 1 - (rest / scatter) ** 2
            best = Workload(np.where(works[:, None], expected, usual), measure, explained, together)
            break
    return best


def _usual(model: Model) -> np.ndarray:
    """Median of each class of operation within a stage, [nodes, steps]."""
    stage = model.graph.nodes["stage"].to_numpy().astype(np.int64)
    key = model.graph.peers * (int(stage.max()) + 1) + stage
    found = np.empty_like(model.timing.own)
    for which in np.unique(key):
        some = key == which
        found[some] = np.median(model.timing.own[some])
    return found


def _line(model: Model, size: np.ndarray, usual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected durations by a fitted line, and which nodes they exist for (bool [nodes])."""
    stage = model.graph.nodes["stage"].to_numpy().astype(np.int64)
    key = model.graph.peers * (int(stage.max()) + 1) + stage
    sized = np.isfinite(size).all(axis=1)
    expected, fitted = usual.copy(), np.zeros(len(stage), bool)
    for which in np.unique(key[sized]):
        some = sized & (key == which)
        x, y = size[some].ravel(), model.timing.own[some].ravel()
        if len(x) < 8 or np.ptp(x) == 0:
            continue
        keep = np.ones(len(x), bool)
        for _ in range(2):
            mean = x[keep].mean()
            spread = ((x[keep] - mean) ** 2).sum()
            if spread == 0:
                break
            slope = ((x[keep] - mean) * y[keep]).sum() / spread
            line = y[keep].mean() + slope * (x - mean)
            left = y - line
            keep = np.abs(left - np.median(left)) <= OUTLIER * max(_scatter(left), 1e-12)
        expected[some] = line.reshape(size[some].shape)
        fitted |= some
    return expected, fitted


def _other_stages(model: Model) -> np.ndarray | None:
    """Duration of the same microbatch on the other stages, over what is usual there."""
    nodes, own = model.graph.nodes, model.timing.own
    stage, dp = nodes["stage"].to_numpy(), nodes["dp"].to_numpy()
    stages = int(stage.max()) + 1
    if stages < 2 or nodes["microbatch"].null_count() == len(nodes):
        return None
    microbatch = nodes["microbatch"].fill_null(-1).to_numpy()
    operation = nodes["operation"].to_numpy()
    found = np.full_like(own, np.nan)
    for name in (FORWARD, BACKWARD):
        some = np.flatnonzero((operation == name) & (microbatch >= 0))
        order = some[np.lexsort((stage[some], microbatch[some], dp[some]))]
        if not len(order) or len(order) % stages:
            return None
        table = own[order].reshape(-1, stages, own.shape[1])
        place = stage[order].reshape(-1, stages)
        if (place != np.arange(stages)).any():
            return None  # stages hold several model parts: their microbatches stand side by side
        relative = table / np.median(table, axis=(0, 2))[None, :, None]
        for one in range(stages):
            others = np.delete(relative, one, axis=1)
            found[order.reshape(-1, stages)[:, one]] = np.median(others, axis=1)
    return found


def _together(model: Model) -> float:
    nodes, own = model.graph.nodes, model.timing.own
    microbatch = nodes["microbatch"].fill_null(-1).to_numpy()
    operation = nodes["operation"].to_numpy()
    ways = []
    for name in (FORWARD, BACKWARD):
        some = np.flatnonzero((operation == name) & (microbatch >= 0))
        rank = nodes["rank"].to_numpy()[some]
        sequence = nodes["sequence"].to_numpy()[some]
        order = np.lexsort((sequence, microbatch[some], rank))
        some, rank = some[order], rank[order]
        if not len(some):
            return float("nan")
        # A slow rank or stage would make both directions agree as well, so each rank's own mean
        # comes off first.
        of = np.unique(rank, return_inverse=True)[1]
        mean = np.bincount(of, own[some].sum(axis=1)) / np.bincount(of) / own.shape[1]
        ways.append(own[some] / mean[of][:, None] - 1)
    one, other = ways
    if one.shape != other.shape or one.std() == 0 or other.std() == 0:
        return float("nan")
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def _scatter(values: np.ndarray) -> float:
    return float(SCATTER * np.median(np.abs(values - np.median(values))))
