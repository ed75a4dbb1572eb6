"""Names that a server can bear. Pure.

A v1.9.0 server builds NATS subjects and folders from the names of streams and groups without
looking at them, and ends as a process on some. All of this was measured on one.
"""

from __future__ import annotations

from typing import Final

_BLANKS: Final = frozenset(" \t\r\n\v\f\0")
_MAX_NAME_BYTES: Final = 255
"""The name becomes that of a folder."""


def stream_name_problem(name: str) -> str | None:
    """Say what is wrong with the name of a stream; None where nothing is."""
    if not name:
        return "a stream name must not be empty"
    if not _BLANKS.isdisjoint(name):
        return "a stream name must not hold blanks"
    if not all(name.split(".")):
        return "a stream name must have something before, between and after its dots"
    if name == ">":
        return "'>' is no stream name"
    if len(name.encode()) > _MAX_NAME_BYTES:
        return f"a stream name has at most {_MAX_NAME_BYTES} bytes"
    return None


def subject_problem(subject: str) -> str | None:
    """Say what is wrong with a NATS subject, wildcards allowed; None where nothing is."""
    tokens = subject.split(".")
    if not all(tokens):
        return "a subject must have something before, between and after its dots"
    if not _BLANKS.isdisjoint(subject):
        return "a subject must not hold blanks"
    if ">" in tokens[:-1]:
        return "'>' may only be the last part of a subject"
    if subject == ">":
        return "'>' alone would take in the servers' own traffic too"
    return None


def group_problem(group: str) -> str | None:
    """Say what is wrong with the name of a load-balance group; None where nothing is."""
    return None if _BLANKS.isdisjoint(group) else "the name of a group must not hold blanks"
