"""Keeps secrets out of labs: what looks like one is replaced before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "<redacted>"
"""What stands where a secret stood."""

_SECRET_WORDS = {
    "apikey", "auth", "authorization", "bearer", "credential", "credentials", "passphrase",
    "passwd", "password", "pat", "pwd", "secret", "secrets",
}  # fmt: skip
_SECRET_ENDS = {
    ("token",),
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("secret", "key"),
}
_TEXT_TOKENS = {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "stop", "image"}
"""A token after one of these is a word of a vocabulary, not a secret."""

_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|glpat|hf|xox[abpr]|github_pat|wandb)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_USER_IN_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]*@")
_ASSIGNMENT = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)(?P<between>["']?\s*[:=]\s*)(?P<value>[^\s,;)}]+)"""
)


def names_secret(name: str) -> bool:
    """Whether something of this name is likely to be a secret.

    Examples
    --------
    >>> [names_secret(name) for name in ("--api-key", "HF_TOKEN", "max_tokens", "pad_token")]
    [True, True, False, False]
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = [word for word in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if word]
    if _SECRET_WORDS & set(words):
        return True
    if words[-1:] == ["token"] and words[-2:-1] and words[-2] in _TEXT_TOKENS:
        return False
    return any(tuple(words[-len(end) :]) == end for end in _SECRET_ENDS)


def redact_text(text: str) -> str:
    """`text` without user names and passwords in URLs and without well-known kinds of keys.

    Examples
    --------
    >>> redact_text("https://me:pass@example.org/x.git")
    'https://<redacted>@example.org/x.git'
    """
    return _LOOKS_SECRET.sub(REDACTED, _USER_IN_URL.sub(rf"\g<scheme>{REDACTED}@", text))


def redact_source(text: str) -> str:
    """`text` as :func:`redact_text` leaves it, and without what is assigned to secret names."""
    return _ASSIGNMENT.sub(
        lambda found: (
            f"{found['name']}{found['between']}{REDACTED}"
            if names_secret(found["name"])
            else found[0]
        ),
        redact_text(text),
    )


def redact_arguments(arguments: Iterable[str]) -> list[str]:
    """A command line without the values of secret options.

    Examples
    --------
    >>> redact_arguments(["train.py", "--token=abc", "--password", "x", "--lr", "0.1"])
    ['train.py', '--token=<redacted>', '--password', '<redacted>', '--lr', '0.1']
    """
    cleaned: list[str] = []
    hide_next = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            cleaned.append(REDACTED)
            hide_next = False
            continue
        secret = names_secret(option) and (bool(equals) or argument.startswith("-"))
        hide_next = secret and not equals
        cleaned.append(f"{option}={REDACTED}" if secret and equals else redact_text(argument))
    return cleaned


def redact_settings(settings: Any) -> Any:
    """Nested settings without text at secret names; everything else unchanged."""
    if isinstance(settings, Mapping):
        return {
            key: REDACTED
            if isinstance(value, str) and names_secret(key)
            else redact_settings(value)
            for key, value in settings.items()
        }
    if isinstance(settings, list):
        return [redact_settings(value) for value in settings]
    return redact_text(settings) if isinstance(settings, str) else settings
