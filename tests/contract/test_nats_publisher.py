"""Publishing straight over NATS to a real server. The embedded broker has no NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    AckPolicy,
    AckTimeout,
    Client,
    ConnectionFailed,
    IncorrectOffset,
    Message,
    StartAt,
    StopAt,
    StreamOptions,
)
from liftbridge_aio.model import Acked
from liftbridge_aio.nats import NatsPublisher, NobodyListens
from support.raw import eventually
from support.servers.node import LiftbridgeNode, Server

SILENCE = 0.2
"""Seconds after which nothing more is to come."""


@pytest.fixture
async def client(real_server: LiftbridgeNode) -> AsyncIterator[Client]:
    async with Client(real_server.address) as client:
        yield client


@pytest.fixture
async def publisher(real_server: LiftbridgeNode) -> AsyncIterator[NatsPublisher]:
    async with NatsPublisher(real_server.nats_url) as publisher:
        yield publisher


async def stored(client: Client, stream: str, partition: int = 0) -> list[Message]:
    return [
        message
        async for message in client.subscribe(
            stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
        )
    ]


async def there_are(client: Client, stream: str, count: int) -> list[Message]:
    async def enough() -> bool:
        return (await client.fetch_partition_metadata(stream, 0)).high_watermark >= count - 1

    await eventually(enough)
    return await stored(client, stream)


async def pause(client: Client, publisher: NatsPublisher, stream: str) -> None:
    """Pause a stream, and wait until NATS knows: its server tells it a moment after it tells us."""
    await client.pause_stream(stream)

    async def nobody_listens() -> bool:
        try:
            await publisher.publish(stream, b"lost", ack_timeout=SILENCE)
        except NobodyListens:
            return True
        except AckTimeout:
            return False
        raise AssertionError("a paused partition stored a message")

    await eventually(nobody_listens)


async def test_the_port_of_the_api_is_told_from_one_of_nats(server: Server) -> None:
    connect = {"connect_timeout": 60}
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionFailed, match="it speaks HTTP/2, as the Liftbridge API does"):
            await NatsPublisher(server.address, connect=connect).open()


@pytest.mark.parametrize("policy", [AckPolicy.LEADER, AckPolicy.ALL])
async def test_what_is_acked_is_stored_with_all_its_parts(
    client: Client, publisher: NatsPublisher, stream_name: str, policy: Acked
) -> None:
    await client.create_stream(stream_name)
    acks = [
        await publisher.publish(
            stream_name, b"value", key=b"key", headers={"colour": b"red"}, ack_policy=policy
        )
        for _ in range(2)
    ]
    assert [(ack.stream, ack.offset, ack.ack_policy) for ack in acks] == [
        (stream_name, 0, policy),
        (stream_name, 1, policy),
    ]
    for message, ack in zip(await there_are(client, stream_name, 2), acks, strict=True):
        assert (message.value, message.key) == (b"value", b"key")
        assert message.headers["colour"] == b"red"
        assert message.timestamp == ack.reception_timestamp
        assert message.reply_subject.startswith("_INBOX.")


async def test_many_messages_are_stored_in_order_and_each_is_acked_once(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    count = 5000
    publishes = (publisher.publish(stream_name, b"%d" % number) for number in range(count))
    assert [ack.offset for ack in await asyncio.gather(*publishes)] == list(range(count))
    values = [message.value for message in await there_are(client, stream_name, count)]
    assert values == [b"%d" % number for number in range(count)]


async def test_keys_lead_to_the_partitions_that_the_client_takes(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=3)
    info = (await client.fetch_metadata(streams=[stream_name])).streams[stream_name]
    keys = [b"key-%d" % number for number in range(12)]
    for key in keys:
        over_nats = await publisher.publish(info, b"over NATS", key=key)
        over_grpc = await client.publish(stream_name, b"over gRPC", key=key)
        assert over_nats.partition == over_grpc.partition
    found: dict[bytes, set[int]] = {}
    for partition in range(3):
        messages = await stored(client, stream_name, partition)
        assert len(messages) % 2 == 0
        for message in messages:
            found.setdefault(message.key, set()).add(partition)
    assert set(found) == set(keys)
    assert all(len(partitions) == 1 for partitions in found.values())


async def test_a_paused_partition_is_told_at_once_and_stores_nothing(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    """Without the reply subject nobody would say anything (W31)."""
    await client.create_stream(stream_name)
    await publisher.publish(stream_name, b"before")
    await pause(client, publisher, stream_name)
    with pytest.raises(NobodyListens):
        await publisher.publish(stream_name, b"lost")
    await client.resume_stream(stream_name)
    ack = await publisher.publish(stream_name, b"after")
    assert ack.offset == 1


async def test_a_stream_that_there_is_not_is_told_at_once(publisher: NatsPublisher) -> None:
    with pytest.raises(NobodyListens):
        await publisher.publish("no.such.stream", b"")


async def test_a_read_only_partition_never_answers(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.set_stream_readonly(stream_name)
    with pytest.raises(AckTimeout, match="read-only"):
        await publisher.publish(stream_name, b"", ack_timeout=SILENCE)
    await client.set_stream_readonly(stream_name, readonly=False)
    ack = await publisher.publish(stream_name, b"")
    assert ack.offset == 0


async def test_an_expected_offset_is_checked(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    controlled = StreamOptions(optimistic_concurrency_control=True)
    await client.create_stream(stream_name, options=controlled)
    await publisher.publish(stream_name, b"", expected_offset=0)
    with pytest.raises(IncorrectOffset) as raised:
        await publisher.publish(stream_name, b"", expected_offset=0)
    assert raised.value.stream == stream_name
    await publisher.publish(stream_name, b"unchecked")
    # A plain message expects offset 0, and is refused in silence (W6).
    await publisher.publish_plain(stream_name, b"refused")
    ack = await publisher.publish(stream_name, b"", expected_offset=2)
    assert ack.offset == 2


async def test_without_an_ack_a_flush_has_everything_at_the_server(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    for _ in range(1000):
        await publisher.publish_unacked(stream_name, b"")
    await publisher.flush()
    assert len(await there_are(client, stream_name, 1000)) == 1000


async def test_a_plain_message_is_stored_as_it_came(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await publisher.publish_plain(stream_name, b"from outside", reply="some.reply")
    [message] = await there_are(client, stream_name, 1)
    assert (message.value, message.key) == (b"from outside", b"")
    assert message.reply_subject == "some.reply"
    assert message.subject == stream_name


async def test_every_stream_on_a_subject_stores_and_acks(
    client: Client, publisher: NatsPublisher, stream_name: str
) -> None:
    names = [f"{stream_name}-a", f"{stream_name}-b"]
    for name in names:
        await client.create_stream(name, subject=stream_name)
    for offset, name in enumerate(names):
        ack = await publisher.publish(stream_name, b"", stream=name)
        assert (ack.stream, ack.offset) == (name, offset)
    for name in names:
        await there_are(client, name, 2)
