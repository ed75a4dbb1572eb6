"""Reads parts of a log beside a reading: what it shows again, and what stands before its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import ClientClosed, ConnectionFailed, RequestTimeout, SubscriptionLost
from liftbridge_aio.model import EndReason, StartAt, StartPosition, StopAt
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.wire.raw_message import RawMessage

from .core.checkpoint import Checkpoint
from .core.plan import ReadingPlan
from .core.visibility import Visibility
from .recovery import Recovery

if TYPE_CHECKING:
    from .partition_reader import PartitionReader

_TAKEN_AT_ONCE: Final = 500
"""Messages that are looked at before other tasks may run."""


class PartReader:
    """Reads parts of the log that one committed reading reads.

    Args:
        plan: of the reading.
        recovery: of the reading: knows its stream, and whether it was accepted.
        network: how to reach the leader.
        make_reader: makes a reader of a part.
    """

    def __init__(
        self,
        plan: ReadingPlan,
        recovery: Recovery,
        network: Network,
        make_reader: Callable[[ReadingPlan], PartitionReader],
    ) -> None:
        self._plan = plan
        self._recovery = recovery
        self._network = network
        self._make_reader = make_reader

    async def look_back(self, visibility: Visibility) -> None:
        """Read what stands before a start that was given as an offset, and may be repeated.

        Cancelling closes the calls.

        Raises:
            LiftbridgeError: it could not be read.
        """
        plan, start = self._plan, self._plan.start
        if isinstance(start, Checkpoint) and start.producers is not None:
            visibility.resume(start.producers, start.value, start.delivered)
            return
        begin = start.value if start.position is StartPosition.OFFSET else 0
        first = max(begin - visibility.look_back, 0)
        if first >= begin:
            return
        state = await self._network.metadata.partition(plan.stream, plan.partition, plan.timeout)
        end = min(begin, state.high_watermark + 1)
        if first < end:
            await self.read(first, end, visibility.remember)

    async def read(self, begin: int, end: int, take: Callable[[RawMessage], None]) -> None:
        """Pass the messages from `begin` to before `end` to `take`.

        After an outage it goes on for as long as the reading itself would. Cancelling closes the
        calls.

        Raises:
            LiftbridgeError: they could not be read.
        """
        loop, limit = asyncio.get_running_loop(), self._plan.resubscribe_timeout
        deadline = inf if limit is None else loop.time() + timer_seconds(limit)
        while True:
            reader = self._make_reader(
                replace(
                    self._plan,
                    start=StartAt.offset(begin),
                    start_found=True,
                    stop=StopAt.offset(end - 1),
                    consumer=None,
                    make_visibility=None,
                    created=self._recovery.creation_timestamp,
                )
            )
            try:
                await _pass_on(reader, take)
            except (ConnectionFailed, RequestTimeout) as error:
                if not self._recovery.deadline.started:
                    raise
                if loop.time() >= deadline:
                    raise SubscriptionLost(
                        f"a part of the log could not be read again: {error.message}"
                    ) from error
                begin = reader.next_offset or begin
            else:
                return


async def _pass_on(reader: PartitionReader, take: Callable[[RawMessage], None]) -> None:
    buffer, decoder, plan = reader.buffer, reader.decoder, reader.plan
    try:
        reader.begin()
        while not buffer.over or decoder.buffered:
            if not decoder.buffered:
                await buffer.wait()
                continue
            for message in decoder.take_raw(_TAKEN_AT_ONCE, plan.stream, plan.partition):
                take(message)
            await asyncio.sleep(0)
        error = buffer.take_error()
        if error is not None:
            raise error
        if buffer.reason is EndReason.CLOSED:
            raise ClientClosed("the client was closed")
    finally:
        reader.drop()
        await reader.wait_closed()
