import pytest

from reprolab.capture.redaction import (
    REDACTED,
    names_secret,
    redact_arguments,
    redact_settings,
    redact_source,
    redact_text,
)

KEY = "sk-" + "a1B2" * 8


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "HF_TOKEN",
        "--api-key",
        "apiKey",
        "wandb_api_key",
        "AWS_SECRET_ACCESS_KEY",
        "passwd",
    ],
)
def test_names_of_secrets(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name", ["max_tokens", "pad_token", "--eos-token", "tokenizer", "lr", "keyword", "", "monkey"]
)
def test_names_of_no_secrets(name):
    assert not names_secret(name)


@pytest.mark.parametrize(
    ("arguments", "cleaned"),
    [
        (["--token=abc"], [f"--token={REDACTED}"]),
        (["--token", "abc", "x"], ["--token", REDACTED, "x"]),
        (["--password", "--lr", "1"], ["--password", "--lr", "1"]),
        (["auth.password=abc", "lr=1"], [f"auth.password={REDACTED}", "lr=1"]),
        (["--data", "s3://me:abc@host/x"], ["--data", f"s3://{REDACTED}@host/x"]),
        ([KEY], [REDACTED]),
        (["--max-tokens", "12", "--pad-token=<pad>"], ["--max-tokens", "12", "--pad-token=<pad>"]),
    ],
)
def test_command_lines(arguments, cleaned):
    assert redact_arguments(arguments) == cleaned


def test_text_and_source():
    assert redact_text(f"x {KEY} y") == f"x {REDACTED} y"
    assert redact_source('+api_key = "hunter2"\n lr = 0.1') == f"+api_key = {REDACTED}\n lr = 0.1"


def test_settings_keep_all_but_secret_text():
    settings = {
        "lr": 0.1,
        "hub": {"token": "abc", "tokens": 3},
        "urls": ["http://a:b@c"],
        "token": 5,
    }
    assert redact_settings(settings) == {
        "lr": 0.1,
        "hub": {"token": REDACTED, "tokens": 3},
        "urls": [f"http://{REDACTED}@c"],
        "token": 5,
    }
