"""The running event loop, which must be asyncio's."""

from __future__ import annotations

import asyncio

from liftbridge_aio.errors import UsageError


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
