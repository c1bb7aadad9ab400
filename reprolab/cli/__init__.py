"""The command ``reprolab``: one module a subcommand, each with ``add`` and ``run``."""

from reprolab.cli.entry import main

__all__ = ["main"]
