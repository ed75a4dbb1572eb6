"""Publishing over a real NATS server, to streams that the tests play themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio import (
    AckPolicy,
    AckTimeout,
    EncryptionFailed,
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    MessageTooLarge,
    PartitionInfo,
    PublishOutcomeUnknown,
    PublishRefused,
    StreamInfo,
)
from liftbridge_aio.model import AckError
from liftbridge_aio.nats import NatsPublisher, NobodyListens, encode_message
from support.nats_streams import Streams


async def test_an_ack_comes_back(nats_url: str, streams: Streams, stream_name: str) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        ack = await publisher.publish(
            stream_name,
            b"value",
            key=b"key",
            headers={"colour": b"red"},
            correlation_id="mine",
            expected_offset=7,
        )
    assert (ack.stream, ack.offset, ack.correlation_id) == ("orders", 0, "mine")
    [message] = stream.messages
    assert (message.value, message.key, message.headers) == (b"value", b"key", {"colour": b"red"})
    assert message.expected_offset == 7


async def test_messages_go_out_in_the_order_of_the_calls(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        publishes = (publisher.publish(stream_name, b"%d" % n) for n in range(1000))
        acks = await asyncio.gather(*publishes)
    assert [message.value for message in stream.messages] == [b"%d" % n for n in range(1000)]
    assert [ack.offset for ack in acks] == list(range(1000))


async def test_a_stream_is_reached_by_its_partitions(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    subjects = (stream_name, f"{stream_name}.1", f"{stream_name}.2")
    made = [await streams.make("orders", subject) for subject in subjects]
    info = StreamInfo("orders", stream_name, {n: PartitionInfo(n, "a") for n in range(3)})
    async with NatsPublisher(nats_url) as publisher:
        for partition in (0, 1, 2, 2):
            await publisher.publish(info, b"", partition=partition)
    assert [len(stream.messages) for stream in made] == [1, 1, 2]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (AckError.UNKNOWN, PublishRefused),
        (AckError.INCORRECT_OFFSET, IncorrectOffset),
        (AckError.TOO_LARGE, MessageTooLarge),
        (AckError.ENCRYPTION, EncryptionFailed),
    ],
)
async def test_an_ack_that_says_no_is_an_error(
    nats_url: str,
    streams: Streams,
    stream_name: str,
    refusal: AckError,
    error: type[LiftbridgeError],
) -> None:
    await streams.make("orders", stream_name, refuse=refusal)
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(error, match=refusal.name) as raised:
            await publisher.publish(stream_name, b"")
    assert raised.value.stream == "orders"


async def test_without_an_ack_the_outcome_is_unknown_and_a_late_one_does_no_harm(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(AckTimeout, match=r"within 0\.05 s.*look for it") as raised:
            await publisher.publish(stream_name, b"", ack_timeout=0.05, correlation_id="mine")
        assert isinstance(raised.value, PublishOutcomeUnknown)
        assert raised.value.correlation_id == "mine"
        assert "retry=" not in str(raised.value)  # which there is not over NATS
        await stream.speak()
        # The late ack comes first, and has the same correlation id.
        assert (await publisher.publish(stream_name, b"", correlation_id="mine")).offset == 1


async def test_what_is_no_ack_does_no_harm(
    nats_url: str, streams: Streams, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        publishing = asyncio.create_task(publisher.publish(stream_name, b""))
        await stream.have(1)
        inbox = stream.messages[0].ack_inbox
        damaged = b"\xb9\x0e\x43\xb4\0\x08\0\x01\xff"
        for garbage in (b"", b"garbage", encode_message(b"no ack"), damaged):
            await stream.connection.publish(inbox, garbage)
        await stream.speak()
        assert (await publishing).offset == 0
    assert caplog.text.count("no ack") >= 4


@pytest.mark.parametrize("correlation_id", [None, "an id.with > what no subject may have"])
async def test_nobody_who_listens_is_told_at_once(
    nats_url: str, correlation_id: str | None
) -> None:
    async with NatsPublisher(nats_url, ack_timeout=60) as publisher:
        with pytest.raises(NobodyListens, match=r"'nobody\.there'") as raised:
            await publisher.publish("nobody.there", b"", correlation_id=correlation_id)
    assert correlation_id in {None, raised.value.correlation_id}


async def test_of_several_streams_the_named_one_counts(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    await streams.make("audit", stream_name, refuse=AckError.ENCRYPTION)
    await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        for _ in range(20):
            ack = await publisher.publish(stream_name, b"", stream="orders")
            assert ack.stream == "orders"
        with pytest.raises(EncryptionFailed):
            await publisher.publish(stream_name, b"", stream="audit")


async def test_what_is_too_large_is_not_sent(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        for publish in (publisher.publish, publisher.publish_unacked):
            with pytest.raises(MessageTooLarge, match="nats-py refused the message of 1048"):
                await publish(stream_name, b"x" * 2**20)
        await publisher.publish(stream_name, b"x" * 1000)
    assert len(stream.messages) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": {"subject": b""}},
        {"key": "text"},
        {"expected_offset": -1},
        {"correlation_id": 1},
        {"ack_policy": AckPolicy.NONE},
        {"ack_policy": 7},
        {"ack_timeout": -1},
        {"partition": 1},
    ],
)
async def test_what_makes_no_sense_is_refused(nats_url: str, arguments: dict[str, Any]) -> None:
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(InvalidRequest):
            await publisher.publish("subject", b"", **arguments)


async def test_what_is_published_without_an_ack_arrives(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, refuse=AckError.UNKNOWN)
    async with NatsPublisher(nats_url) as publisher:
        await publisher.publish_unacked(stream_name, b"in an envelope", key=b"key")
        await publisher.publish_plain(stream_name, b"plain", reply="some.reply")
        await publisher.flush()
        await stream.have(2)
        for subject, value, reply in (
            (stream_name, encode_message(b"an envelope"), ""),
            ("not.*", b"", ""),
            (stream_name, "text", ""),
            (stream_name, b"", "no reply"),
        ):
            wrong: Any = value
            with pytest.raises(InvalidRequest):
                await publisher.publish_plain(subject, wrong, reply=reply)
    [message] = stream.messages
    assert (message.value, message.key, message.ack_inbox) == (b"in an envelope", b"key", "")
    assert (stream.plain, stream.replies) == ([b"plain"], ["", "some.reply"])


async def test_a_flush_ends_after_the_server_has_read_what_came_before() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.9.0","max_payload":1048576}\r\n')
        while line := await reader.readline():
            command, *arguments = line.split()
            heard.append(command)
            if command == b"PUB":
                await reader.readexactly(int(arguments[-1]) + 2)
            elif command == b"PING":
                writer.write(b"PONG\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with NatsPublisher(address) as publisher:
            await publisher.publish_plain("subject", b"plain")
            await publisher.flush()
            # What was answered last was asked after the message had been read.
            assert heard[-1] == b"PING"
            assert heard.index(b"PUB") < len(heard) - 1


async def test_publishers_share_a_connection(
    connection: NatsClient, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name)
    async with NatsPublisher(connection) as one, NatsPublisher(connection) as two:
        publishes = [p.publish(stream_name, b"") for p in (one, two) for _ in range(100)]
        acks = await asyncio.gather(*publishes)
    assert sorted(ack.offset for ack in acks) == list(range(200))


async def test_closing_fails_what_waits_for_an_ack(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        publishing = asyncio.create_task(publisher.publish(stream_name, b""))
        await stream.have(1)
        cancelled = asyncio.create_task(publisher.publish(stream_name, b""))
        await stream.have(2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert "in_flight=1" in repr(publisher)
    with pytest.raises(PublishOutcomeUnknown, match="closed before the ack"):
        await publishing
