"""Cursors that a lone server does not show, as it lost its high watermark in a restart."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest
from betterproto2 import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server as GrpcServer
from grpclib.server import Stream

from liftbridge_aio import Client, ClientOptions, CursorsUnavailable
from liftbridge_aio._core.addresses import format_address
from liftbridge_aio.net.call import BytesCodec
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import (
    FETCH_CURSOR,
    FETCH_METADATA,
    FETCH_PARTITION_METADATA,
    SET_CURSOR,
)
from support.faults import BOUND, QUICK, within

pytestmark = pytest.mark.real_time

STORED: Final = 40


class RestartedServer:
    """A server that shows the one cursor it stores after some writes have failed.

    A server that has just started refuses writes, and one that is killed after a write has lost its
    high watermark again.
    """

    def __init__(self, failures: float) -> None:
        self.failures = failures
        self.committed = False
        self.address = ""

    def __mapping__(self) -> dict[str, Handler]:
        return {
            rpc.path: self._handler(answer)
            for rpc, answer in (
                (FETCH_METADATA, self._metadata),
                (FETCH_PARTITION_METADATA, self._partition),
                (FETCH_CURSOR, self._cursor),
                (SET_CURSOR, self._write),
            )
        }

    def _handler(self, answer: Callable[[], Message]) -> Handler:
        async def handle(stream: Stream[bytes, bytes]) -> None:
            await stream.recv_message()
            await stream.send_message(bytes(answer()))

        return Handler(handle, Cardinality.UNARY_UNARY, bytes, bytes)

    def _metadata(self) -> proto.FetchMetadataResponse:
        host, port = self.address.split(":")
        stream = proto.StreamMetadata(name="__cursors", partitions={0: self._state()})
        broker = proto.Broker(id="n1", host=host, port=int(port))
        return proto.FetchMetadataResponse(brokers=[broker], stream_metadata=[stream])

    def _partition(self) -> proto.FetchPartitionMetadataResponse:
        return proto.FetchPartitionMetadataResponse(metadata=self._state())

    def _state(self) -> proto.PartitionMetadata:
        watermark = 1 if self.committed else 0
        one = ["n1"]
        return proto.PartitionMetadata(
            leader="n1", replicas=one, isr=one, newest_offset=1, high_watermark=watermark
        )

    def _cursor(self) -> proto.FetchCursorResponse:
        return proto.FetchCursorResponse(offset=STORED if self.committed else -1)

    def _write(self) -> proto.SetCursorResponse:
        if self.failures > 0:
            self.failures -= 1
            raise GRPCError(Status.UNKNOWN, "nats: timeout")
        self.committed = True
        return proto.SetCursorResponse()


@contextlib.asynccontextmanager
async def client_of(server: RestartedServer, timeout: float) -> AsyncIterator[Client]:
    grpc = GrpcServer([server], codec=BytesCodec())
    listening = socket.create_server(("127.0.0.1", 0))
    server.address = format_address(*listening.getsockname())
    await grpc.start(sock=listening)
    try:
        options = ClientOptions(backoff=QUICK, call_timeout=timeout)
        async with Client(server.address, options=options) as client:
            yield client
    finally:
        grpc.close()
        await within(BOUND, grpc.wait_closed())


async def test_a_cursor_is_found_though_writes_to_show_it_failed() -> None:
    async with client_of(RestartedServer(failures=3), BOUND) as client:
        assert await client.fetch_cursor("me", "s", 0) == STORED


async def test_a_cursor_that_stays_hidden_is_not_taken_for_none() -> None:
    async with client_of(RestartedServer(failures=float("inf")), 2.0) as client:
        with pytest.raises(CursorsUnavailable, match="uncommitted positions"):
            await client.fetch_cursor("me", "s", 0)
