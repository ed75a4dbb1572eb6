"""Handles SIGTERM as a request to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_stops: Final[dict[object, Callable[[], object]]] = {}
"""The callbacks for SIGTERM; the signal handler is installed while there are any."""
_previous: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = None


@contextmanager
def stopped_by_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop when SIGTERM arrives.

    A Python function that handled SIGTERM before is called too; the default, which ends the
    process, is not. The former handler is restored at the end. Does nothing outside the main
    thread, where signals cannot be handled.
    """
    global _previous  # noqa: PLW0603 - a process has one handler for a signal
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    key = object()
    if not _stops:
        _previous = signal.signal(signal.SIGTERM, _on_sigterm)
    _stops[key] = lambda: loop.call_soon_threadsafe(stop)
    try:
        yield
    finally:
        del _stops[key]
        if not _stops and signal.getsignal(signal.SIGTERM) is _on_sigterm:
            # None: it was installed by a C library, and cannot be restored from here.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if _previous is None else _previous)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    for stop in tuple(_stops.values()):
        stop()
    if callable(_previous):
        _previous(number, frame)
