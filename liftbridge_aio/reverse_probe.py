"""Finds out whether a server reads backwards, and where such a reading ends.

Servers before API 2.0.0 ignore the flag and read forwards. Asked for everything from the earliest
message on, backwards, a server that can do it answers with that one message; one that cannot
answers with a second one.
"""

from __future__ import annotations

from .errors import UnsupportedByServer
from .model import BrokerInfo
from .net.connection import Connection
from .net.link import Purpose
from .reading_plan import ReadingPlan
from .status import CallFailure, StreamEnd, stream_end
from .wire import proto
from .wire.codec import decode_message
from .wire.rpc import SUBSCRIBE


async def oldest_offset(
    connection: Connection, broker: BrokerInfo, plan: ReadingPlan, newest: int
) -> int:
    """Return the oldest offset of the partition.

    Cancelling resets the call.

    Args:
        connection: how to reach the broker.
        broker: the leader of the partition.
        plan: what is to be read.
        newest: offset of the newest committed message, which exists.

    Raises:
        UnsupportedByServer: the server reads forwards only.
        CallFailure: the subscription was not accepted.
    """
    request = proto.SubscribeRequest(
        stream=plan.stream,
        partition=plan.partition,
        start_position=proto.StartPosition.EARLIEST,
        stop_position=proto.StopPosition.STOP_OFFSET,
        stop_offset=newest,
        resume=plan.resume,
        reverse=True,
    )
    link = await connection.pool.get(connection.router.address_of(broker), Purpose.SUBSCRIBE)
    offsets: list[int] = []
    try:
        async with link.open(SUBSCRIBE) as exchange:
            await exchange.send([bytes(request)], end=True)
            await exchange.receive()  # the handshake
            while len(offsets) < 2:
                data = await exchange.receive()
                if data is None:
                    break
                offsets.append(decode_message(data).offset)
    except CallFailure as failure:
        end = stream_end(failure, reverse=True)
        if end not in {StreamEnd.REVERSE_DONE, StreamEnd.STOP_REACHED}:
            raise
    if len(offsets) == 2:
        text = "this server reads forwards only: reverse came with API 2.0.0"
        raise UnsupportedByServer(text, stream=plan.stream, partition=plan.partition)
    return offsets[0] if offsets else newest
