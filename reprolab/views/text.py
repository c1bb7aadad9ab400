"""Names from files as a person may safely read them."""

from __future__ import annotations

import re
from html import escape

_UNSEEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Spell out characters that are not seen but change how the text around them reads.

    Examples
    --------
    >>> visible("layers.0.weight"), visible("a" + chr(0x202E) + "b")
    ('layers.0.weight', 'a⟨U+202E⟩b')
    """
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def markup(text: str) -> str:
    """Text as it stands in HTML."""
    return escape(visible(text))
