"""Checks of names that would crash a server. Pure.

A v1.9.0 server builds NATS subjects and folders from the names of streams and groups without
checking them, and some crash it. All of this was measured.
"""

from __future__ import annotations

from typing import Final

_BLANKS: Final = frozenset(" \t\r\n\v\f\0")
_MAX_NAME_BYTES: Final = 255
"""The limit of file systems: the name becomes that of a folder."""


def stream_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a stream; None if it is valid."""
    if not name:
        return "a stream name must not be empty"
    if not _BLANKS.isdisjoint(name):
        return "a stream name must not contain blanks"
    if not all(name.split(".")):
        return "a stream name must not have empty parts before, between or after its dots"
    if name == ">":
        return "'>' is not a valid stream name"
    if len(name.encode()) > _MAX_NAME_BYTES:
        return f"a stream name may have at most {_MAX_NAME_BYTES} bytes"
    return None


def subject_problem(subject: str) -> str | None:
    """Return what is wrong with a NATS subject, wildcards allowed; None if it is valid."""
    tokens = subject.split(".")
    if not all(tokens):
        return "a subject must not have empty parts before, between or after its dots"
    if not _BLANKS.isdisjoint(subject):
        return "a subject must not contain blanks"
    if ">" in tokens[:-1]:
        return "'>' may only be the last part of a subject"
    if subject == ">":
        return "'>' alone would also receive the servers' internal traffic"
    return None


def group_problem(group: str) -> str | None:
    """Return what is wrong with the name of a load-balance group; None if it is valid."""
    return None if _BLANKS.isdisjoint(group) else "the name of a group must not contain blanks"
