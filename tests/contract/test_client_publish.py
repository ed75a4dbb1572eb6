"""Publishing through the client: what is stored, what comes back, what is refused."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from liftbridge_aio import (
    Ack,
    AckError,
    AckPolicy,
    Client,
    ClientOptions,
    InvalidRequest,
    Message,
    MessageTooLarge,
    PartitionNotFound,
    PartitionReadonly,
    StreamNotFound,
    by_key,
    round_robin,
)
from liftbridge_aio.model import Acked
from support.clients import read_out, stored, values
from support.raw import Wire
from support.servers.node import Server

WITH_ACK = [AckPolicy.LEADER, AckPolicy.ALL]


def always(partition: int) -> Any:
    return lambda stream, key, value, count: partition  # noqa: ARG005 - the Partitioner protocol


@pytest.mark.parametrize("wait", [True, False], ids=["publish", "publish_async"])
async def test_messages_that_all_go_to_one_partition_are_warned_of_once(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture, wait: bool
) -> None:
    single = f"{stream_name}-single"
    await client.create_stream(single)
    await client.create_stream(stream_name, partitions=3)
    chosen: list[dict[str, Any]] = [
        {"key": b"key"},
        {"partition": 0},
        {"partitioner": round_robin()},
    ]
    for stream in (single, stream_name):
        for way in [*chosen, {}, {}]:
            assert not caplog.messages
            if wait:
                await client.publish(stream, b"", **way)
            else:
                await (await client.publish_async(stream, b"", **way))
            if stream == stream_name and way == {}:
                break
    await client.publish(stream_name, b"")
    [warning] = caplog.messages
    assert repr(stream_name) in warning
    assert "round_robin()" in warning


async def test_a_message_comes_back_as_it_was_published(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    headers = {"one": b"\xff\x00", "two": b"", "drei": "ü".encode()}

    # The first message to a partition is looked at more closely than those that follow.
    acks = [
        await client.publish(
            stream_name, b"\x00value", key=b"\x00key", headers=headers, partition=1
        )
        for _ in range(3)
    ]
    assert await read_out(client, stream_name, 1) == [
        Message(
            stream=stream_name,
            partition=1,
            offset=offset,
            key=b"\x00key",
            value=b"\x00value",
            timestamp=ack.reception_timestamp,
            headers=headers,
            subject=f"{stream_name}.1",
            reply_subject="",
        )
        for offset, ack in enumerate(acks)
    ]
    assert await read_out(client, stream_name, 0) == []


@pytest.mark.parametrize("size", [10, 1000])
async def test_a_message_is_forwarded_as_it_was_read(
    client: Client, stream_name: str, size: int
) -> None:
    """In front of enough others to be decoded together, and small and large enough for each way."""
    await client.create_stream(stream_name, partitions=2)
    for n in range(30):
        headers = {"n": b"%d" % n, "trace": b"\xff"} if n % 3 else None
        await client.publish_async(stream_name, bytes(size), key=b"%d" % n, headers=headers)
    await client.flush()
    read = [message for part in (0, 1) for message in await read_out(client, stream_name, part)]
    assert len(read) == 30

    for message in read:
        ack = await client.publish(
            stream_name, message.value, key=message.key, headers=message.headers
        )
        copy = (await client.last(stream_name, n=1, partition=message.partition))[0]
        assert (copy.partition, copy.offset) == (ack.partition, ack.offset)
        assert replace(copy, offset=message.offset, timestamp=message.timestamp) == message
        assert copy.headers.keys() <= {"n", "trace"}
        assert copy.subject == ack.msg_subject


@pytest.mark.parametrize("key", [None, b""])
async def test_empty_values_and_keys_are_messages(
    client: Client, stream_name: str, key: bytes | None
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"", key=key)

    [message] = await read_out(client, stream_name)
    assert (message.offset, message.key, message.value) == (0, b"", b"")


@pytest.mark.parametrize("policy", WITH_ACK)
async def test_an_ack_has_every_field(client: Client, stream_name: str, policy: Acked) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.publish(stream_name, b"first", partition=1)
    before = time.time_ns()

    ack = await client.publish(
        stream_name, b"second", partition=1, ack_policy=policy, correlation_id="mine"
    )
    assert ack is not None
    assert ack.ack_inbox
    assert before <= ack.reception_timestamp <= ack.commit_timestamp <= time.time_ns()
    assert ack == Ack(
        stream=stream_name,
        partition_subject=stream_name,
        msg_subject=f"{stream_name}.1",
        offset=1,
        ack_inbox=ack.ack_inbox,
        correlation_id="mine",
        ack_policy=policy,
        reception_timestamp=ack.reception_timestamp,
        commit_timestamp=ack.commit_timestamp,
        ack_error=AckError.OK,
    )


async def test_without_ack_policy_there_is_no_ack_and_the_message_is_stored(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    await client.publish_unacked(stream_name, b"first")
    future = await client.publish_async(stream_name, b"second", ack_policy=AckPolicy.NONE)
    assert await future is None
    assert await stored(client, stream_name, 2) == [b"first", b"second"]


@pytest.mark.parametrize("policy", [AckPolicy.NONE, int(AckPolicy.NONE)], ids=["enum", "number"])
async def test_what_returns_acks_refuses_the_policy_none(
    client: Client, stream_name: str, policy: Any
) -> None:
    await client.create_stream(stream_name)
    with pytest.raises(InvalidRequest, match="unacked"):
        await client.publish(stream_name, b"", ack_policy=policy)
    with pytest.raises(InvalidRequest, match="unacked"):
        await client.publish_many(stream_name, [b""], ack_policy=policy)
    with pytest.raises(InvalidRequest, match="unacked"):
        await client.publish_to_subject(stream_name, b"", ack_policy=policy)
    assert await read_out(client, stream_name) == []


async def test_ids_made_by_the_client_differ(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)

    acks = await client.publish_many(stream_name, [b""] * 50)
    assert len({ack.correlation_id for ack in acks}) == 50


# Which partition


async def test_the_partition_given_beats_all_others(server: Server, stream_name: str) -> None:
    options = ClientOptions(partitioner=always(1))
    async with Client(server.address, options=options) as client:
        await client.create_stream(stream_name, partitions=4)

        for expected, how in {
            3: {"partition": 3, "partitioner": always(2), "key": b"foo"},
            2: {"partitioner": always(2), "key": b"foo"},
            1: {"key": b"foo"},
        }.items():
            ack = await client.publish(stream_name, b"%d" % expected, **how)
            assert ack is not None
            assert ack.partition == expected
            assert values(await read_out(client, stream_name, expected)) == [b"%d" % expected]


@pytest.mark.parametrize(
    ("key", "partitions"),
    [
        (b"foo", {3: 2, 4: 1}),
        (b"bar", {3: 2, 4: 2}),
        (b"hello", {3: 1, 4: 2}),
        (b"", {3: 0, 4: 0}),
        (None, {3: 0, 4: 0}),
    ],
)
async def test_a_key_goes_where_other_clients_send_it(
    client: Client, stream_name: str, key: bytes | None, partitions: dict[int, int]
) -> None:
    for count, partition in partitions.items():
        name = f"{stream_name}-{count}"
        await client.create_stream(name, partitions=count)
        for value in (b"first", b"second"):  # most checks are made for the first only
            await client.publish(name, value, key=key)
        messages = await read_out(client, name, partition)
        assert [(message.key, message.value) for message in messages] == [
            (key or b"", b"first"),
            (key or b"", b"second"),
        ]


async def test_without_key_only_a_partitioner_spreads(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=3)
    choose = round_robin()

    for n in range(6):
        await client.publish(stream_name, b"%d" % n, partitioner=choose)
    await client.publish(stream_name, b"6", partitioner=by_key)
    assert [values(await read_out(client, stream_name, n)) for n in range(3)] == [
        [b"0", b"3", b"6"],
        [b"1", b"4"],
        [b"2", b"5"],
    ]


@pytest.mark.parametrize("chosen", [-1, 2])
async def test_a_partitioner_that_chooses_what_is_not_there_is_refused(
    client: Client, stream_name: str, chosen: int
) -> None:
    await client.create_stream(stream_name, partitions=2)

    with pytest.raises(InvalidRequest, match=f"partition.*{chosen}") as refused:
        await client.publish(stream_name, b"value", partitioner=always(chosen))
    assert refused.value.stream == stream_name


async def test_a_partitioner_that_fails_is_named_and_nothing_is_sent(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    regions: dict[bytes | None, int] = {b"eu": 1}

    def by_region(stream: str, key: bytes | None, *_: object) -> int:
        del stream
        return regions[key]

    with pytest.raises(InvalidRequest, match="by_region") as refused:
        await client.publish(stream_name, b"lost", key=b"us", partitioner=by_region)
    assert refused.value.stream == stream_name
    assert isinstance(refused.value.__cause__, KeyError)
    await client.publish(stream_name, b"kept", key=b"eu", partitioner=by_region)
    read = [message.value async for message in client.read(stream_name)]
    assert read == [b"kept"]


# What cannot be sent


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"value": "text"}, "value", id="value-str"),
        pytest.param({"value": None}, "value", id="value-none"),
        pytest.param({"key": "text"}, "key", id="key-str"),
        pytest.param({"headers": {"a": "text"}}, "'a'", id="header-str"),
        pytest.param({"headers": {b"a": b"1"}}, "header", id="header-name"),
        pytest.param({"headers": {"subject": b"1"}}, "'subject'", id="subject"),
        pytest.param({"headers": {"reply": b"1"}}, "'reply'", id="reply"),
        pytest.param({"partition": -1}, "partition", id="partition"),
        pytest.param({"expected_offset": -1}, "expected offset", id="expected_offset"),
        pytest.param({"stream": ""}, "must not be empty", id="stream"),
        pytest.param({"timeout": -1}, "timeout", id="timeout"),
        pytest.param({"ack_timeout": -1}, "ack_timeout", id="ack_timeout"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_it_is_sent(
    client: Client, stream_name: str, changes: dict[str, Any], text: str
) -> None:
    await client.create_stream(stream_name)

    for published in (b"before", b"after"):  # as the first message, and as one of many
        with pytest.raises(InvalidRequest, match=text):
            await client.publish(**{"stream": stream_name, "value": b"value", **changes})
        await client.publish(stream_name, published)
    assert values(await read_out(client, stream_name)) == [b"before", b"after"]


async def test_what_is_larger_than_the_client_sends_is_refused_before_it_is_sent(
    client: Client, stream_name: str
) -> None:
    with pytest.raises(MessageTooLarge, match="max_message_bytes") as refused:
        await client.publish(stream_name, bytes(2**20), partition=3)
    assert (refused.value.stream, refused.value.partition) == (stream_name, 3)


async def test_what_is_too_large_for_the_server_is_refused_and_the_rest_goes_on(
    server: Server, stream_name: str
) -> None:
    options = ClientOptions(max_message_bytes=4 * 2**20)
    async with Client(server.address, options=options) as client:
        await client.create_stream(stream_name)

        before = await client.publish_async(stream_name, b"before")
        large = await client.publish_async(stream_name, bytes(2**20 + 1))
        after = await client.publish_async(stream_name, b"after")
        with pytest.raises(MessageTooLarge) as refused:
            await large
        assert (refused.value.stream, refused.value.partition) == (stream_name, 0)
        await before
        await after
        assert values(await read_out(client, stream_name)) == [b"before", b"after"]


@pytest.mark.parametrize("size", [0, 2**16, 900 * 2**10])
async def test_values_of_all_sizes_come_back(client: Client, stream_name: str, size: int) -> None:
    await client.create_stream(stream_name)
    value = bytes(n % 251 for n in range(251)) * (size // 251 + 1)

    for _ in range(3):
        await client.publish(stream_name, value[:size])
    assert values(await read_out(client, stream_name)) == [value[:size]] * 3


# Where it cannot be stored


async def test_a_readonly_partition_takes_nothing(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.set_stream_readonly(stream_name, [1])

    with pytest.raises(PartitionReadonly) as refused:
        await client.publish(stream_name, b"value", partition=1)
    assert (refused.value.stream, refused.value.partition) == (stream_name, 1)
    assert await client.publish(stream_name, b"value", partition=0) is not None


async def test_a_publish_resumes_a_paused_partition(
    client: Client, wire: Wire, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"before")
    await client.pause_stream(stream_name)

    ack = await client.publish(stream_name, b"after")
    assert ack is not None
    assert ack.offset == 1
    assert [message.value for message in await wire.stored(stream_name, 2)] == [b"before", b"after"]


async def test_a_stream_that_nobody_knows_is_named_in_time(
    impatient: Client, stream_name: str
) -> None:
    assert ClientOptions().not_found_timeout == 5
    async with asyncio.timeout(4):
        with pytest.raises(StreamNotFound, match=stream_name) as refused:
            await impatient.publish(stream_name, b"value")
    assert refused.value.stream == stream_name


async def test_a_partition_that_does_not_exist_is_not_waited_for(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    began = time.monotonic()

    with pytest.raises(PartitionNotFound) as refused:
        await client.publish(stream_name, b"value", partition=2)
    assert (refused.value.stream, refused.value.partition) == (stream_name, 2)
    assert time.monotonic() - began < 4


async def test_a_stream_takes_messages_as_soon_as_it_is_created(
    client: Client, stream_name: str
) -> None:
    for n in range(20):
        name = f"{stream_name}-{n}"
        await client.create_stream(name, partitions=2)
        acks = [await client.publish(name, b"value", partition=n) for n in range(2)]
        assert [ack.offset for ack in acks] == [0, 0]


async def test_a_stream_created_after_the_publish_began_gets_the_message(
    client: Client, stream_name: str
) -> None:
    futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(5)]
    await client.create_stream(stream_name)

    acks = [await future for future in futures]
    assert [ack.offset for ack in acks] == [0, 1, 2, 3, 4]
    assert values(await read_out(client, stream_name)) == [b"%d" % n for n in range(5)]
