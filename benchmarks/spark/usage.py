"""Processor time and memory of the processes below one: Spark's Java, and its Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
_JAVA: Final = "java"


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time until now, in seconds, user and system.

    Attributes:
        java: Of the Java process.
        python: Of all Python workers, those that have ended included.
    """

    java: float
    python: float

    def since(self, before: Usage) -> Usage:
        """Return the growth since; never less than nothing.

        A worker that was idle for too long is ended, and what it had used may go with it.
        """
        return Usage(max(self.java - before.java, 0.0), max(self.python - before.python, 0.0))


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as the kernel tells of it.

    Attributes:
        pid: Its id.
        parent: That of its parent.
        name: Of its program.
        ticks: Of its own.
        waited: Of children that have ended.
    """

    pid: int
    parent: int
    name: str
    ticks: int
    waited: int


def parse_stat(stat: str) -> Process:
    """Read the text of `/proc/PID/stat`; the name may hold blanks and brackets."""
    start, _, rest = stat.rpartition(")")
    pid, _, name = start.partition("(")
    fields = rest.split()
    own, waited = fields[11:13], fields[13:15]
    return Process(int(pid), int(fields[1]), name, sum(map(int, own)), sum(map(int, waited)))


def below(root: int, processes: list[Process]) -> list[Process]:
    """The children of a process, with theirs."""
    found = []
    parents = {root}
    while children := [each for each in processes if each.parent in parents]:
        found += children
        parents = {each.pid for each in children}
    return found


def usage(descendants: list[Process]) -> Usage:
    """Add up what Java and Python used. What Java has waited for was Python."""
    java = sum(each.ticks for each in descendants if each.name == _JAVA)
    both = sum(each.ticks + each.waited for each in descendants)
    return Usage(java / _TICKS_PER_SECOND, (both - java) / _TICKS_PER_SECOND)


def descendants() -> list[Process]:
    """The processes below this one."""
    return below(os.getpid(), list(_processes()))


def worker_memory() -> dict[int, int]:
    """Bytes of each Python worker by its id, shared pages by their shares (PSS)."""
    found = {}
    for each in descendants():
        if each.name != _JAVA:
            with suppress(OSError):
                found[each.pid] = _pss((_PROC / str(each.pid) / "smaps_rollup").read_text())
    return found


def _pss(rollup: str) -> int:
    for line in rollup.splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    return 0  # it has just ended


def _processes() -> Iterator[Process]:
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            yield parse_stat((folder / "stat").read_text())
