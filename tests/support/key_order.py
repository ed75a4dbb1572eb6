"""The order in which a queue delivers the messages of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """A handler that began, or ended well."""

    value: bytes
    ended: bool


def out_of_order(by_key: Mapping[bytes, Sequence[bytes]], steps: Sequence[Step]) -> list[str]:
    """Return which messages were delivered before an earlier one of their key was handled."""
    before = {
        value: earlier
        for values in by_key.values()
        for earlier, value in zip((None, *values), values, strict=False)
    }
    handled: set[bytes] = set()
    wrong = []
    for value, ended in steps:
        earlier = before.get(value)
        if ended:
            handled.add(value)
        elif earlier is not None and earlier not in handled:
            wrong.append(f"{value!r} was delivered before {earlier!r} of its key was handled")
    return wrong
