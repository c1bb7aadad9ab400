"""Where two runs part, as a widget: the verdict, and everything one scrubs through to see why."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from reprolab.views import frontend
from reprolab.views.cell import cell
from reprolab.views.charts import charts
from reprolab.views.heat import extent, heat
from reprolab.views.summary import opening, summary

if TYPE_CHECKING:
    from reprolab.comparison import Comparison


def _shown(act: Callable[..., None]) -> Callable[..., None]:
    """Let an error in a callback be seen: Jupyter would drop it."""

    @wraps(act)
    def guarded(view: DivergenceView, *arguments: Any) -> None:
        view._errors.pop(act.__name__, None)
        try:
            act(view, *arguments)
        except Exception as error:
            view._errors[act.__name__] = f"{type(error).__name__}: {error}"
        view._error = "\n".join(view._errors.values())

    return guarded


class DivergenceView(anywidget.AnyWidget):
    """A comparison to look at: verdict, losses, distances, a map of tensors by steps, one cell.

    The step cursor moves in the page, without the kernel. The traits follow it, and setting one
    moves the page, so views can be linked.

    Parameters
    ----------
    comparison : Comparison
        What to show.

    Attributes
    ----------
    step : int
        Where the step cursor stands; one of the steps compared.
    stream : str
        Stream whose map is shown.
    tensor : str
        Tensor whose cell is shown, by name.
    rank : int or None
        Rank whose map is shown; None shows the largest distance over all ranks.

    Raises
    ------
    traitlets.TraitError
        If a trait is set to something that was not compared.
    """

    _esm = frontend.module("widget.js")
    _css = frontend.style()

    step = traitlets.Int(help="step the cursor stands at").tag(sync=True)
    stream = traitlets.Unicode(help="stream whose map is shown").tag(sync=True)
    tensor = traitlets.Unicode(help="tensor whose cell is shown").tag(sync=True)
    rank = traitlets.Int(None, allow_none=True, help="rank shown, or all").tag(sync=True)

    _summary = traitlets.Dict().tag(sync=True)
    _charts = traitlets.Dict().tag(sync=True)
    _heat = traitlets.Dict().tag(sync=True)
    _cell = traitlets.Dict().tag(sync=True)
    _error = traitlets.Unicode().tag(sync=True)

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._errors: dict[str, str] = {}
        self._extent = extent(comparison.rows)
        shown = summary(comparison)
        step, stream = opening(shown)
        drawn = heat(comparison, stream, None, self._extent) if stream else {}
        first = shown["first"] or {}
        super().__init__(
            _summary=shown,
            _charts=charts(comparison, shown["names"]),
            _heat=drawn,
            step=step,
            stream=stream,
            tensor=first.get("tensor") or drawn.get("focus", ""),
        )
        self.on_msg(self._answer)
        self.observe(self._turn, ["stream", "rank"])
        self.observe(self._look, ["step", "stream", "tensor", "rank"])
        self._look(None)

    def __repr__(self) -> str:
        names = " and ".join(self._summary["names"])
        return (
            f"<DivergenceView of {names}: step={self.step}, stream={self.stream!r}, "
            f"tensor={self.tensor!r}, rank={self.rank}>"
        )

    @traitlets.validate("step", "stream", "rank")
    def _compared(self, proposal: Any) -> Any:
        name = proposal["trait"].name
        known = self._summary[f"{name}s"]
        value = proposal["value"]
        if not known or value in known or (name == "rank" and value is None):
            return value
        some = ", ".join(map(str, known[:8])) + (", ..." if len(known) > 8 else "")
        raise traitlets.TraitError(f"{name} {value!r} was not compared; there are {some}")

    @_shown
    def _turn(self, change: Any) -> None:
        self._heat = heat(self.comparison, self.stream, self.rank, self._extent)
        if self.tensor not in self._heat["tensors"]:
            self.tensor = self._heat["focus"]

    @_shown
    def _look(self, change: Any) -> None:
        if self.tensor:
            self._cell = cell(
                self.comparison, self.step, self.stream, self.tensor, self.rank, self._extent
            )

    @_shown
    def _answer(self, widget: Any, content: Any, buffers: Any) -> None:
        if content.get("kind") == "vega":
            self.send({"kind": "vega"}, buffers=[frontend.vega().encode()])
