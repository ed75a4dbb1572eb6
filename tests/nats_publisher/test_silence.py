"""Errors of messages that nobody listens to, or that nobody acks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from liftbridge_aio import (
    AckPolicy,
    AckTimeout,
    EncryptionFailed,
    MessageTooLarge,
    PublishNotSent,
)
from liftbridge_aio.model import AckError
from liftbridge_aio.nats import NatsPublisher, NatsPublisherOptions, NobodyListens
from support.nats_streams import BOUND, Streams, taken


def options(**fields: Any) -> NatsPublisherOptions:
    return NatsPublisherOptions(**{"close_timeout": 0.2, **fields})


@pytest.mark.parametrize("correlation_id", [None, "1", "an id.with > what no subject may have"])
async def test_nobody_who_listens_is_told_at_once(
    nats_url: str, correlation_id: str | None
) -> None:
    async with NatsPublisher(nats_url, options=options(ack_timeout=60)) as publisher:
        with pytest.raises(NobodyListens, match=r"'nobody\.there'") as raised:
            await publisher.publish("nobody.there", b"", correlation_id=correlation_id)
        assert isinstance(raised.value, PublishNotSent)
        assert correlation_id in {None, raised.value.correlation_id}
        statistics = publisher.statistics()
        assert (statistics.nobody_listened, statistics.in_flight) == (1, 0)


@pytest.mark.parametrize("correlation_id", [None, "mine"])
async def test_a_flush_tells_of_unacked_messages_that_nobody_listens_to(
    nats_url: str, correlation_id: str | None
) -> None:
    async with NatsPublisher(nats_url) as publisher:
        await publisher.publish(
            "nobody.there", b"", ack_policy=AckPolicy.NONE, correlation_id=correlation_id
        )
        with pytest.raises(NobodyListens):
            await publisher.flush()
        assert publisher.statistics().nobody_listened == 1


async def test_nobody_is_noticed_by_silence_where_no_reply_subject_is_wanted(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    quiet = options(detect_nobody=False, ack_timeout=0.05)
    async with NatsPublisher(nats_url, options=quiet) as publisher:
        with pytest.raises(AckTimeout):
            await publisher.publish("nobody.there", b"")
        await publisher.publish(stream_name, b"", ack_timeout=BOUND)
    assert stream.replies == [""]


async def test_a_flush_tells_what_became_of_messages_without_acks(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        assert await publisher.publish(stream_name, b"1", ack_policy=AckPolicy.NONE) is None
        await publisher.flush()
        await publisher.publish("nobody.there", b"2", ack_policy=AckPolicy.NONE)
        with pytest.raises(NobodyListens):
            await publisher.flush()
        stream.refuse = AckError.ENCRYPTION
        await publisher.publish(stream_name, b"3", ack_policy=AckPolicy.NONE)
        await stream.have(2)
        await taken(stream.connection)
        await publisher.publish_plain(stream_name, b"so that there is something to prove")
        with pytest.raises(EncryptionFailed):
            await publisher.flush()
        await publisher.flush()
        assert publisher.statistics().in_flight == 0


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


async def test_a_flush_raises_what_nobody_has_looked_at(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name, refuse=AckError.TOO_LARGE)
    async with NatsPublisher(nats_url) as publisher:
        futures = [await publisher.submit(stream_name, b"") for _ in range(3)]
        with pytest.raises(MessageTooLarge) as raised:
            await publisher.flush()
        assert raised.value.__notes__ == ["2 more publishes failed since the last flush"]
        assert all(future.done() for future in futures)
        await publisher.flush()
