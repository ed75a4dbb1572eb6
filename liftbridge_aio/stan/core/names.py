"""Checks names of channels, clients, queue groups and durables.

Servers accept some names that cannot be published to, and refuse others without saying why.
"""

from __future__ import annotations

import re
from typing import Final

_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_NOT_IN_CHANNELS: Final = frozenset("*>/")


def client_id_problem(name: str) -> str | None:
    """Return what is wrong with the id of a client or cluster; None if it is valid."""
    if _CLIENT_ID.fullmatch(name):
        return None
    return "only letters and digits of ASCII, '-' and '_' are allowed, and at least one of them"


def channel_problem(channel: str) -> str | None:
    """Return what is wrong with the name of a channel; None if it is valid."""
    if not all(channel.split(".")):
        return "a channel has no empty parts before, between or after its dots"
    wrong = sorted(_NOT_IN_CHANNELS.intersection(channel))
    if wrong:
        return f"a channel has no {wrong[0]!r}; NATS Streaming has no wildcards"
    if not channel.isprintable() or " " in channel:
        return "a channel has no blanks and no control characters"
    return None


def durable_problem(durable: str, queue: str) -> str | None:
    """Return what is wrong with the name of a durable; None if it is valid."""
    if queue and ":" in durable:
        return "the durable name of a queue group has no ':'"
    return None


def reply_problem(subject: str) -> str | None:
    """Return what is wrong with a reply subject; None if it is valid."""
    if not all(subject.split(".")):
        return "a reply subject has no empty parts before, between or after its dots"
    if not subject.isprintable() or " " in subject:
        return "a reply subject has no blanks and no control characters"
    return None
