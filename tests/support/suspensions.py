"""Cancels an operation wherever anything of it waits: at one place, the next, and so on."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from itertools import cycle, repeat
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
    """Sees every task of the client in this event loop wait, and cancels one at places of choice.

    A place is where in the client a task waits, together with where the operation does: what waits
    at both again, in a loop, is no other place.
    """

    def __init__(self) -> None:
        self._met: set[tuple[str, ...]] = set()
        """Places of cancellations until now."""
        self._strike: Strike | None = None
        """What waits for a place that is not among them."""
        self._victim: asyncio.Task[Any] | None = None
        """The operation that is to be cancelled there."""

    def strikes(self, *, alternating: bool = False) -> Iterator[Strike]:
        """Yield what cancels an operation, each time at another place, until there is none left.

        Args:
            alternating: True: at one moment or the other, in turn; False: at both.
        """
        for moments in [cycle(Moment)] if alternating else map(repeat, Moment):
            self._met.clear()
            for moment in moments:
                strike = Strike(self, moment)
                yield strike
                if not strike.place:
                    break

    def aim(self, strike: Strike | None, victim: asyncio.Task[Any] | None) -> None:
        """Cancel a task at the next place that was not met before; None: not any more."""
        self._strike, self._victim = strike, victim

    def suspended(self, coroutine: Any, waits_for: Any) -> None:
        """Take note that a coroutine is about to wait."""
        strike, victim = self._strike, self._victim
        place = [] if victim is None else _place(coroutine)
        if strike is None or victim is None or not place:
            return
        both = *place, "while", *_place(victim.get_coro())
        if both in self._met:
            return
        self._met.add(both)
        self._strike = None
        strike.place = place
        if strike.moment is Moment.TOGETHER and isinstance(waits_for, asyncio.Future):
            waits_for.add_done_callback(lambda _: victim.cancel())
        else:
            victim.cancel()


class Strike:
    """One cancellation.

    Args:
        suspensions: choose the place.
        moment: when it comes.
    """

    def __init__(self, suspensions: Suspensions, moment: Moment) -> None:
        self._suspensions = suspensions
        self.moment = moment
        self.place: list[str] = []
        """Its location: files and lines, from the outermost; empty if the operation ended."""

    def __repr__(self) -> str:
        return f"{self.moment.value} {self.place}"

    async def __call__(self, operation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an operation, and cancel it where none was cancelled before.

        It must end within `BOUND` seconds, by its result, an error of the tree or its
        cancellation, and hold one request to be cancelled at most: the one that was made.
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
        self._suspensions.aim(self, task)
        done, _ = await asyncio.wait([task], timeout=BOUND)
        self._suspensions.aim(None, None)
        assert done, f"does not end after its cancellation, {self}"
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LiftbridgeError):
            raise error
        assert held == [int(task.cancelled())], "a cancellation was swallowed, or one held too many"


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
