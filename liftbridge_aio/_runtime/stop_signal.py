"""Handles SIGTERM and Ctrl-C as a request to stop, or notices them."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeAlias

_Function: TypeAlias = Callable[[int, FrameType | None], object]
_Handler: TypeAlias = signal.Handlers | _Function | int | None

_stops: Final[dict[object, Callable[[], object]]] = {}
"""The callbacks for the signals; the signal handlers are installed while there are any."""
_previous: Final[dict[int, _Handler]] = {}
"""The handlers that ours have replaced."""
_heard: Final[set[int]] = set()
"""The signals that have arrived since ours were installed."""


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop when SIGTERM or SIGINT, which is Ctrl-C, arrives.

    A Python function that handled the signal before is called too. What Python and
    `asyncio.Runner` install for Ctrl-C is not, before the second one; nor is the default of
    SIGTERM, which ends the process. The former handlers are restored at the end. An ignored SIGINT
    stays ignored. Does nothing outside the main thread, where signals cannot be handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    key = object()
    if not _stops:
        _heard.clear()
        _previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, _on_signal)
        if callable(signal.getsignal(signal.SIGINT)):
            _previous[signal.SIGINT] = signal.signal(signal.SIGINT, _on_signal)
    _stops[key] = lambda: loop.call_soon_threadsafe(stop)
    try:
        yield
    finally:
        del _stops[key]
        if not _stops:
            for number, previous in _previous.items():
                if signal.getsignal(number) is _on_signal:
                    # None: it was installed by a C library, and cannot be restored from here.
                    signal.signal(number, signal.SIG_DFL if previous is None else previous)


def _on_signal(number: int, frame: FrameType | None) -> None:
    previous = _previous[number]
    is_first = bool(_stops) and number not in _heard
    _heard.add(number)
    for stop in tuple(_stops.values()):
        stop()
    if callable(previous) and not (is_first and _interrupts(previous)):
        previous(number, frame)


def _interrupts(handler: _Handler) -> bool:
    """Return True for the handlers that raise `KeyboardInterrupt` or cancel the main task."""
    if isinstance(handler, functools.partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler is signal.default_int_handler


@contextmanager
def on_stop_signals(notice: Callable[[], object]) -> Iterator[None]:
    """Call `notice` at SIGTERM and SIGINT, before the handlers that are installed.

    A server that shuts down waits for its responses without notifying them: an endless response
    would block it for ever. Signals without a handler are left unchanged, as are all outside the
    main thread, which receives none.

    Args:
        notice: called in the event loop.
    """
    loop = asyncio.get_running_loop()
    installed: dict[signal.Signals, tuple[_Function, _Function]] = {}

    def chained(handler: _Function) -> _Function:
        def handle(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(notice)
            handler(number, frame)

        return handle

    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if not callable(handler):
            continue
        try:
            signal.signal(number, ours := chained(handler))
        except ValueError:  # not the main thread
            break
        installed[number] = ours, handler
    try:
        yield
    finally:
        for number, (ours, handler) in installed.items():
            if signal.getsignal(number) is ours:  # otherwise another handler has replaced it
                signal.signal(number, handler)
