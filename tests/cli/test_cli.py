"""The command line, as a person or a script would use it."""

import json
import subprocess
import sys

import pytest

from reprolab.cli import main
from reprolab.demo import train_pair
from reprolab.store import open_run

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two short runs in one process that part at the start."""
    folder = tmp_path_factory.mktemp("lab") / "lab"
    train_pair(folder, "dropout-seed", world_size=1, progress=False, steps=3)
    return folder


def test_comparing_a_run_with_itself_exits_with_0(lab, capsys):
    assert main(["compare", str(lab / "first"), str(lab / "first")]) == 0
    assert "identical" in capsys.readouterr().out


def test_comparing_different_runs_exits_with_1(lab, capsys):
    assert main(["compare", str(lab / "first"), str(lab / "second")]) == 1
    assert "rng" in capsys.readouterr().out


def test_comparing_what_is_not_there_exits_with_2(lab, capsys):
    assert main(["compare", str(lab / "first"), str(lab / "third")]) == 2
    assert "third" in capsys.readouterr().err


def test_json_is_one_object_with_the_first_difference(lab, capsys):
    assert main(["compare", "--json", str(lab / "first"), str(lab / "second")]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["same"] is False
    assert (said["first"]["step"], said["first"]["stream"]) == (0, "rng")


def test_a_report_is_written_where_asked(lab, tmp_path, capsys):
    page = tmp_path / "report.html"
    main(["compare", str(lab / "first"), str(lab / "second"), "--html", str(page)])
    assert "<html" in page.read_text()


def test_only_the_asked_streams_are_compared(lab, capsys):
    words = ["compare", str(lab / "first"), str(lab / "second"), "--json", "--streams", "batch"]
    assert main(words) == 0


def test_an_unknown_stream_is_refused_by_name(lab, capsys):
    assert main(["compare", str(lab / "first"), str(lab / "second"), "--streams", "batches"]) == 2
    assert "batches" in capsys.readouterr().err


def test_runs_lists_each_run(lab, capsys):
    assert main(["runs", str(lab)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["first", "second"]


def test_runs_of_an_empty_folder_says_so(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out


def test_runs_of_a_missing_folder_exits_with_2(tmp_path, capsys):
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


def test_show_names_configuration_streams_and_checkpoints(lab, capsys):
    assert main(["show", "--json", str(lab / "first")]) == 0
    said = json.loads(capsys.readouterr().out)
    run = open_run(lab / "first")
    assert said["configuration"] == run.config
    assert set(said["streams"]) == set(run.fingerprints(0).streams)
    assert said["checkpoints"] == run.checkpoints
    assert main(["show", str(lab / "first")]) == 0
    assert "configuration" in capsys.readouterr().out


def test_the_installed_command_answers(capsys):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from reprolab.cli import main; raise SystemExit(main())",
            "--version",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("reprolab ")


@pytest.mark.parametrize("command", ["demo", "runs", "show", "compare", "lab"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: reprolab" in capsys.readouterr().out


def test_escape_sequences_in_names_do_not_reach_the_terminal(tmp_path, capsys):
    (tmp_path / "evil\x1b[31m").mkdir()
    main(["show", str(tmp_path / "evil\x1b[31m")])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
