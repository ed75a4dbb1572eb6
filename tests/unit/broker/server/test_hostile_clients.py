"""Hostile clients: others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from grpclib.client import Channel, Stream
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.rpc import Rpc
from support.examples import examples
from support.peers.http2_bytes import PREFACE, asks, frame
from support.raw import End, Wire, message

SETTINGS = frame(4, 0, 0)
NON_ASCII_HEADER = b"\x00\x06x-hack\x02\xff\xfe"


async def swallow(broker: EmbeddedBroker, data: bytes) -> None:
    """Send bytes, then end; wait for the server to give up."""
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    writer.write(data)
    await writer.drain()
    writer.write_eof()
    async with asyncio.timeout(5):
        while await reader.read(65_536):
            pass
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        PREFACE + b"\xff" * 100,
        PREFACE + SETTINGS + frame(1, 5, 1, NON_ASCII_HEADER),
        PREFACE + SETTINGS + frame(1, 5, 1, b"\xff" * 30),
        PREFACE + SETTINGS + frame(0, 0, 7, b"data of no stream"),
        PREFACE + SETTINGS + frame(0xEE, 0, 0, b"a frame of no known type"),
        PREFACE + SETTINGS + frame(7, 0, 0, bytes(8)),
        PREFACE + SETTINGS + frame(8, 0, 0, b"\x7f\xff\xff\xff"),
        PREFACE + SETTINGS + frame(1, 5, 1, b"\x82"),
        b"",
    ],
    ids=[
        *("http1", "tls", "no frames", "header beyond ascii", "no headers"),
        *("data without a call", "unknown frame", "goaway", "window overflow"),
        *("no pseudo headers", "nothing"),
    ],
)
async def test_malformed_calls(
    broker: EmbeddedBroker, wire: Wire, data: bytes, recwarn: pytest.WarningsRecorder
) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    await wire.create("s")
    async with wire.subscribe("s") as subscription:
        await swallow(broker, data)

        await wire.publish("s", b"still here")
        assert (await subscription.next()).value == b"still here"
    assert problems == []
    assert not recwarn.list


async def raw_end(broker: EmbeddedBroker, procedure: Rpc[Any, Any], body: bytes) -> End:
    """Return how a call ends whose request is exactly these bytes, prefix included."""
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    connection = h2.connection.H2Connection(h2.config.H2Configuration())
    connection.initiate_connection()
    connection.send_headers(1, list(asks(procedure.path).items()))
    connection.send_data(1, body, end_stream=True)
    writer.write(connection.data_to_send())
    try:
        async with asyncio.timeout(5):
            while data := await reader.read(65_536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                        got = dict(event.headers or ())
                        if b"grpc-status" in got:
                            text = got.get(b"grpc-message", b"").decode()
                            return End(Status(int(got[b"grpc-status"])), text)
    finally:
        writer.close()
        await writer.wait_closed()
    pytest.fail("the server closed the connection")


@pytest.mark.parametrize("procedure", [rpc.SUBSCRIBE, rpc.DELETE_STREAM, rpc.PAUSE_STREAM])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\1\0\0\0\1x", Status.UNIMPLEMENTED),
        (b"\0\xff\xff\xff\xffx", Status.RESOURCE_EXHAUSTED),
        (b"\0\0\0\0\4\x0a\xff\xff\xff", Status.INTERNAL),
        (b"\0\0\0\0\4\x0a\2\xff\xff", Status.INTERNAL),
        (b"\0\0\0\0\2\x08\5", Status.INTERNAL),
    ],
    ids=["compressed", "4 GiB", "no message", "no text", "number"],
)
async def test_a_malformed_request(
    broker: EmbeddedBroker, wire: Wire, procedure: Rpc[Any, Any], body: bytes, status: Status
) -> None:
    await wire.create("s")

    end = await raw_end(broker, procedure, body)

    assert end.status is status
    assert end.text
    assert await wire.publish("s", b"still here")


@pytest.mark.parametrize(
    ("procedure", "end"),
    [
        (rpc.CREATE_STREAM, End(Status.UNKNOWN, "unexpected EOF")),
        (rpc.SUBSCRIBE, End(Status.INTERNAL, "unexpected EOF")),
        (rpc.PUBLISH_ASYNC, End(Status.INTERNAL, "unexpected EOF")),
    ],
)
@pytest.mark.parametrize("body", [b"\0\0\0", b"\0\0\0\0\5x"], ids=["prefix", "message"])
async def test_a_truncated_frame(
    broker: EmbeddedBroker, procedure: Rpc[Any, Any], body: bytes, end: End
) -> None:
    assert await raw_end(broker, procedure, body) == end


@pytest.mark.parametrize("procedure", [rpc.CREATE_STREAM, rpc.FETCH_METADATA, rpc.SUBSCRIBE])
async def test_a_call_without_its_request(broker: EmbeddedBroker, procedure: Rpc[Any, Any]) -> None:
    assert await raw_end(broker, procedure, b"") == End(Status.UNKNOWN, "EOF")


IN_UNARY = "grpc: error unmarshalling request: unexpected EOF"
IN_STREAMING = "grpc: failed to unmarshal the received message unexpected EOF"


@pytest.mark.parametrize(
    ("procedure", "body", "text"),
    [
        (rpc.CREATE_STREAM, b"\xff\xff\xff", IN_UNARY),
        (rpc.CREATE_STREAM, b"\x0a", IN_UNARY),
        (rpc.CREATE_STREAM, b"\x0a\1s\x12\5t", IN_UNARY),
        (rpc.CREATE_STREAM, b"\x0a\1s\x12\1t\xf9\1ab", IN_UNARY),
        (rpc.PUBLISH, b"\xff", IN_UNARY),
        (rpc.PUBLISH, b"\x1a\1s\xfd\1ab", IN_UNARY),
        (rpc.SUBSCRIBE, b"\xff\xff", IN_STREAMING),
        (rpc.PUBLISH_ASYNC, b"\x1a\2s", IN_STREAMING),
    ],
    ids=["tag", "no length", "text", "unknown 8 bytes", "short tag", "4 bytes", "read", "session"],
)
async def test_a_message_with_a_truncated_last_field(
    broker: EmbeddedBroker, wire: Wire, procedure: Rpc[Any, Any], body: bytes, text: str
) -> None:
    await wire.create("s")

    end = await raw_end(broker, procedure, b"\0" + len(body).to_bytes(4, "big") + body)

    assert end == End(Status.INTERNAL, text)
    assert (await wire.partition("s")).newest_offset == -1
    assert broker.statistics().streams == 2  # with the cursors


async def test_a_field_of_another_version_is_not_truncated(broker: EmbeddedBroker) -> None:
    """Only the end of the message counts, not what its bytes mean."""
    body = bytes(proto.CreateStreamRequest(name="s", subject="s")) + b"\xfa\1\2ab\xfd\1abcd"

    end = await raw_end(broker, rpc.CREATE_STREAM, b"\0" + len(body).to_bytes(4, "big") + body)

    assert end == End(Status.OK)


@pytest.mark.parametrize("inbox", ["a b", "a..b", ".", "a\tb", "a.>.b"])
async def test_an_invalid_inbox_is_refused_if_the_call_waits(wire: Wire, inbox: str) -> None:
    await wire.create("s")
    publish = message("s", b"x", ack_inbox=inbox)
    to_subject = proto.PublishToSubjectRequest(subject="s", ack_inbox=inbox)
    refused = End(Status.UNKNOWN, "failed to subscribe to ack inbox: nats: invalid subject")

    assert await wire.refusal(rpc.PUBLISH, publish) == refused
    assert await wire.refusal(rpc.PUBLISH_TO_SUBJECT, to_subject) == refused
    assert (await wire.partition("s")).newest_offset == -1

    await wire.call(rpc.PUBLISH, publish, timeout=None)
    nothing = proto.AckPolicy.NONE
    await wire.call(rpc.PUBLISH, message("s", b"x", ack_inbox=inbox, ack_policy=nothing))
    async with wire.publish_session() as session:  # which has an inbox of its own
        await session.send(publish)
        assert (await session.next()).async_error is None
    assert (await wire.partition("s")).newest_offset == 2


async def test_headers_that_no_server_can_store_are_refused(wire: Wire) -> None:
    await wire.create("s")
    text = "the name of a header may have at most 32767 bytes"
    long = message("s", b"x", headers={"n" * 32_768: b""})
    to_subject = proto.PublishToSubjectRequest(subject="s", headers=long.headers)

    assert await wire.refusal(rpc.PUBLISH, long) == End(Status.INVALID_ARGUMENT, text)
    refused = await wire.refusal(rpc.PUBLISH_TO_SUBJECT, to_subject)
    assert refused == End(Status.INVALID_ARGUMENT, text)
    async with wire.publish_session() as session:
        await session.send(long)
        error = (await session.next()).async_error
    assert error
    assert (error.code, error.message) == (proto.PublishAsyncErrorCode.BAD_REQUEST, text)
    assert (await wire.partition("s")).newest_offset == -1

    await wire.publish("s", b"x", headers={"n" * 32_767: b""})


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    procedure=st.sampled_from([rpc.CREATE_STREAM, rpc.PUBLISH, rpc.FETCH_METADATA]),
    body=st.binary(max_size=40),
)
async def test_any_bytes_as_a_request(
    broker: EmbeddedBroker, procedure: Rpc[Any, Any], body: bytes
) -> None:
    prefixed = b"\0" + len(body).to_bytes(4, "big") + body

    end = await raw_end(broker, procedure, prefixed)

    assert end.text != "Internal Server Error"  # grpclib's text for a handler that failed


async def test_requests_before_a_malformed_one_are_answered(wire: Wire) -> None:
    await wire.create("s")
    async with wire.publish_session() as session:
        await session.send(message("s", b"good", correlation_id="1"))
        await session.send_while_open(message("s", bytes(5 * 2**20)))

        replies, end = await session.rest()

    assert [reply.correlation_id for reply in replies] == ["1"]
    assert end.status is Status.RESOURCE_EXHAUSTED


async def test_a_publisher_that_reads_no_acks_can_still_publish(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    # Their acks are several times the window.
    ids = [f"{number:0500}" for number in range(400)]
    await wire.create("s")
    window = Configuration(http2_connection_window_size=2**16, http2_stream_window_size=2**16)
    channel = Channel(broker.host, broker.port, config=window)
    async with unread_call(channel, rpc.PUBLISH_ASYNC) as session:
        for each in ids:
            await session.send_message(message("s", b"x", correlation_id=each))
        await wire.stored("s", len(ids))

        acks = [await session.recv_message() for _ in ids]

    channel.close()
    assert [ack.correlation_id for ack in acks if ack] == ids


async def test_an_unread_subscription_does_not_block_others(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    await wire.create("s")
    await wire.publish("s", *[bytes(900_000)] * 10)
    channel = Channel(broker.host, broker.port)
    async with unread_call(channel, rpc.SUBSCRIBE) as unread:
        earliest = proto.StartPosition.EARLIEST
        request = proto.SubscribeRequest(stream="s", start_position=earliest)
        await unread.send_message(request, end=True)
        assert await unread.recv_message() == proto.Message()

        async with wire.subscribe("s") as subscription:
            await wire.publish("s", b"others go on")
            assert (await subscription.next()).value == b"others go on"
    channel.close()


@asynccontextmanager
async def unread_call(
    channel: Channel, procedure: Rpc[Any, Any]
) -> AsyncIterator[Stream[Any, Any]]:
    """A call whose replies are only read on request, and which may send anything."""
    kind = Cardinality.STREAM_STREAM
    call = channel.request(procedure.path, kind, procedure.request, procedure.reply)
    async with call as stream:
        yield stream
        await stream.cancel()


async def test_a_refusal_does_not_repeat_a_large_name(wire: Wire) -> None:
    """A large text in a header blocked the broker for minutes."""
    await wire.call(rpc.CREATE_STREAM, proto.CreateStreamRequest(name="s", subject="s"))
    await wire.call(
        rpc.JOIN_CONSUMER_GROUP,
        proto.JoinConsumerGroupRequest(group_id="g", consumer_id="c", streams=["s"]),
    )
    request = proto.ReportConsumerGroupCoordinatorRequest(
        group_id="g", consumer_id="c", coordinator="x" * 250_000
    )

    async with asyncio.timeout(10):
        end = await wire.refusal(rpc.REPORT_CONSUMER_GROUP_COORDINATOR, request)

    assert end.status is Status.FAILED_PRECONDITION
    assert end.text.startswith("Coordinator generation mismatch")
