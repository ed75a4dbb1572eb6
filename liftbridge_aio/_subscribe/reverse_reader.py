"""Reads in reverse what servers skip, and finds out if they support reverse reading.

Servers before API 2.0.0 ignore the flag and read forwards. Asked for offset 0 in reverse, a server
that supports it answers with one message or none; others send a second one.

A server that reads in reverse uses the start offset as an index into its segment. If compaction has
left fewer messages there, it skips the whole segment. So the offsets between the requested one and
the first message are read forwards, a part at a time, the last part first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from liftbridge_aio._core.status import CallFailure, Code, Reach, StreamEnd, stream_end
from liftbridge_aio.errors import ConnectionFailed, RequestTimeout, UnsupportedByServer
from liftbridge_aio.net.broker_connection import Purpose
from liftbridge_aio.net.call import Call
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import message_place
from liftbridge_aio.wire.rpc import SUBSCRIBE

from .core.plan import ReadingPlan
from .core.position import ReversePosition
from .log_probe import LogProbe
from .receive_buffer import ReceiveBuffer, size_of

_ENDS: Final = frozenset({StreamEnd.STOP_REACHED, StreamEnd.READONLY, StreamEnd.REVERSE_DONE})
_PART_BYTES: Final = 2**20
"""Bytes of a part, about."""


async def oldest_offset(probe: LogProbe, plan: ReadingPlan, newest: int) -> int:
    """Return the offset at which reverse reading ends.

    If retention has emptied the log, it is the one behind `newest`. Cancelling resets the call.

    Args:
        probe: of the leader of the partition.
        plan: what is to be read.
        newest: offset of the newest committed message.

    Raises:
        UnsupportedByServer: the server does not support it.
        CallFailure: the subscription was not accepted.
    """
    request = _request(plan, 0, newest)
    request.reverse = True
    connection = await probe.network.pool.get(probe.address, Purpose.SUBSCRIBE)
    try:
        async with connection.open(SUBSCRIBE) as call:
            await call.send([bytes(request)], end=True)
            await call.receive()  # the handshake
            if await probe.first_message(call, newest) is None:
                return newest + 1
            if await call.receive() is not None:
                raise UnsupportedByServer(
                    "this server reads forwards only: reverse needs API 2.0.0",
                    stream=plan.stream,
                    partition=plan.partition,
                )
    except CallFailure as failure:
        if stream_end(failure, reverse=True) not in _ENDS:
            raise
    return await probe.oldest_offset() or 0


async def receive_backwards(
    call: Call,
    probe: LogProbe,
    plan: ReadingPlan,
    position: ReversePosition,
    buffer: ReceiveBuffer,
) -> None:
    """Put the first message into `buffer`, and before it the ones that the server has skipped.

    Cancelling resets the calls.

    Args:
        call: the accepted Subscribe.
        probe: of the server that is read from.
        plan: what is read.
        position: of the reader.
        buffer: takes the messages.

    Raises:
        CallFailure: the call ended, or another that was needed.
    """
    highest, lowest = position.next, position.stop_offset or 0
    first: bytes | None = None
    ended = CallFailure(Code.OK, "the server ended the call")
    try:
        first = await call.receive()
    except CallFailure as failure:
        ended = failure
    if first is not None:
        lowest = max(lowest, message_place(first)[0] + 1)
    elif stream_end(ended, reverse=True) is not StreamEnd.REVERSE_DONE:
        raise ended
    if lowest <= highest:
        highest = min(highest, await _high_watermark(probe, plan))
        async for part in _read_skipped(probe, plan, lowest, highest):
            buffer.put(part)
            await buffer.wait_for_space()
    if first is None:
        raise ended
    buffer.put([first])


async def _high_watermark(probe: LogProbe, plan: ReadingPlan) -> int:
    metadata = probe.network.metadata
    try:
        state = await metadata.partition(plan.stream, plan.partition, plan.timeout)
    except (ConnectionFailed, RequestTimeout) as error:
        raise CallFailure(Code.UNAVAILABLE, str(error), Reach.UNKNOWN) from error
    return state.high_watermark


async def _read_skipped(
    probe: LogProbe, plan: ReadingPlan, lowest: int, highest: int
) -> AsyncIterator[list[bytes]]:
    """Yield the messages from the offset `highest` down to `lowest`, a part at a time.

    `highest` or a higher offset must be committed. Cancelling resets the call.

    Raises:
        CallFailure: the server ended the call.
    """
    ranges = [(lowest, highest)]
    while ranges:
        first, last = ranges.pop()
        part, whole = await _read_forwards(probe, plan, first, last)
        if whole:
            yield part[::-1]
            continue
        # Too much for one part: half of it, by offsets, and then the other half.
        first = message_place(part[0])[0]
        middle = (first + last) // 2
        ranges += [(first, middle), (middle + 1, last)]


async def _read_forwards(
    probe: LogProbe, plan: ReadingPlan, first: int, last: int
) -> tuple[list[bytes], bool]:
    """Read the messages between two offsets; return them, and True if that is all of them.

    It is not if there are several, with more bytes than are read at once.
    """
    part: list[bytes] = []
    connection = await probe.network.pool.get(probe.address, Purpose.SUBSCRIBE)
    try:
        async with connection.open(SUBSCRIBE) as call:
            await call.send([bytes(_request(plan, first, last))], end=True)
            await call.receive()  # the handshake
            message = await probe.first_message(call, last)
            while message is not None:
                offset, _ = message_place(message)
                if offset <= last:
                    part.append(message)
                if offset >= last:
                    break
                if len(part) > 1 and size_of(part) > _PART_BYTES:
                    return part, False
                message = await call.receive()
    except CallFailure as failure:
        if stream_end(failure) not in _ENDS:
            raise
    return part, True


def _request(plan: ReadingPlan, first: int, last: int) -> proto.SubscribeRequest:
    return proto.SubscribeRequest(
        stream=plan.stream,
        partition=plan.partition,
        start_position=proto.StartPosition.OFFSET,
        start_offset=first,
        stop_position=proto.StopPosition.STOP_OFFSET,
        stop_offset=last,
        read_isr_replica=plan.from_isr_replica,
        resume=plan.unpause,
    )
