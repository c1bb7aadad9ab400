"""Traces that others recorded, read into tables of operations.

- *operation*: what one rank did at one step from when to when (`reprolab.tables.operations`).
- *trace*: the operations of a job's ranks, and what was left out while reading (:class:`Trace`).
"""

from reprolab.traces.door import open_trace
from reprolab.traces.recorded import recorded
from reprolab.traces.tabular import is_table, read_table
from reprolab.traces.trace import Trace

__all__ = ["Trace", "is_table", "open_trace", "read_table", "recorded"]
