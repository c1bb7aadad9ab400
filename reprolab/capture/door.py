"""The way in: checks what it is given before anything is attached or written."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from pathlib import Path

from torch import nn

from reprolab.capture.optimizer_state import by_prefix
from reprolab.capture.recorder import Recorder
from reprolab.capture.training import Training
from reprolab.policy import Policy

_DEFAULT = Policy()


def record(
    lab: str | Path,
    *,
    run: str,
    model: nn.Module,
    optimizer: object = None,
    scheduler: object = None,
    scaler: object = None,
    config: object = None,
    policy: Policy = _DEFAULT,
    parent: tuple[str, int] | None = None,
    **unknown: object,
) -> Recorder:
    """Record a training: use it as ``with record(...) as rec:`` around the loop, on every rank.

    Parameters
    ----------
    lab : path
        Folder that holds runs; made if it is not there.
    run : str
        Name of the new run.
    model : Module
        The model that is called in the loop: raw, wrapped in DDP, or compiled.
    optimizer : Optimizer, or list or dict of them, optional
        Without it the streams ``optimizer`` and ``grads_used`` are not captured.
    scheduler : optional
        Learning-rate scheduler(s); their state goes into checkpoints.
    scaler : torch.amp.GradScaler, optional
        Its scale belongs to the stream ``optimizer``.
    config : mapping, dataclass or namespace, optional
        The training's settings, written into the run. Text under names of secrets is left out.
    policy : Policy, optional
        What to capture, how often, and what to do when the disk refuses.
    parent : (str, int), optional
        Run and step from which this one branches off.

    Returns
    -------
    Recorder
        Nothing is attached or written before it is entered.

    Raises
    ------
    TypeError
        For arguments that are not what they should be, with a hint.
    """
    if unknown:
        raise TypeError(_hint(next(iter(unknown))))
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a reprolab.Policy; got {type(policy).__name__}")
    training = Training(by_prefix(optimizer), scheduler, scaler)
    return Recorder(lab, run, model, training, config, policy, parent)


def _hint(name: str) -> str:
    known = [key for key in inspect.signature(record).parameters if key != "unknown"]
    settings = [setting.name for setting in dataclasses.fields(Policy)]
    if name in settings:
        return f"record() has no argument {name!r}; write policy=Policy({name}=...)"
    close = difflib.get_close_matches(name, known + settings, n=1)
    if not close:
        return f"record() has no argument {name!r}; it has {', '.join(known)}"
    meant = close[0] if close[0] in known else f"policy=Policy({close[0]}=...)"
    return f"record() has no argument {name!r}; did you mean {meant}?"
