"""The exceptions reprolab raises, drawn once.

```
ReprolabError
├── LabError                 a lab or run is not where or what it should be
│   ├── LabNotFound
│   ├── RunNotFound
│   ├── RunExists            a second recorder on the same run name
│   └── FormatTooNew         written by a newer reprolab
├── DamagedData              bytes on disk are not what was written
├── CheckpointError
│   ├── StepNotCommitted     no committed checkpoint at this step
│   ├── CheckpointFailed     a checkpoint could not be written; earlier ones stay good
│   ├── CheckpointNotFound   nothing is at this path
│   ├── UnsupportedFormat    not a checkpoint reprolab can read
│   ├── RefusedPickle        the file asks for objects that only running code would make
│   └── TooLarge             reading would take more memory than allowed
├── MissingLibrary           an optional library is not installed (also an ImportError)
├── RecordingFailed          a record could not be written (a full disk, say)
├── UnsupportedTraining      capture cannot do this without changing the training
├── UnsupportedDtype         the kernels know no such dtype (also a TypeError)
├── NothingToCompare         no stream, step or tensor in common
├── TraceError               a trace of operations cannot be read or analysed
├── WorkerLost               a worker process of an executor died
└── RankTimeout              other ranks did not answer in time
```
"""

from __future__ import annotations


class ReprolabError(Exception):
    """Base of all errors reprolab raises on purpose.

    Parameters
    ----------
    message : str
        What was expected, what was found and what to do.
    **where : object
        Any of ``run``, ``step``, ``rank``, ``stream``, ``tensor``, ``chunk``, ``path``. They are
        printed in front of the message and kept in :attr:`where`. `None` values are dropped.
    """

    def __init__(self, message: str, **where: object) -> None:
        self.message = message
        self.where = {key: value for key, value in where.items() if value is not None}
        super().__init__(message)

    def __str__(self) -> str:
        place = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"[{place}] {self.message}" if place else self.message

    def at(self, **where: object) -> ReprolabError:
        """Add places on the way up; those already known win. Returns the same error."""
        found = {key: value for key, value in where.items() if value is not None}
        self.where = {**found, **self.where}
        return self


class LabError(ReprolabError):
    """A lab or a run is not where or what it should be."""


class LabNotFound(LabError):
    """There is no lab at this path."""


class RunNotFound(LabError):
    """The lab holds no run of this name."""


class RunExists(LabError):
    """Another recorder already owns this run name."""


class FormatTooNew(LabError):
    """A newer reprolab wrote this; this one would misread it."""


class DamagedData(ReprolabError):
    """Bytes on disk are not the bytes that were written."""


class CheckpointError(ReprolabError):
    """Base of errors about checkpoints."""


class StepNotCommitted(CheckpointError):
    """No committed checkpoint exists at this step."""


class CheckpointFailed(CheckpointError):
    """A checkpoint could not be written; earlier ones stay good."""


class CheckpointNotFound(CheckpointError):
    """Nothing is at this path."""


class UnsupportedFormat(CheckpointError):
    """Not a checkpoint reprolab can read."""


class RefusedPickle(CheckpointError):
    """The file asks for objects that only running its code would make; nothing was run."""


class TooLarge(CheckpointError):
    """Reading would take more memory than allowed."""


class MissingLibrary(ReprolabError, ImportError):
    """An optional library is needed and not installed."""


class RecordingFailed(ReprolabError):
    """A record could not be written, for example because the disk is full."""


class UnsupportedTraining(ReprolabError):
    """Capture cannot follow this training without changing it."""


class UnsupportedDtype(ReprolabError, TypeError):
    """The kernels know no such dtype."""


class NothingToCompare(ReprolabError):
    """The two sides share no stream, step or tensor."""


class TraceError(ReprolabError):
    """A trace of operations cannot be read, or holds nothing to analyse."""


class WorkerLost(ReprolabError):
    """A worker process of an executor died before its work was done."""


class RankTimeout(ReprolabError):
    """Other ranks did not answer in time."""
