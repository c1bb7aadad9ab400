"""How results show themselves in a notebook, without knowing any view.

A package that has a view of a kind of result says so by an entry point of the group
``reprolab.views``, named like the class of the result. Nothing is imported until a result is to be
shown, and where no view is installed the result's own text is shown.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any

GROUP = "reprolab.views"


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def bundle(result: object, **options: object) -> dict[str, Any]:
    """What a notebook is to show for `result`: its view where there is one, its text always.

    Parameters
    ----------
    result : object
        A result; views are looked up by the name of its class.
    **options : object
        What a notebook hands to ``_repr_mimebundle_``; none of it is needed.

    Returns
    -------
    dict
        A MIME bundle, as ``_repr_mimebundle_`` returns it.
    """
    text = {"text/plain": repr(result)}
    if not in_notebook():
        return text
    for entry in entry_points(group=GROUP, name=type(result).__name__):
        try:
            view = entry.load()
        except ImportError:
            # Installed without the libraries that views need.
            continue
        shown = view(result)._repr_mimebundle_()
        return {**(shown[0] if isinstance(shown, tuple) else shown), **text}
    return text
