"""Frames as plain text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def table_text(frame: pl.DataFrame) -> str:
    """Align a frame in columns, all rows and full cells, control characters made visible.

    Names in a lab may come from anybody; escape sequences in them must not reach the terminal.
    """
    cells = [list(frame.columns)] + [[_cell(value) for value in row] for row in frame.iter_rows()]
    widths = [max(len(row[column]) for row in cells) for column in range(len(frame.columns))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def printable(text: str) -> str:
    """Replace characters that a terminal would act on, but for new lines, by their escapes."""
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(str(value)).replace("\n", "\\n")
