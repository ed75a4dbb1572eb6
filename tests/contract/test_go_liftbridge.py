"""The official Go client on every server: what it writes we read, and the other way round."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import AckPolicy, Client
from support.clients import read_out, stored, values
from support.servers.go_liftbridge import GoClient, GoClientError
from support.servers.node import Server

PARTITIONS: Final = 3
KEY: Final = "key-1"
OF_KEY: Final = zlib.crc32(KEY.encode()) % PARTITIONS
ACK_ALL: Final = 1


@pytest.fixture
def go(server: Server, go_client_program: Path) -> GoClient:
    """go-liftbridge at each server in turn."""
    return GoClient(go_client_program, server.address)


def texts(messages: list[Any]) -> list[str]:
    return [message["value"] for message in messages]


async def test_what_go_publishes_with_key_and_headers_we_read(
    go: GoClient, client: Client, stream_name: str
) -> None:
    await go.run("create", stream_name, PARTITIONS)
    acks = await go.run("publish", stream_name, KEY, "a", "b", "c")

    assert [(ack["offset"], ack["correlation_id"], ack["policy"]) for ack in acks] == [
        (0, "id-a", ACK_ALL),
        (1, "id-b", ACK_ALL),
        (2, "id-c", ACK_ALL),
    ]
    messages = await read_out(client, stream_name, OF_KEY)
    assert values(messages) == [b"a", b"b", b"c"]
    assert {message.key for message in messages} == {KEY.encode()}
    assert {message.headers["by"] for message in messages} == {b"go"}


async def test_what_we_publish_with_key_and_headers_go_reads(
    go: GoClient, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=PARTITIONS)
    for value in (b"a", b"b"):
        await client.publish(
            stream_name, value, key=KEY.encode(), headers={"by": b"us"}, ack_policy=AckPolicy.ALL
        )

    handshake, *messages = await go.run("read", stream_name, OF_KEY)
    assert handshake == "subscribed"
    ours = await read_out(client, stream_name, OF_KEY)
    assert [
        (each["offset"], each["key"], each["value"], each["headers"]["by"], each["timestamp"])
        for each in messages
    ] == [(each.offset, KEY, each.value.decode(), "us", each.timestamp) for each in ours]
    assert {(each["stream"], each["partition"]) for each in messages} == {(stream_name, OF_KEY)}


async def test_go_gets_an_ack_for_each_of_many_publishes(
    go: GoClient, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    acks = await go.run("publish-async", stream_name, 500)

    assert [ack["offset"] for ack in acks] == list(range(500))
    expected = [str(number).encode() for number in range(500)]
    assert [ack["correlation_id"].encode() for ack in acks] == expected
    assert await stored(client, stream_name, 500) == expected


async def test_go_follows_what_we_publish_while_it_reads(
    go: GoClient, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"before")
    async with go.running("follow", stream_name, 0, 3) as lines:
        assert await anext(lines) == "subscribed"
        assert (await anext(lines))["value"] == "before"
        await client.publish(stream_name, b"then")
        await client.publish(stream_name, b"later")
        assert texts([line async for line in lines]) == ["then", "later"]


async def test_a_publish_of_go_to_a_subject_reaches_the_stream(
    go: GoClient, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    [ack] = await go.run("publish-to", stream_name, "value")

    assert (ack["stream"], ack["subject"], ack["offset"]) == (stream_name, stream_name, 0)
    assert await stored(client, stream_name, 1) == [b"value"]


async def test_cursors_of_go_are_ours(go: GoClient, client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        assert await go.run("fetch-cursor", "mine", stream_name, partition) == [-1]
        await go.run("set-cursor", "mine", stream_name, partition, 10 + partition)
        assert await client.fetch_cursor("mine", stream_name, partition) == 10 + partition

        await client.set_cursor("mine", stream_name, partition, 20 + partition)
        assert await go.run("fetch-cursor", "mine", stream_name, partition) == [20 + partition]


async def test_go_sees_the_stream_as_it_is(
    go: GoClient, client: Client, server: Server, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.publish(stream_name, b"value", partition=1, ack_policy=AckPolicy.ALL)

    partitions = await go.run("metadata", stream_name)
    assert [
        (each["id"], each["high_watermark"], each["newest_offset"], each["paused"])
        for each in partitions
    ] == [(0, -1, -1, False), (1, 0, 0, False)]
    one_broker = {
        "leader": server.address,
        "subject": stream_name,
        "replicas": 1,
        "isr": 1,
        "brokers": 1,
    }
    assert all(one_broker.items() <= each.items() for each in partitions)

    await go.run("pause", stream_name)
    paused = (await client.fetch_metadata([stream_name])).streams[stream_name].partitions
    assert [each.paused for each in paused.values()] == [True, True]


async def test_go_knows_the_refusals(go: GoClient, client: Client, stream_name: str) -> None:
    with pytest.raises(GoClientError, match="stream does not exist"):
        await go.run("delete", stream_name)
    with pytest.raises(GoClientError, match="no known stream"):
        await go.run("follow", stream_name, 0, 1)

    await client.create_stream(stream_name)
    with pytest.raises(GoClientError, match="stream already exists"):
        await go.run("create", stream_name, 1)

    await go.run("readonly", stream_name, "true")
    with pytest.raises(GoClientError, match="readonly partition"):
        await go.run("publish", stream_name, KEY, "value")
    await go.run("readonly", stream_name, "false")
    assert len(await go.run("publish", stream_name, KEY, "value")) == 1

    await go.run("delete", stream_name)
    assert stream_name not in (await client.fetch_metadata()).streams


async def test_a_group_member_of_go_consumes_from_the_checkpoint_on(
    go: GoClient, client: Client, stream_name: str
) -> None:
    group = f"group-{stream_name}"
    await client.create_stream(stream_name)
    for value in (b"a", b"b", b"c", b"d"):
        await client.publish(stream_name, value)

    first = await go.run("consume", group, stream_name, 2)
    assert texts(first) == ["a", "b"]
    # A position of a group is a cursor: the last offset that was processed.
    assert await client.fetch_cursor(f"__group:{group}", stream_name, 0) == 1
    assert texts(await go.run("consume", group, stream_name, 2)) == ["c", "d"]
