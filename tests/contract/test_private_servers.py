"""Facts that need a server of their own: other settings, or requests that kill it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import nats
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, eventually, message
from support.servers.node import LiftbridgeNode

StartRealServer = Callable[..., LiftbridgeNode]
TOO_LARGE: Final = "message exceeds max replication size"


@asynccontextmanager
async def connected(node: LiftbridgeNode) -> AsyncIterator[Wire]:
    wire = Wire(node.host, node.port)
    try:
        yield wire
    finally:
        wire.close()


async def ended(node: LiftbridgeNode) -> None:
    await eventually(lambda: not node.running)


async def test_a_message_above_the_replication_limit_is_too_large(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    limit = {"clustering.replication.max.bytes": 1000}
    node = await asyncio.to_thread(start_real_server, limit)
    async with connected(node) as wire:
        await wire.create(stream_name)
        big = message(stream_name, bytes(1000), correlation_id="id")

        assert await wire.refusal(rpc.PUBLISH, big) == End(Status.INVALID_ARGUMENT, TOO_LARGE)
        async with wire.publish_session() as session:
            await session.send(big)
            reply = await session.next()
        assert reply.async_error == proto.PublishAsyncError(
            code=proto.PublishAsyncErrorCode.BAD_REQUEST, message=TOO_LARGE
        )
        to_subject = proto.PublishToSubjectRequest(subject=stream_name, value=bytes(1000))
        nack = (await wire.call(rpc.PUBLISH_TO_SUBJECT, to_subject)).ack
        assert nack is not None
        assert nack.ack_error == proto.AckError.TOO_LARGE
        assert (nack.stream, nack.offset, nack.commit_timestamp) == (stream_name, 0, 0)
        [ack] = await wire.publish(stream_name, bytes(500))
        assert ack.offset == 0


async def test_without_partitions_for_them_there_are_no_cursors(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    node = await asyncio.to_thread(start_real_server, {"cursors.stream.partitions": 0})
    missing = End(Status.INTERNAL, "Cursors stream does not exist")
    async with connected(node) as wire:
        store = proto.SetCursorRequest(stream=stream_name, cursor_id="id")
        assert await wire.refusal(rpc.SET_CURSOR, store) == missing
        fetch = proto.FetchCursorRequest(stream=stream_name, cursor_id="id")
        assert await wire.refusal(rpc.FETCH_CURSOR, fetch) == missing


FATAL: Final[dict[str, dict[str, Any]]] = {
    "name with white space": {"name": "white space"},
    "name with empty token": {"name": "a..b"},
    "name longer than a file name": {"name": "n" * 256},
    "group with white space": {"name": "n", "group": "white space"},
    "negative partitions": {"name": "n", "partitions": -1},
    "negative interval": {"name": "n", "cleaner_interval": proto.NullableInt64(value=-1)},
}


async def test_some_streams_kill_the_server(start_real_server: StartRealServer) -> None:
    """Why a client must check them before it sends: the server does not.

    Starting is mostly waiting, so all these servers start side by side.
    """

    async def kills(fields: dict[str, Any]) -> bool:
        node = await asyncio.to_thread(start_real_server)
        request = proto.CreateStreamRequest(**{"subject": "subject", **fields})
        async with connected(node) as wire:
            with pytest.raises(StreamTerminatedError):
                await wire.call(rpc.CREATE_STREAM, request)
        await ended(node)
        return "panic: " in node.log

    deaths = await asyncio.gather(*map(kills, FATAL.values()))
    assert dict(zip(FATAL, deaths, strict=True)) == dict.fromkeys(FATAL, True)


async def test_a_subject_that_nats_refuses_breaks_the_server_for_all(
    start_real_server: StartRealServer,
) -> None:
    """NATS hangs up on the server, which does not survive what anybody asks for next."""
    node = await asyncio.to_thread(start_real_server)
    async with connected(node) as wire:
        await wire.create("culprit", subject="a.>.b")

        async def innocent_request_kills() -> bool:
            with suppress(StreamTerminatedError, GRPCError, OSError):
                await wire.create("innocent")
                await wire.delete("innocent")
            return not node.running

        await eventually(innocent_request_kills)
    assert "panic: " in node.log


async def test_an_envelope_whose_header_is_longer_than_itself_kills_the_server(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    node = await asyncio.to_thread(start_real_server)
    async with connected(node) as wire:
        await wire.create(stream_name)
    connection = await nats.connect(node.nats_url)
    await connection.publish(stream_name, bytes.fromhex("b90e43b4 00 c8 00 00"))
    with suppress(nats.errors.Error):  # the server may be gone before it answers
        await connection.flush()
    await connection.close()
    await ended(node)
    assert "panic: " in node.log
