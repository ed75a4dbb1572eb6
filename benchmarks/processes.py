"""Figures of a process from Linux: its processor time and its memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float | None:
    """Processor time of processes until now, user and system together; None without /proc."""
    ticks = 0
    for pid in pids:
        try:
            ticks += cpu_ticks(Path(f"/proc/{pid}/stat").read_text())
        except FileNotFoundError:
            return None
    return ticks / _TICKS_PER_SECOND


def are_running(pids: Iterable[int]) -> bool:
    """Return True if every process is running; one that nobody has waited for has ended."""
    try:
        states = [state(Path(f"/proc/{pid}/stat").read_text()) for pid in pids]
    except FileNotFoundError:
        return False
    return not {"Z", "X"}.intersection(states)


def state(stat: str) -> str:
    """The letter for what a process does, in the text of `/proc/PID/stat`."""
    return stat.rpartition(")")[2].split()[0]


def cpu_ticks(stat: str) -> int:
    """User and system ticks in the text of `/proc/PID/stat`.

    The name of the process comes before them and may hold blanks and brackets.
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def memory_bytes(status: str, field: str) -> int:
    """A field of `/proc/PID/status` in bytes, such as `VmRSS` or `VmHWM`.

    Raises:
        KeyError: There is no such field.
    """
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)
