import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprolab.errors import TraceError
from reprolab.traces import events as module
from reprolab.traces.events import Events

TRICKY = st.text(alphabet='ab{}[]," \\\n:é', max_size=12)
EVENT = st.fixed_dictionaries(
    {"ph": st.just("X"), "name": TRICKY, "ts": st.integers(0, 10**15)},
    optional={
        "args": st.dictionaries(
            TRICKY, st.one_of(TRICKY, st.lists(st.dictionaries(TRICKY, TRICKY)))
        )
    },
)


def read(data, piece):
    class Small(io.BytesIO):
        """Returns no more than `piece` bytes at a time, as a pipe might."""

        def read(self, size=-1):
            return super().read(piece)

    found = Events(Small(data), "x")
    return [event for some in found for event in some], found


@settings(max_examples=80, deadline=None)
@given(st.lists(EVENT, max_size=8), st.integers(1, 60), st.sampled_from([None, 1, (",", ":")]))
def test_events_are_the_same_wherever_the_file_is_cut(events, piece, layout):
    style = {"separators": layout} if isinstance(layout, tuple) else {"indent": layout}
    document = {"schemaVersion": 1, "traceEvents": events, "distributedInfo": {"rank": 3}}
    data = json.dumps(document, ensure_ascii=False, **style).encode()
    found, reader = read(data, piece)
    assert found == events
    assert reader.header == {"schemaVersion": 1, "distributedInfo": {"rank": 3}}
    assert not reader.truncated


def test_a_bare_list_will_do():
    found, reader = read(b'[{"ph": "X", "ts": 1}, {"ph": "i", "ts": 2}]', 1 << 16)
    assert [event["ts"] for event in found] == [1, 2]
    assert reader.header == {}


@pytest.mark.parametrize("cut", [5, 20, 61, 75])
def test_a_truncated_file_gives_what_is_whole(cut):
    events = [{"ph": "X", "name": "a", "ts": n} for n in range(4)]
    data = json.dumps({"traceEvents": events}).encode()
    found, reader = read(data[: data.index(b"[") + cut], 16)
    assert found == events[: len(found)]
    assert len(found) == cut // 37
    assert reader.truncated


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "the file is empty"), (b"hello", "found none"), (b'{"a": []}', "found none")],
)
def test_what_is_no_trace_is_refused(data, said):
    with pytest.raises(TraceError, match=said):
        read(data, 1 << 16)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_EVENT", 1000)
    with pytest.raises(TraceError, match="no complete event within"):
        read(b'{"traceEvents": [{"name": "' + b"x" * 5000, 100)


def test_invalid_utf8_does_not_stop_reading():
    found, _ = read(b'{"traceEvents": [{"name": "\xff\xfe", "ts": 1}]}', 4)
    assert found[0]["ts"] == 1
