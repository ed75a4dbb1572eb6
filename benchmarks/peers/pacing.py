"""Messages at a fixed rate, however long their answers take.

A value carries the time at which it was due, and latencies count from then: whatever a client makes
a message wait before it is sent is not left out. The kernel's timer says when: those of event
loops may be a millisecond late, which would count as the client's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.peers.measuring import Unsupported

TOO_LATE: Final = 5.0
"""Seconds behind the rate after which a client is known not to keep up."""

_CLOCK_MONOTONIC: Final = 1
_DIGITS: Final = 16


def stamped(due: int, size: int) -> bytes:
    """A value that carries when it was due (of `time.monotonic_ns`), 0 for never."""
    return b"%0*d" % (_DIGITS, due) + b"x" * (size - _DIGITS)


def stamp(value: bytes) -> int:
    """When a value was due."""
    return int(value[:_DIGITS])


def paced(rate: int, messages: int) -> Iterator[int]:
    """When each message is due, as soon as it is; the caller's thread waits.

    Raises:
        Unsupported: The caller is too slow for the rate.
    """
    with _timer(rate, os.O_CLOEXEC) as (fd, began):
        ticks = 0
        for number in range(1, messages + 1):
            while ticks < number:
                ticks += int.from_bytes(os.read(fd, 8), "little")
            yield _due(began, number, rate)


async def apaced(rate: int, messages: int) -> AsyncIterator[int]:
    """When each message is due, as soon as it is; the event loop goes on meanwhile.

    Raises:
        Unsupported: The caller is too slow for the rate.
    """
    loop, ticked, ticks = asyncio.get_running_loop(), asyncio.Event(), 0
    with _timer(rate, os.O_CLOEXEC | os.O_NONBLOCK) as (fd, began):

        def tick() -> None:
            nonlocal ticks
            ticks += int.from_bytes(os.read(fd, 8), "little")
            ticked.set()

        loop.add_reader(fd, tick)
        try:
            for number in range(1, messages + 1):
                while ticks < number:
                    ticked.clear()
                    await ticked.wait()
                yield _due(began, number, rate)
        finally:
            loop.remove_reader(fd)


def _due(began: int, number: int, rate: int) -> int:
    due = began + number * 1_000_000_000 // rate
    if time.monotonic_ns() - due > TOO_LATE * 1e9:
        raise Unsupported(f"too slow for {rate:,} msg/s: {TOO_LATE:g} s late at message {number:,}")
    return due


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


@contextmanager
def _timer(rate: int, flags: int) -> Iterator[tuple[int, int]]:
    """A file that can be read at each tick, and when it began."""
    library = ctypes.CDLL(None, use_errno=True)
    fd = library.timerfd_create(_CLOCK_MONOTONIC, flags)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    try:
        each = _Timespec(*divmod(1_000_000_000 // rate, 1_000_000_000))
        began = time.monotonic_ns()
        if library.timerfd_settime(fd, 0, ctypes.byref(_Itimerspec(each, each)), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        yield fd, began
    finally:
        os.close(fd)
