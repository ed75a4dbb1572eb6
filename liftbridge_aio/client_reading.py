"""The reading calls of the client: subscriptions and cursors."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from .arguments import INT32_MAX, INT64_MAX, about, check_text, check_whole_number
from .client_face import ClientFace
from .errors import InvalidRequest, LiftbridgeError, RequestTimeout
from .model import Message, StartAt, StopAt
from .options import UNSET, Duration, Unset, timer_seconds
from .reading_plan import ReadingPlan

if TYPE_CHECKING:
    from .subscription import Subscription

_NEW_ONLY: Final = StartAt.new_only()


class ClientReading(ClientFace):
    """Subscriptions, and the positions that readers store."""

    def subscribe(
        self,
        stream: str,
        partition: int = 0,
        start: StartAt = _NEW_ONLY,
        stop: StopAt | None = None,
        *,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        resume: bool = False,
        from_isr_replica: bool = False,
        reverse: bool = False,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Read a partition: iterate over what this returns, inside `async with` or without.

        Nothing happens before it is entered or iterated over.

        Args:
            stream: what to read.
            partition: which of its partitions.
            start: where to begin.
            stop: where to end; None goes on for ever.
            resubscribe_timeout: seconds to try to resume after a break, None for ever; left out:
                the client's value.
            resume: resume the partition if it is paused.
            from_isr_replica: read from any in-sync replica instead of the leader.
            reverse: read towards lower offsets; needs a server of API 2.0.0.
            timeout: seconds for the first handshake; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        parts = self._living
        plan = ReadingPlan(
            stream=stream,
            partition=partition,
            start=start,
            stop=stop,
            resubscribe_timeout=(
                self.options.resubscribe_timeout
                if isinstance(resubscribe_timeout, Unset)
                else resubscribe_timeout
            ),
            resume=resume,
            from_isr_replica=from_isr_replica,
            reverse=reverse,
            timeout=self._seconds(timeout),
            now=time.time_ns(),
        )
        return parts.subscription(plan, timer_seconds(self.options.close_timeout))

    async def _read_one(self, stream: str, partition: int, offset: int) -> Message | None:
        """Read the message at an offset; None where there is none. Bounded by call_timeout."""
        limit = self._seconds(None)
        parts = self._living
        try:
            async with asyncio.timeout(limit):
                state = await parts.connection.metadata.partition(stream, partition, limit)
                if offset > state.newest_offset:
                    return None  # and reading would wait for it
                reading = self.subscribe(
                    stream, partition, StartAt.offset(offset), StopAt.offset(offset)
                )
                async with reading:
                    async for message in reading:
                        return message
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"the message could not be read within {limit:g} s"
            raise RequestTimeout(text, stream=stream, partition=partition, offset=offset) from None
        return None

    async def set_cursor(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        offset: int,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Store a position in the server, by convention the last offset that was processed.

        Positions of one cursor that are set while another is being written are written as one, the
        newest. Rewinding is unreliable on v1.9.0 servers: after a restart they recover the highest
        position. Cancelling abandons the wait; the position may be stored or not.

        Args:
            cursor_id: names the cursor.
            stream: what the position belongs to.
            partition: which of its partitions.
            offset: the position, from 0 up.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        with about(stream, partition):
            check_whole_number(offset, "an offset", 0, INT64_MAX)
        await self._living.cursors.set(cursor_id, stream, partition, offset, self._seconds(timeout))

    async def fetch_cursor(
        self, cursor_id: str, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> int | None:
        """Read a stored position; None where none was stored. Cancelling abandons the call.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        return await self._living.cursors.fetch(
            cursor_id, stream, partition, self._seconds(timeout)
        )


def _check_cursor(cursor_id: str, stream: str, partition: int) -> None:
    with about(stream, partition):
        check_text(cursor_id, "the id of a cursor")
        check_text(stream, "a stream name")
        check_whole_number(partition, "a partition", 0, INT32_MAX)
        if not cursor_id or not stream:
            raise InvalidRequest("a cursor needs an id and the name of a stream")
