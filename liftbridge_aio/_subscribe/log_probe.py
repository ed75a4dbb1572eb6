"""Finds out where a partition's log begins, and whether retention has emptied it.

The API has no call for that. But a Subscribe whose stop is before its start is refused with both
offsets in the text, even if the start was given as a position or a time. So a stop before every
offset makes the server name the offset where it would start, and nothing is read.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.status import CallFailure, Code, StreamEnd, stream_end
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import StartAt, StartPosition
from liftbridge_aio.net.broker_connection import Purpose
from liftbridge_aio.net.call import Call
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import message_place
from liftbridge_aio.wire.rpc import SUBSCRIBE

_BEFORE_ALL: Final = -2
"""A stop offset before every start; to servers, -1 is no stop."""
_REFUSAL: Final = re.compile(rf"Stop offset is before start offset: {_BEFORE_ALL} < (\d+)")

_NOTHING_LEFT: Final = frozenset({StreamEnd.STOP_REACHED, StreamEnd.READONLY, StreamEnd.EMPTY})
_SILENCE: Final = 0.75
"""Seconds without a first message after which the server is probed."""
_SILENCES: Final = 2
"""Such intervals, each with the answers of an emptied log, after which the log counts as one."""
_LOOKED_AT: Final = 32
"""Messages that are read to find gaps of compaction."""
_ANSWER: Final = 2.0
"""Seconds for these answers; without them, silence proves nothing."""


@dataclass(frozen=True, slots=True)
class LogProbe:
    """The log of a partition as one server has it."""

    network: Network
    address: str
    """Address of the server."""
    stream: str
    partition: int
    any_replica: bool = False
    """True if the server need not be the leader."""

    unpause: bool = False
    """True if a paused partition is resumed."""

    async def oldest_offset(self) -> int | None:
        """Return the offset of the oldest message. Cancelling resets the call.

        Returns:
            The offset, which is 0 for an empty log too; None if the server does not name it.

        Raises:
            CallFailure: the server refused otherwise, or could not be reached.
        """
        return await self._start_offset(StartAt.earliest())

    async def offset_from(self, timestamp: int) -> int | None:
        """Return the offset at which the server starts from a time (Unix nanoseconds).

        Servers up to 1.9.0 miss messages: `time_lookup` explains when. Cancelling resets the call.

        Returns:
            The offset, which may be the end of the log; None if the server does not name it.

        Raises:
            CallFailure: the server refused, or could not be reached.
        """
        return await self._start_offset(StartAt.time(timestamp))

    async def first_place(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first message from `start` to `stop`, inclusive.

        Cancelling resets the call.

        Args:
            start: the lowest offset that counts.
            stop: the highest one; it has been committed.

        Returns:
            None if the log has no such message any more.

        Raises:
            CallFailure: the call failed.
        """
        request = proto.SubscribeRequest(
            stream=self.stream,
            partition=self.partition,
            start_position=proto.StartPosition.OFFSET,
            start_offset=start,
            stop_position=proto.StopPosition.STOP_OFFSET,
            stop_offset=stop,
            read_isr_replica=self.any_replica,
        )
        connection = await self.network.pool.get(self.address, Purpose.SUBSCRIBE)
        try:
            async with connection.open(SUBSCRIBE) as call:
                await call.send([bytes(request)], end=True)
                await call.receive()  # the handshake
                message = await self.first_message(call, stop)
        except CallFailure as failure:
            if stream_end(failure) in _NOTHING_LEFT:
                return None
            raise
        return None if message is None else message_place(message)

    async def is_emptied(self, offset: int) -> bool:
        """Return True if the log seems empty although it once had a message at `offset`.

        A log whose first segment begins at 0, with only an empty one behind it, looks the same. So
        this is proof only together with a reader that receives nothing. Cancelling resets the call.

        Raises:
            CallFailure: the server refused otherwise, or could not be reached.
        """
        newest = await self._start_offset(StartAt.latest())
        if newest is None or newest < offset or await self.oldest_offset():
            return False
        # The search by time ends at an empty last segment, and answers with the next offset.
        return await self._start_offset(StartAt.time(0)) == newest + 1

    async def shows_compaction(self) -> bool:
        """Return True if there are gaps between the oldest messages.

        Only compaction leaves such gaps; a compacted stream may have none. Cancelling resets the
        call.

        Raises:
            CallFailure: the server ended the call, or could not be reached.
        """
        request = proto.SubscribeRequest(
            stream=self.stream,
            partition=self.partition,
            start_position=proto.StartPosition.EARLIEST,
            stop_position=proto.StopPosition.STOP_LATEST,
            read_isr_replica=self.any_replica,
        )
        offsets: list[int] = []
        connection = await self.network.pool.get(self.address, Purpose.SUBSCRIBE)
        try:
            async with connection.open(SUBSCRIBE) as call:
                await call.send([bytes(request)], end=True)
                message = await call.receive()  # the handshake
                while message is not None and len(offsets) < _LOOKED_AT:
                    message = await call.receive()
                    if message is not None:
                        offsets.append(message_place(message)[0])
        except CallFailure as failure:
            if stream_end(failure) not in {StreamEnd.STOP_REACHED, StreamEnd.READONLY}:
                raise
        return bool(offsets) and offsets[-1] - offsets[0] >= len(offsets)

    async def _start_offset(self, start: StartAt) -> int | None:
        by_time = start.position is StartPosition.TIMESTAMP
        request = proto.SubscribeRequest(
            stream=self.stream,
            partition=self.partition,
            start_position=proto.StartPosition(start.position),
            start_timestamp=start.value if by_time else 0,
            stop_position=proto.StopPosition.STOP_OFFSET,
            stop_offset=_BEFORE_ALL,
            read_isr_replica=self.any_replica,
            resume=self.unpause,
        )
        connection = await self.network.pool.get(self.address, Purpose.SUBSCRIBE)
        try:
            async with connection.open(SUBSCRIBE) as call:
                await call.send([bytes(request)], end=True)
                await call.receive()
        except CallFailure as failure:
            said = _REFUSAL.search(failure.text)
            if said is None:
                raise
            return int(said[1])
        return None

    async def first_message(self, call: Call, offset: int) -> bytes | None:
        """Return the first message of a bounded subscription; None if the log was emptied.

        Servers let readers of an emptied log wait, but send the first message of any other within
        milliseconds. So two silent intervals, each with the answers of an emptied log, count as
        proof. If `offset` does not exist yet, the wait continues. Cancelling ends the wait; close
        the call then.

        Raises:
            CallFailure: the call ended.
        """
        receiving = asyncio.ensure_future(call.receive())
        receiving.add_done_callback(_retrieve_exception)
        silences = 0
        silence: float | None = _SILENCE
        try:
            while not (await asyncio.wait({receiving}, timeout=silence))[0]:
                emptied = await self._answers_as_emptied(offset)
                if emptied is False:
                    silence = None  # there is something to come
                silences = silences + 1 if emptied else 0
                if silences == _SILENCES and not receiving.done():
                    return None
            message = receiving.result()
        finally:
            receiving.cancel()
        if message is None:
            raise CallFailure(Code.OK, "the server ended the call")
        return message

    async def _answers_as_emptied(self, offset: int) -> bool | None:
        """Return the result of `is_emptied`; None if there was no answer."""
        try:
            async with asyncio.timeout(_ANSWER):
                return await self.is_emptied(offset)
        except (CallFailure, LiftbridgeError, TimeoutError):
            return None  # the call that is awaited fails with the reason


def _retrieve_exception(receiving: asyncio.Future[bytes | None]) -> None:
    """Keep asyncio from logging an error that nobody awaits any more."""
    if not receiving.cancelled():
        receiving.exception()
