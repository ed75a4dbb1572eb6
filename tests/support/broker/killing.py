"""Simulates the end of a process between two system calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from liftbridge_aio.broker.storage import open_files

_CALLS = ["fsync", "ftruncate", "mkdir", "open", "remove", "rename", "replace", "rmdir", "unlink"]


class Killed(BaseException):
    """The process ended here."""


class Killer:
    """Allows a number of calls that change files, and then none."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.has_killed = False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._left == 0:
                self.has_killed = True
            if self.has_killed:  # a killed process does not clean up after an error either
                raise Killed
            self._left -= 1
            return call(*args, **kwargs)

        return counted


@contextmanager
def killed_after(calls: int) -> Iterator[Killer]:
    """Run the block until it has made so many calls."""
    killer = Killer(calls)
    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, killer.around(getattr(os, name)))
        patch.setattr(open_files, "_write_at", killer.around(open_files._write_at))
        try:
            yield killer
        except Killed:
            assert killer.has_killed


def each_kill(prepare: Callable[[], Callable[[], object]], look: Callable[[bool], None]) -> int:
    """Kill a step at each of its calls in turn, and finally let it complete.

    Args:
        prepare: makes a fresh state, and returns the step.
        look: is told whether the step ended, and checks what the next start finds.

    Returns:
        How many calls the step makes.
    """
    for calls in range(1000):
        step = prepare()
        with killed_after(calls) as killer:
            step()
        look(not killer.has_killed)
        if not killer.has_killed:
            return calls
    pytest.fail("the step never ends")
