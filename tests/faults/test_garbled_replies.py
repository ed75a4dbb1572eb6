"""Replies whose bytes make no sense: errors of the tree, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from grpclib.const import Cardinality, Handler
from grpclib.server import Server as GrpcServer
from grpclib.server import Stream

from liftbridge_aio import Client, ClientOptions, LiftbridgeError
from liftbridge_aio._core.addresses import format_address
from liftbridge_aio.net.call import BytesCodec
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import (
    FETCH_CURSOR,
    FETCH_METADATA,
    FETCH_PARTITION_METADATA,
    PUBLISH_TO_SUBJECT,
    Rpc,
)
from support.faults import BOUND, QUICK, nothing_left_behind, within

pytestmark = pytest.mark.real_time

Calls = Callable[[Client], Awaitable[Any]]

TEXT: Final = b"\x0a\x02hi"
"""Field 1, of a length: a number or a message is due there, or a message of other fields."""
NUMBER_IN_A_MESSAGE: Final = b"\x0a\x02\x08\x07"
"""Field 1, and in it a field 1 that is a number: text is due there."""

GARBLED: Final[dict[str, tuple[Rpc[Any, Any], bytes, Calls]]] = {
    "brokers": (FETCH_METADATA, NUMBER_IN_A_MESSAGE, lambda c: c.fetch_metadata()),
    "cursor": (FETCH_CURSOR, TEXT, lambda c: c.fetch_cursor("me", "s", 0)),
    "partition": (
        FETCH_PARTITION_METADATA,
        b"\x0a\x03\x12\x01\xff",
        lambda c: c.fetch_partition_metadata("s", 0),
    ),
    "ack": (
        PUBLISH_TO_SUBJECT,
        NUMBER_IN_A_MESSAGE,
        lambda c: c.publish_to_subject("s", b"x"),
    ),
}


class Garbling:
    """A server of one stream that answers with the bytes it is told to."""

    def __init__(self) -> None:
        self.garbled: dict[str, bytes] = {}
        self.address = ""

    def __mapping__(self) -> dict[str, Handler]:
        rpcs = [rpc for rpc, _, _ in GARBLED.values()]
        return {rpc.path: self._handler(rpc) for rpc in rpcs}

    def _handler(self, rpc: Rpc[Any, Any]) -> Handler:
        async def answer(stream: Stream[bytes, bytes]) -> None:
            await stream.recv_message()
            await stream.send_message(self.garbled.get(rpc.name, self._good(rpc)))

        return Handler(answer, Cardinality.UNARY_UNARY, bytes, bytes)

    def _good(self, rpc: Rpc[Any, Any]) -> bytes:
        if rpc is not FETCH_METADATA:
            return b""
        host, port = self.address.split(":")
        partition = proto.PartitionMetadata(leader="n1", replicas=["n1"], isr=["n1"])
        streams = [
            proto.StreamMetadata(name=name, partitions={0: partition})
            for name in ("s", "__cursors")
        ]
        broker = proto.Broker(id="n1", host=host, port=int(port))
        return bytes(proto.FetchMetadataResponse(brokers=[broker], stream_metadata=streams))


@contextlib.asynccontextmanager
async def garbling() -> AsyncIterator[Garbling]:
    answers = Garbling()
    server = GrpcServer([answers], codec=BytesCodec())
    listening = socket.create_server(("127.0.0.1", 0))
    answers.address = format_address(*listening.getsockname())
    await server.start(sock=listening)
    try:
        yield answers
    finally:
        server.close()
        await asyncio.wait_for(server.wait_closed(), BOUND)


@pytest.mark.parametrize("what", GARBLED)
async def test_a_reply_that_cannot_be_read(what: str) -> None:
    rpc, reply, call = GARBLED[what]
    options = ClientOptions(backoff=QUICK, call_timeout=2.0)
    async with (
        nothing_left_behind(),
        garbling() as server,
        Client(server.address, options=options) as client,
    ):
        server.garbled[rpc.name] = reply
        with pytest.raises(LiftbridgeError, match="cannot be read"):
            await within(BOUND, call(client))
        server.garbled.clear()
        await within(BOUND, client.fetch_metadata())
