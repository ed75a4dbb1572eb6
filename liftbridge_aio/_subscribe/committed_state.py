"""Waits until everything that a partition stores can be read; publishes something where it must.

It imports little: every process of Spark imports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from liftbridge_aio.errors import IncorrectOffset
from liftbridge_aio.model import PartitionInfo

_PUBLISH_AFTER: Final = 0.25
"""Seconds after which something is published, so that what is stored is committed."""
_POLL_INTERVAL: Final = 0.02


async def committed_state(
    fetch: Callable[[], Awaitable[PartitionInfo]], publish: Callable[[int], Awaitable[object]]
) -> PartitionInfo:
    """Return the leader's state of a partition that is written to, once all of it can be read.

    A leader that lost its high watermark in a restart and has no other replica delivers nothing
    behind that until something is published; see `log_start.settled_state`. Cancelling may leave a
    message without content stored.

    Args:
        fetch: returns the leader's state.
        publish: stores a message without content at the offset that it is given, with an ack from
            every replica; called again until everything is committed.

    Raises:
        LiftbridgeError: the error of `fetch` or `publish`, other than `IncorrectOffset`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + _PUBLISH_AFTER
    while True:
        state = await fetch()
        if state.high_watermark >= state.newest_offset:
            return state
        if loop.time() < until:
            await asyncio.sleep(_POLL_INTERVAL)
        else:
            with suppress(IncorrectOffset):  # somebody else has published
                await publish(state.newest_offset + 1)
