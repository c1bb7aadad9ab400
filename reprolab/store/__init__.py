"""Runs on disk: plain Zarr, JSON and journals, written all or nothing and read at any time.

- *lab*, *run*, *attempt*: folders (:func:`open_lab`, :func:`open_run`).
- *ledger*: facts, one record a line, each with its checksum (:meth:`Run.facts`).
- *journal*: fingerprints as they come; *folding* makes Zarr arrays of them when a run ends
  (:meth:`Run.fingerprints`).
- *checkpoint*: the state of all ranks at one step; it exists once its *commit* record does
  (:meth:`Run.checkpoint`).
- *rendezvous*: how ranks meet to begin a run and to commit, never through the training's own
  process groups (:class:`Rendezvous`).

A rank writes through the :class:`RunWriter` that :func:`begin_run` gives it. Nothing here is
pickled, and opening executes nothing.
"""

from reprolab.store.beginning import begin_attempt, begin_run
from reprolab.store.checkpoints import Checkpoint
from reprolab.store.fingerprints import FingerprintReader
from reprolab.store.rendezvous import Alone, Rendezvous
from reprolab.store.runs import Attempt, Lab, Run, open_lab, open_run
from reprolab.store.saving import CheckpointReceipt
from reprolab.store.writer import RunWriter

__all__ = [
    "Alone",
    "Attempt",
    "Checkpoint",
    "CheckpointReceipt",
    "FingerprintReader",
    "Lab",
    "Rendezvous",
    "Run",
    "RunWriter",
    "begin_attempt",
    "begin_run",
    "open_lab",
    "open_run",
]
