"""The facts of a run as Polars frames.

- *schema*: columns and types of one table; all of them are in :mod:`reprolab.tables.schemas`.
- *table*: one kind of facts of one run, read from the ledgers as they are now, also while the run
  is still being written (:func:`table`, :func:`tables`, :func:`write_tables`).
- *runs*: one row a run of a lab (:func:`runs`).
- *flat*: a nested setting under one dotted key (:func:`flatten`).
"""

from reprolab.tables.consolidate import table, tables, write_tables
from reprolab.tables.flatten import flatten
from reprolab.tables.runs import runs
from reprolab.tables.schemas import RUNS, SCHEMAS

__all__ = ["RUNS", "SCHEMAS", "flatten", "runs", "table", "tables", "write_tables"]
