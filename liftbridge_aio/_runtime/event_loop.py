"""The running event loop, which must be asyncio's, in the process in which it was started."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

from liftbridge_aio.errors import UsageError

T = TypeVar("T")


class BoundToProcess(Protocol):
    """Something with connections, which only one process can use."""

    def _abandon(self) -> None:
        """Refuse every use from now on, and send nothing: this is the child of a fork."""


bound_to_process: Final[weakref.WeakSet[BoundToProcess]] = weakref.WeakSet()
"""What is abandoned in a forked child: it shares the sockets of its parent, and what one of them
writes would be in the middle of what the other does."""


def _abandon_all() -> None:
    for each in bound_to_process:
        each._abandon()  # noqa: SLF001 - no call for users


def forked(what: str) -> str:
    """Return the text of the error of something that was abandoned."""
    return f"{what} was connected in the parent of this forked process"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop, before `what` is started in it.

    Raises:
        UsageError: no asyncio event loop is running, for example under trio.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            f"{what} requires asyncio, and no asyncio event loop runs here (not on trio):"
            " start the program with asyncio.run(), or with anyio.run() and its backend 'asyncio'"
        ) from None


def begun_later(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Return a coroutine for a task whose work must not begin before its creator has gone on.

    With an eager task factory the first step of a task runs inside the call that creates it, before
    the creator has noted the task, and a task that creates others runs theirs, too.
    """
    if asyncio.get_running_loop().get_task_factory() is None:
        return work
    later = _after_a_step(work)
    weakref.finalize(later, work.close)  # else Python would warn of work that never begins
    return later


async def _after_a_step(work: Coroutine[Any, Any, T]) -> T:
    await asyncio.sleep(0)
    return await work
