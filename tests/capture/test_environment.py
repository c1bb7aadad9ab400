import json
import subprocess

import pytest
import torch

import reprolab as rl
from reprolab.capture.code import DIFF_CHARACTERS, code
from reprolab.capture.environment import environment, variables

SECRET = "hunter2-very-secret"


def test_only_listed_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    monkeypatch.setenv("SOMETHING_ELSE", SECRET)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found = variables()
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["NCCL_ALGO"] == "Ring"
    assert found["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert SECRET not in json.dumps(environment())


def test_what_changes_numbers_is_there():
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["versions"]["torch"]
    assert found["threads"]["torch"] == torch.get_num_threads()
    before = found["determinism"]["deterministic_algorithms"]
    torch.use_deterministic_algorithms(not before)
    try:
        assert environment()["determinism"]["deterministic_algorithms"] is not before
    finally:
        torch.use_deterministic_algorithms(before)
    torch.set_flush_denormal(True)
    try:
        assert environment()["determinism"]["flush_denormal"] is True
    finally:
        torch.set_flush_denormal(False)
    assert environment()["determinism"]["flush_denormal"] is False


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit, as the working directory."""

    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    (tmp_path / "settings.py").write_text("lr = 0.1\n")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "Begin")
    git("remote", "add", "origin", f"https://me:{SECRET}@example.org/x.git")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commit_diff_and_remote_without_secrets(repository):
    clean = code()["git"]
    assert len(clean["commit"]) == 40
    assert (clean["branch"], clean["dirty"], clean["diff"]) == ("main", False, "")
    assert clean["remote"] == "https://<redacted>@example.org/x.git"
    (repository / "settings.py").write_text(f'lr = 0.2\ntoken = "{SECRET}"\n')
    (repository / "new.py").write_text("")
    dirty = code()["git"]
    assert dirty["dirty"]
    assert dirty["untracked"] == 1
    assert "+lr = 0.2" in dirty["diff"]
    assert dirty["diff_sha256"] != clean["diff_sha256"]
    assert not dirty["diff_truncated"]
    assert SECRET not in json.dumps(dirty)


def test_a_long_diff_is_cut_and_says_so(repository):
    (repository / "settings.py").write_text("x = 1\n" * DIFF_CHARACTERS)
    found = code()["git"]
    assert found["diff_truncated"]
    assert 0 < len(found["diff"]) <= DIFF_CHARACTERS
    assert found["diff"].endswith("+x = 1\n")


def test_outside_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code()["git"] is None


TRAINING = """
import sys, torch, reprolab as rl
import mine
model = torch.nn.Linear(2, 2)
config = {"lr": mine.LR, "api_key": sys.argv[2]}
with rl.record("lab", run="run", model=model, config=config) as rec:
    rec.batch(torch.zeros(1)); rec.step(loss=1.0)
"""


def test_a_run_holds_the_users_modules_and_no_secret(script, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("LR = 0.1\n")
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    script(TRAINING, f"--token={SECRET}", SECRET)
    run = rl.open_run(tmp_path / "lab" / "run")
    (attempt,) = run.attempts
    assert attempt.code["modules"]["mine"]["file"] == "mine.py"
    assert len(attempt.code["modules"]["mine"]["sha256"]) == 64
    assert {"torch", "numpy", "json", "reprolab.capture"}.isdisjoint(attempt.code["modules"])
    process = attempt.environments[0]["process"]
    assert process["arguments"][1] == "--token=<redacted>"
    assert run.config == {"lr": 0.1, "api_key": "<redacted>"}
    hits = [
        path
        for path in run.path.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    # Given on its own, without a name, a secret cannot be told from any other word.
    assert process["arguments"][2] == SECRET
    assert [path.name for path in hits] == ["attempt.json"]
