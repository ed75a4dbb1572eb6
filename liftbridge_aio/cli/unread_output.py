"""Commands that go on for ever end when nobody reads what they write."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def while_output_is_read() -> AsyncIterator[None]:
    """End what runs inside once the other end of the pipe that is stdout has been closed.

    Without that, `… | head` would go on until the next message comes. Cancelling passes through.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    pipe = _pipe()
    if pipe is None:
        yield
        return
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def unread() -> None:
                loop.remove_reader(pipe)
                limit.reschedule(loop.time())

            # Nothing ever comes from the end that is written to, but that the other one is closed.
            loop.add_reader(pipe, unread)
            try:
                yield
            finally:
                loop.remove_reader(pipe)
    except TimeoutError:
        if not limit.expired():
            raise
        raise BrokenPipeError from None


def _pipe() -> int | None:
    """Return the descriptor of stdout if it is a pipe: others cannot be asked."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # it is no file, or is closed
        return None
    return descriptor if stat.S_ISFIFO(mode) else None
