import json
import os
import pickle

import pytest

from reprolab.diagnosis.straggling import stragglers
from reprolab.errors import TraceError
from reprolab.traces import open_trace


def dump(rank, *, steps=20, timed=True, late=0, ahead=0, unfinished=0):
    """A rank's dump: two collectives a step; `ahead` is how much its clock is, in seconds."""
    entries = []
    for step in range(steps):
        for number, (name, size) in enumerate((("all_reduce", 1000), ("reduce_scatter", 10))):
            enter = 100_000_000 * step + 40_000_000 * number + (late if number == 0 else 0)
            lasts = 30.0 - 1e-6 * late if number == 0 else 5.0
            entries.append(
                {
                    "record_id": len(entries),
                    "process_group": ["0", "default_pg"],
                    "collective_seq_id": len(entries) + 1,
                    "p2p_seq_id": 0,
                    "profiling_name": f"nccl:{name}",
                    "time_created_ns": int(1e18 + 1e9 * ahead) + enter,
                    "input_sizes": [[size]],
                    "state": "completed",
                }
                | ({"duration_ms": lasts} if timed else {})
            )
    for entry in entries[len(entries) - unfinished :]:
        entry["state"] = "scheduled"
        entry.pop("duration_ms", None)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return {"version": "2.10", "pg_config": config, "entries": entries}


def write(folder, *, pickled=False, **how):
    folder.mkdir(exist_ok=True)
    for rank in range(4):
        late = 10_000_000 if rank == 1 else 0
        found = dump(rank, late=late, **{k: v(rank) if callable(v) else v for k, v in how.items()})
        if pickled:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(found, 4))
        else:
            (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize("pickled", [False, True])
def test_the_late_rank_is_found_from_durations(tmp_path, pickled):
    # The clocks are seconds apart: durations need none.
    trace = open_trace(write(tmp_path / "d", pickled=pickled, ahead=lambda rank: 3 * rank))
    assert trace.source == "flight recorder"
    assert trace.steps == list(range(20))
    assert trace.world_size == 4
    found = stragglers(trace)
    assert found.late == (1,)
    assert found.rows["ranks"]["rank"][0] == 1
    assert not any("clocks" in note for note in found.notes)


def test_without_durations_the_enqueueing_tells(tmp_path):
    found = stragglers(write(tmp_path / "d", timed=False))
    assert found.late == (1,)
    assert any("TORCH_NCCL_ENABLE_TIMING was off" in note for note in found.notes)


def test_collectives_that_never_ended_are_named(tmp_path):
    folder = write(tmp_path / "d", unfinished=lambda rank: 1 if rank else 0)
    path = folder / "nccl_trace_rank_0.json"
    document = json.loads(path.read_text())
    document["entries"].pop()
    path.write_text(json.dumps(document))
    notes = open_trace(folder).notes
    assert (
        "Rank 3 never finished reduce-scatter 40 of group 0, which rank 0 never entered." in notes
    )


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def test_a_pickle_executes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    data = pickle.dumps({"version": "2.10", "entries": [Evil()]}, 4)
    (tmp_path / "d" / "fr_0").write_bytes(data)
    with pytest.raises(TraceError, match=r"wants posix\.system; only plain values"):
        open_trace(tmp_path / "d")
    assert not (tmp_path / "evil").exists()


def test_a_damaged_pickle_is_an_error(tmp_path):
    data = pickle.dumps(dump(0), 4)
    (tmp_path / "fr_0").write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="damaged or cut short"):
        open_trace(tmp_path / "fr_0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(entries=3), "list of entries"),
        (lambda d: d["entries"][0].pop("profiling_name"), "no profiling_name"),
        (lambda d: d["entries"][0].pop("time_created_ns"), "no time_created_ns"),
        (lambda d: [e.update(state="started") for e in d["entries"]], "has ended"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path, change, said):
    document = dump(0)
    change(document)
    document["profiling_name"] = "still looks like one"
    (tmp_path / "fr_0.json").write_text(json.dumps(document))
    with pytest.raises(TraceError, match=said):
        open_trace(tmp_path / "fr_0.json")
