"""Comparisons to look at: in JupyterLab, and as a page to send to someone.

================== ===============================================================================
``DivergenceView`` where two runs part, as a widget one scrubs through
``report``         the same as one self-contained HTML page
================== ===============================================================================

Everything that moves, moves in the page: ``page/`` holds its sources, :mod:`.heat` the map as
bytes, :mod:`.charts` the line charts, :mod:`.cell` one cell in words and numbers. Nothing is
loaded from a network, and names from files are only ever shown as text.
"""

try:
    from reprolab.views.divergence import DivergenceView
    from reprolab.views.report import report
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] == "reprolab":
        raise
    raise ImportError(
        f"the views need {error.name}, which is not installed: pip install 'reprolab[lab]'"
    ) from error

__all__ = ["DivergenceView", "report"]
