"""The running event loop, which must be asyncio's, in the process in which it was started."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Final, Protocol

from liftbridge_aio.errors import UsageError


class Connected(Protocol):
    """Something with connections, which only one process can use."""

    def abandon(self) -> None:
        """Refuse every use from now on, and send nothing: this is the child of a fork."""


connected: Final[weakref.WeakSet[Connected]] = weakref.WeakSet()
"""What is abandoned in a forked child: it shares the sockets of its parent, and what one of them
writes would be in the middle of what the other does."""


def _abandon_all() -> None:
    for each in connected:
        each.abandon()


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
        text = (
            f"{what} requires asyncio, and no asyncio event loop runs here (not on trio):"
            " start the program with asyncio.run(), or with anyio.run() and its backend 'asyncio'"
        )
        raise UsageError(text) from None
