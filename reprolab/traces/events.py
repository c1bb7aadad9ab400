"""Read the events of a Chrome trace (JSON) in pieces, without ever holding the whole of it.

The file is read in small pieces, each cut after the last complete event. A cut is a place where
one object ends and the next begins; the same characters may stand inside an event, so a piece
counts only if it parses, and is taken apart event by event where it does not.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from reprolab.errors import TraceError

PIECE = 1 << 16
"""Bytes read at a time: few enough that the garbage collector finds little to scan."""
LARGEST_EVENT = 64 << 20
"""Bytes beyond which text without a complete event is refused."""
LARGEST_HEADER = 16 << 20
"""Bytes searched for the start of the events, and kept after their end."""

Event = dict[str, Any]

_CUT = re.compile(r"\}\s*,\s*\{")
_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_GAP = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


class Events:
    """The events of one file, and afterwards what stood around them.

    Parameters
    ----------
    stream : binary file
        Uncompressed JSON: an object with ``traceEvents``, or a bare list of events.
    name : str
        What to call the file in an error.
    """

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name = stream, name
        self._text = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.header: dict[str, Any] = {}
        """The other keys of the file; complete once all events were read."""
        self.truncated = False
        """Whether the file ends within an event; complete once all events were read."""
        self.count = 0
        """Events read so far."""

    def __iter__(self) -> Iterator[list[Event]]:
        """Lists of events, in the order of the file.

        Raises
        ------
        TraceError
            If this is no trace, or one event is larger than memory should be.
        """
        before, text = self._find_start()
        ended = False
        while not ended:
            piece = self._stream.read(PIECE)
            text += self._text(piece)
            if len(text) > LARGEST_EVENT:
                raise TraceError(
                    f"no complete event within {LARGEST_EVENT >> 20} MiB after event "
                    f"{self.count}; this is no trace, or it is damaged",
                    path=self._name,
                )
            events, text, ended = _cut(text) if piece else _one_by_one(text)
            self.count += len(events)
            if events:
                yield events
            if not piece and not ended:
                self.truncated = True
                break
        if before is not None:
            self.header = self._around(before, text if ended else "")

    def _find_start(self) -> tuple[bytes | None, str]:
        head = b""
        while len(head) < LARGEST_HEADER:
            piece = self._stream.read(PIECE)
            head += piece
            found = _START.search(head)
            if found:
                return head[: found.end()], self._text(head[found.end() :])
            if head.lstrip()[:1] == b"[":
                return None, self._text(head.lstrip()[1:])
            if not piece:
                break
        raise TraceError(
            "expected a Chrome trace with a list traceEvents; found none"
            + ("" if head else ", the file is empty"),
            path=self._name,
        )

    def _around(self, before: bytes, after: str) -> dict[str, Any]:
        while len(after) < LARGEST_HEADER and (piece := self._stream.read(PIECE)):
            after += self._text(piece)
        for tail in ("]" + after, "]}"):
            try:
                found = json.loads(before.decode("utf-8", "replace") + tail)
            except ValueError:
                continue
            return {key: value for key, value in found.items() if key != "traceEvents"}
        return {}


def _cut(text: str) -> tuple[list[Event], str, bool]:
    """Complete events of `text`, the rest, and whether the list of events has ended."""
    at = text.rfind("}")
    while at >= 0:
        found = _CUT.match(text, at)
        if found:
            try:
                events = json.loads("[" + text[: at + 1].lstrip(" \t\r\n,") + "]")
            except ValueError:
                break
            return events, text[found.end() - 1 :], False
        at = text.rfind("}", 0, at)
    return _one_by_one(text)


def _one_by_one(text: str) -> tuple[list[Event], str, bool]:
    events: list[Event] = []
    at = _GAP.match(text).end()  # type: ignore[union-attr]  # it matches the empty string
    while at < len(text):
        if text[at] == "]":
            return events, text[at + 1 :], True
        try:
            event, at = _DECODER.raw_decode(text, at)
        except ValueError:
            break
        events.append(event)
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    return events, text[at:], False
