"""Cancels an operation each time that anything of it waits: at the first, the second, and so on."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import liftbridge_aio
from liftbridge_aio import LiftbridgeError
from support.faults import BOUND

_ROOT: Final = str(Path(liftbridge_aio.__file__).parent)
_OTHERS: Final = tuple(f"{_ROOT}/{room}/" for room in ("broker", "testing"))


class Moment(enum.Enum):
    """When the cancellation comes, seen from what is waited for."""

    BEFORE = "before"
    """While it is waited for."""
    TOGETHER = "together"
    """When it is there already, but who waits for it has not gone on."""


class Suspensions:
    """Sees every task of the client in this event loop wait, and cancels one at the chosen time."""

    def __init__(self) -> None:
        self.place: list[str] = []
        """The location of the last cancellation: files and lines, from the outermost."""
        self.count = 0
        self._at = 0
        self._moment = Moment.BEFORE
        self._victim: asyncio.Task[Any] | None = None

    def aim(self, victim: asyncio.Task[Any], at: int, moment: Moment) -> None:
        """Cancel a task when the client has waited `at` times from now on, in whatever task."""
        self.count = 0
        self._victim, self._at, self._moment = victim, at, moment

    def suspended(self, coroutine: Any, waits_for: Any) -> None:
        """Take note that a coroutine is about to wait."""
        place = [] if self._victim is None else _place(coroutine)
        if self._victim is None or not place:
            return
        self.count += 1
        if self.count != self._at:
            return
        victim, self._victim = self._victim, None
        self.place = place
        if self._moment is Moment.TOGETHER and isinstance(waits_for, asyncio.Future):
            waits_for.add_done_callback(lambda _: victim.cancel())
        else:
            victim.cancel()


class _Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that tells when it waits."""

    def __init__(self, suspensions: Suspensions, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._suspensions = suspensions
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._told(self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._told(self._coroutine.throw(*error))

    def _told(self, waits_for: Any) -> Any:
        self._suspensions.suspended(self._coroutine, waits_for)
        return waits_for

    def close(self) -> None:
        self._coroutine.close()


@contextmanager
def watched_suspensions() -> Iterator[Suspensions]:
    """Have every task that begins meanwhile be seen when it waits."""
    loop = asyncio.get_running_loop()
    suspensions = Suspensions()

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Any, /, **rest: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(_Stepped(suspensions, coroutine), loop=loop, **rest)

    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        yield suspensions
    finally:
        loop.set_task_factory(before)


def _place(coroutine: Any) -> list[str]:
    """Return where in the client a coroutine waits; empty in the broker's or the test's code."""
    found: list[str] = []
    inner = coroutine
    while inner is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(inner, f"{kind}_frame")), "")
        if not kind:
            break
        frame = getattr(inner, f"{kind}_frame")
        file = "" if frame is None else frame.f_code.co_filename
        if file.startswith(_OTHERS):
            return []
        if file.startswith(_ROOT):
            found.append(f"{file.removeprefix(_ROOT)}:{frame.f_lineno}")
        inner = getattr(inner, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return found


async def cancelled_at(
    suspensions: Suspensions,
    at: int,
    moment: Moment,
    operation: Callable[[], Coroutine[Any, Any, Any]],
) -> bool:
    """Run an operation, cancelled when the client waits for the `at`-th time.

    It must end within `BOUND` seconds, by its result, an error of the tree or its cancellation,
    and hold one request to be cancelled at most: the one that was made.

    Returns:
        Whether it came so far; False where it had ended before.
    """
    held: list[int] = []

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await operation()
        finally:
            held.append(task.cancelling())

    task = asyncio.create_task(run(), name="the operation under test")
    suspensions.aim(task, at, moment)
    done, _ = await asyncio.wait([task], timeout=BOUND)
    assert done, f"does not end after its cancellation, number {at}, at {suspensions.place}"
    struck = suspensions.count >= at
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LiftbridgeError):
        raise error
    assert held == [int(task.cancelled())], "a cancellation was swallowed, or one held too many"
    return struck
