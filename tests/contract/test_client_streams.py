"""Administering streams through the client: create, delete, pause, resume, read-only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from liftbridge_aio import (
    Client,
    InvalidRequest,
    NotFound,
    PartitionReadonly,
    PublishManyFailed,
    RequestTimeout,
    StreamExists,
    StreamNotFound,
    StreamOptions,
    StreamReserved,
)
from support.clients import EARLIEST, read_out, take, values
from support.marks import ON_ONE_PATH

pytestmark = ON_ONE_PATH  # it is about calls, which go over the same connections on both


EVERY_OPTION = StreamOptions(
    retention_max_bytes=1 << 30,
    retention_max_messages=0,
    retention_max_age=timedelta(days=7),
    cleaner_interval=300,
    segment_max_bytes=1 << 20,
    segment_max_age=0,
    compact_max_goroutines=2,
    compact_enabled=True,
    auto_pause_time=timedelta(hours=1),
    auto_pause_disable_if_subscribers=True,
    min_isr=1,
    optimistic_concurrency_control=False,
    encryption=False,
)


async def paused(client: Client, stream: str) -> set[int]:
    """Return the paused partitions according to their leader."""
    info = (await client.fetch_metadata([stream])).streams[stream]
    return {
        partition
        for partition in info.partitions
        if (await client.fetch_partition_metadata(stream, partition)).paused
    }


async def readonly(client: Client, stream: str) -> set[int]:
    info = (await client.fetch_metadata([stream])).streams[stream]
    return {number for number, partition in info.partitions.items() if partition.readonly}


# Create and delete


async def test_a_stream_has_what_it_was_created_with(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, f"{stream_name}.*", partitions=3)

    info = (await client.fetch_metadata([stream_name])).streams[stream_name]
    assert (info.subject, len(info.partitions)) == (f"{stream_name}.*", 3)


async def test_a_stream_listens_on_its_name_and_has_one_partition_unless_told(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)

    info = (await client.fetch_metadata([stream_name])).streams[stream_name]
    assert (info.subject, len(info.partitions)) == (stream_name, 1)


async def test_every_option_is_accepted(client: Client, stream_name: str) -> None:
    await client.create_stream(
        stream_name, partitions=2, replication_factor=-1, group="group", options=EVERY_OPTION
    )
    await client.publish(stream_name, b"value", key=b"key", partition=1)
    assert values(await read_out(client, stream_name, 1)) == [b"value"]


async def test_a_stream_is_created_once(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)

    with pytest.raises(StreamExists, match="exist_ok") as refused:
        await client.create_stream(stream_name, partitions=2)
    assert refused.value.stream == stream_name
    await client.create_stream(stream_name, partitions=5, exist_ok=True)
    fetched = await client.fetch_metadata([stream_name])
    assert fetched.partition_count(stream_name) == 2


async def test_exist_ok_warns_of_another_number_of_partitions(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await client.create_stream(stream_name, partitions=2, exist_ok=True)
    assert not caplog.records
    await client.create_stream(stream_name, partitions=3, exist_ok=True)
    [warning] = [record.getMessage() for record in caplog.records]
    assert (
        warning == f"the stream {stream_name!r} exists with 2 partitions, not 3, and stays as it is"
    )


async def test_exist_ok_creates_what_is_not_there(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, exist_ok=True)
    assert (await client.fetch_metadata()).partition_count(stream_name) == 1


@pytest.mark.parametrize("name", ["__cursors", "__activity"])
async def test_internal_streams_belong_to_the_server(client: Client, name: str) -> None:
    for exist_ok in (False, True):
        with pytest.raises(StreamReserved):
            await client.create_stream(name, exist_ok=exist_ok)
    with pytest.raises(StreamReserved):
        await client.delete_stream(name)
    for partition in (None, 0):
        with pytest.raises(StreamReserved, match=name):
            await client.publish(name, b"", partition=partition)
    with pytest.raises(PublishManyFailed) as failed:
        await client.publish_many(name, [b"", b""])
    assert isinstance(failed.value.__cause__, StreamReserved)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param({"subject": ""}, "subject", id="empty-subject"),
        pytest.param({"subject": "a b"}, "subject", id="blank"),
        pytest.param({"subject": "a..b"}, "subject", id="empty-token"),
        pytest.param({"subject": ".a"}, "subject", id="leading-dot"),
        pytest.param({"subject": "a\r\nPING"}, "subject", id="line-break"),
        pytest.param({"subject": "a\tb"}, "subject", id="tab"),
        pytest.param({"subject": "a.>.b"}, "subject", id="wildcard-within"),
        pytest.param({"partitions": 0}, "partitions must be from 1", id="0-partitions"),
        pytest.param({"partitions": -1}, "partitions must be from 1", id="-1-partitions"),
        pytest.param({"partitions": 2**31}, "partitions", id="too-many-partitions"),
        pytest.param({"replication_factor": 0}, "replication_factor", id="0-replicas"),
        pytest.param({"replication_factor": -2}, "replication_factor", id="-2-replicas"),
    ],
)
async def test_a_stream_that_makes_no_sense_is_refused(
    client: Client, stream_name: str, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text) as refused:
        await client.create_stream(stream_name, **arguments)
    assert refused.value.stream == stream_name
    assert stream_name not in (await client.fetch_metadata()).streams


async def test_a_stream_needs_a_name(client: Client) -> None:
    for call in (client.create_stream, client.delete_stream, client.pause_stream):
        with pytest.raises(InvalidRequest, match="name"):
            await call("")


async def test_more_replicas_than_servers_are_refused_by_the_server(
    client: Client, stream_name: str
) -> None:
    with pytest.raises(InvalidRequest, match="replicationFactor") as refused:
        await client.create_stream(stream_name, replication_factor=2)
    assert refused.value.stream == stream_name


async def test_a_deleted_stream_is_gone_and_may_be_created_again(
    client: Client, stream_name: str
) -> None:
    for value in (b"first", b"second"):
        await client.create_stream(stream_name)
        await client.publish(stream_name, value)
        assert values(await read_out(client, stream_name)) == [value]
        await client.delete_stream(stream_name)
        with pytest.raises(StreamNotFound) as gone:
            await client.delete_stream(stream_name)
        assert gone.value.stream == stream_name
        assert "create it" not in str(gone.value)


# Pause and resume


async def test_pauses_add_up_and_may_be_repeated(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=4)

    for partitions, expected in (([1], {1}), ([1], {1}), ([2, 3], {1, 2, 3}), ([1, 2], {1, 2, 3})):
        await client.pause_stream(stream_name, partitions)
        assert await paused(client, stream_name) == expected
    await client.pause_stream(stream_name)
    assert await paused(client, stream_name) == {0, 1, 2, 3}
    await client.pause_stream(stream_name)
    assert await paused(client, stream_name) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("order", "left"),
    [
        pytest.param([False], {1, 2}, id="one"),
        pytest.param([True], set(), id="all"),
        pytest.param([True, False], {1, 2}, id="all-then-one"),
        pytest.param([False, True], set(), id="one-then-all"),
    ],
)
async def test_the_latest_resume_all_wins(
    client: Client, stream_name: str, order: list[bool], left: set[int]
) -> None:
    await client.create_stream(stream_name, partitions=3)
    for resume_all in order:
        await client.pause_stream(stream_name, resume_all=resume_all)

    await client.publish(stream_name, b"value", partition=0)
    assert await paused(client, stream_name) == left


async def test_partitions_are_resumed_without_publishing(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=4)
    await client.publish(stream_name, b"value", partition=1)
    await client.pause_stream(stream_name)

    await client.resume_stream(stream_name, [1, 3])
    assert await paused(client, stream_name) == {0, 2}
    await client.resume_stream(stream_name, [1, 3])
    assert await paused(client, stream_name) == {0, 2}
    await client.resume_stream(stream_name)
    assert await paused(client, stream_name) == set()
    assert [await read_out(client, stream_name, n) for n in (0, 2, 3)] == [[], [], []]
    assert values(await read_out(client, stream_name, 1)) == [b"value"]
    assert len(client.statistics().subscriptions) == 0


async def test_a_partition_both_paused_and_readonly_is_resumed(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"value")
    await client.set_stream_readonly(stream_name)
    await client.pause_stream(stream_name)

    await client.resume_stream(stream_name)
    assert await paused(client, stream_name) == set()
    assert values(await read_out(client, stream_name)) == [b"value"]


# Read-only


async def test_a_call_without_time_says_so(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    for call in (client.pause_stream, client.set_stream_readonly, client.resume_stream):
        with pytest.raises(RequestTimeout, match=" 0 s"):
            await call(stream_name, timeout=0)
    assert await paused(client, stream_name) == await readonly(client, stream_name) == set()


async def test_partitions_are_set_readonly_and_back(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=3)

    for partitions, flag, expected in (
        ([1], True, {1}),
        ([1], True, {1}),
        ([2], True, {1, 2}),
        ([1], False, {2}),
        (None, True, {0, 1, 2}),
        (None, False, set[int]()),
    ):
        await client.set_stream_readonly(stream_name, partitions, flag)
        assert await readonly(client, stream_name) == expected
        for partition in range(3):
            if partition in expected:
                with pytest.raises(PartitionReadonly):
                    await client.publish(stream_name, b"", partition=partition)
            else:
                await client.publish(stream_name, b"", partition=partition)


async def test_a_writable_partition_can_be_tailed_again(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"before")
    await client.set_stream_readonly(stream_name)
    await client.set_stream_readonly(stream_name, readonly=False)

    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        await take(subscription, 1)
        await client.publish(stream_name, b"after")
        assert values(await take(subscription, 1)) == [b"after"]


# What is not there


@pytest.mark.parametrize("call", ["pause_stream", "resume_stream", "set_stream_readonly"])
async def test_what_is_not_there_cannot_be_changed(
    client: Client, stream_name: str, call: str
) -> None:
    change = getattr(client, call)
    if call != "resume_stream":  # which waits for a stream that may just have been created
        with pytest.raises(StreamNotFound) as no_stream:
            await change(stream_name)
        assert no_stream.value.stream == stream_name

    await client.create_stream(stream_name, partitions=2)
    with pytest.raises(NotFound) as no_partition:
        await change(stream_name, [0, 2])
    assert no_partition.value.stream == stream_name
    for partitions in ([], [-1], [2**31]):
        with pytest.raises(InvalidRequest) as refused:
            await change(stream_name, partitions)
        assert refused.value.stream == stream_name
    assert await paused(client, stream_name) == set()
    assert await readonly(client, stream_name) == set()
