"""A bridge that cannot go on says why, and has settled nothing that is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import StreamOptions
from liftbridge_aio.bridge import (
    Bridge,
    PositionLost,
    SourceReset,
    TargetUnsuitable,
)
from liftbridge_aio.errors import (
    ConnectionFailed,
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PartitionReadonly,
    PublishRefused,
)
from support.bridges import Ends, eventually
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import client_of, publish_many

CHECKED: Final = StreamOptions(optimistic_concurrency_control=True)


@pytest.fixture
def own_streaming(streaming_binary: Path, tmp_path: Path) -> Iterator[StreamingServer]:
    """A server in memory that takes one channel, of at most ten messages."""
    limits = ("-mc", "1", "-mm", "10")
    server = StreamingServer(streaming_binary, tmp_path, "MEMORY", limits)
    server.start()
    yield server
    server.stop()


async def test_targets_without_control_of_offsets_are_refused(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 2)
    await ends.lift.create_stream(ends.name)
    with pytest.raises(TargetUnsuitable, match="optimistic"):
        await Bridge(ends.stan_url, ends.lift_url).run()


async def test_a_position_that_retention_has_removed_is_not_guessed(ends: Ends) -> None:
    options = StreamOptions(
        optimistic_concurrency_control=True,
        retention_max_messages=1,
        segment_max_bytes=1,
        cleaner_interval=0.2,
    )
    await publish_many(ends.stan, ends.name, 3)
    await ends.lift.create_stream(ends.name, options=options)
    assert (await Bridge(ends.stan_url, ends.lift_url, once=True).run()).copied == 3
    for _ in range(3):
        await ends.to_stream(b"another")

    async def only_others() -> bool:
        return await ends.lift.oldest_offset(ends.name) > 3

    async with asyncio.timeout(30):
        while not await only_others():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    with pytest.raises(PositionLost):
        await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    progress = await Bridge(ends.stan_url, ends.lift_url, once=True, after=2).run()
    assert progress.copied == 1


async def test_others_may_publish_to_the_target_meanwhile(ends: Ends) -> None:
    await ends.lift.create_stream(ends.name, partitions=2, options=CHECKED)
    enough = asyncio.Event()
    others = 0

    async def publish() -> None:
        nonlocal others
        while not enough.is_set():
            await ends.to_stream(b"another")
            others += 1
            for _ in range(10):
                await ends.lift.publish(ends.name, b"elsewhere", partition=1)
                await asyncio.sleep(0.003)

    async with asyncio.TaskGroup() as group:
        group.create_task(publish())
        bridge = Bridge(ends.stan_url, ends.lift_url)
        running = group.create_task(bridge.run())
        for start in range(0, 300, 50):
            for each in [
                await ends.stan.publish_async(ends.name, b"%d" % n)
                for n in range(start, start + 50)
            ]:
                await each
        await eventually(lambda: bridge.progress.copied >= 300)
        enough.set()
        running.cancel()
    found = await ends.in_stream()
    assert found.count(b"another") == others
    copied = [value for value in found if value != b"another"]
    assert sorted(copied, key=int) == [b"%d" % n for n in range(300)]


async def test_a_target_that_is_taken_away_ends_the_bridge(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 5)
    await Bridge(ends.stan_url, ends.lift_url, once=True).run()

    async def run_on(change: Callable[[], Awaitable[None]]) -> None:
        bridge = Bridge(ends.stan_url, ends.lift_url)
        running = asyncio.create_task(bridge.run())
        await eventually(lambda: bridge.is_connected)
        await change()
        await publish_many(ends.stan, ends.name, 5)
        async with asyncio.timeout(30):
            await running

    with pytest.raises(PartitionReadonly):
        await run_on(lambda: ends.lift.set_stream_readonly(ends.name))
    await ends.lift.set_stream_readonly(ends.name, readonly=False)
    await ends.lift.pause_stream(ends.name)
    progress = await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    assert (progress.copied, progress.repeats) == (5, 0)
    with pytest.raises(NotFound):
        await run_on(lambda: ends.lift.delete_stream(ends.name))
    assert (await Bridge(ends.stan_url, ends.lift_url, once=True).run()).copied == 15


async def test_what_a_channel_has_removed_is_passed_over(
    ends: Ends, own_streaming: StreamingServer
) -> None:
    address = own_streaming.url.removeprefix("nats://")
    url = f"stan://{address}/{CLUSTER}/{ends.name}"
    async with client_of(own_streaming.url, "a") as client:
        await publish_many(client, ends.name, 5)
        assert (await Bridge(url, ends.lift_url, once=True).run()).copied == 5
        await publish_many(client, ends.name, 30)
    for expected in (10, 0):
        progress = await Bridge(url, ends.lift_url, once=True).run()
        assert (progress.copied, progress.retries) == (expected, 0)
    values = [*range(5), *range(20, 30)]
    assert await ends.in_stream() == [b"%d" % n for n in values]


async def test_a_channel_that_begins_anew_ends_the_bridge(
    ends: Ends, own_streaming: StreamingServer
) -> None:
    address = own_streaming.url.removeprefix("nats://")
    url = f"stan://{address}/{CLUSTER}/{ends.name}"
    async with client_of(own_streaming.url, "a") as client:
        await publish_many(client, ends.name, 5)
    bridge = Bridge(url, ends.lift_url)
    running = asyncio.create_task(bridge.run())
    await eventually(lambda: bridge.progress.copied == 5)
    await asyncio.to_thread(own_streaming.kill)
    await asyncio.to_thread(own_streaming.start)
    await eventually(lambda: bridge.progress.retries > 0 and bridge.is_connected)
    async with client_of(own_streaming.url, "a") as client:
        await publish_many(client, ends.name, 2)
    with pytest.raises(SourceReset):
        async with asyncio.timeout(30):
            await running
    assert await ends.in_stream() == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_target_that_refuses_messages_ends_the_bridge(
    ends: Ends, own_streaming: StreamingServer
) -> None:
    await ends.lift.create_stream(ends.name)
    await ends.to_stream(b"bread")
    await ends.to_stream(b"")
    address = own_streaming.url.removeprefix("nats://")
    async with client_of(own_streaming.url, "a") as client:
        await client.publish("taken", b"x")
    with pytest.raises(PublishRefused, match="channels"):
        await Bridge(ends.lift_url, f"stan://{address}/{CLUSTER}/{ends.name}").run()
    with pytest.raises(InvalidRequest, match="body"):
        await Bridge(ends.lift_url, ends.nsq_url).run()
    # Nothing is settled that is not stored: the next bridge copies both.
    progress = await Bridge(ends.lift_url, ends.stan_url, once=True).run()
    assert progress.copied == 2


async def test_a_stream_that_is_deleted_ends_the_bridge(ends: Ends) -> None:
    await ends.lift.create_stream(ends.name)
    for n in range(3):
        await ends.to_stream(b"%d" % n)
    bridge = Bridge(ends.lift_url, ends.stan_url)
    running = asyncio.create_task(bridge.run())
    await eventually(lambda: bridge.progress.copied == 3)
    await asyncio.sleep(0.3)  # so that the position is stored
    await ends.lift.delete_stream(ends.name)
    with pytest.raises(NotFound):
        async with asyncio.timeout(30):
            await running
    await ends.lift.create_stream(ends.name)
    with pytest.raises(SourceReset):
        await Bridge(ends.lift_url, ends.stan_url).run()


async def test_a_stream_that_was_created_again_is_not_taken_for_the_old_one(ends: Ends) -> None:
    async def create(count: int) -> None:
        await ends.lift.create_stream(ends.name)
        for n in range(count):
            await ends.to_stream(b"%d" % n)

    await create(3)
    elsewhere = ends.nsq_url.replace("127.0.0.1", "localhost").replace("/moving", "-2/moving")
    for url in (ends.nsq_url, elsewhere, ends.stan_url):  # each target begins at the beginning
        assert (await Bridge(ends.lift_url, url, once=True).run()).copied == 3
    await ends.lift.delete_stream(ends.name)
    await create(5)
    for url in (ends.nsq_url, ends.stan_url):
        with pytest.raises(SourceReset, match=ends.name):
            await Bridge(ends.lift_url, url, once=True).run()


async def test_another_channel_of_that_name_is_not_taken_for_the_old_one(
    ends: Ends, own_streaming: StreamingServer
) -> None:
    address = own_streaming.url.removeprefix("nats://")
    url = f"stan://{address}/{CLUSTER}/{ends.name}"
    async with client_of(own_streaming.url, "a") as client:
        await publish_many(client, ends.name, 5)
    assert (await Bridge(url, ends.lift_url, once=True).run()).copied == 5
    await asyncio.to_thread(own_streaming.kill)
    await asyncio.to_thread(own_streaming.start)
    async with client_of(own_streaming.url, "a") as client:
        for count in (3, 2, 2):  # fewer than were copied, as many, and more
            await publish_many(client, ends.name, count)
            with pytest.raises(SourceReset, match="sequence"):
                await Bridge(url, ends.lift_url, once=True).run()
    await publish_many(ends.stan, ends.name, 8)  # another server with the same cluster id
    with pytest.raises(SourceReset, match="another message of sequence 5"):
        await Bridge(ends.stan_url, ends.lift_url, once=True).run()


async def test_what_came_from_the_other_side_is_not_copied_back(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 3)
    await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    await ends.to_stream(b"new")
    progress = await Bridge(ends.lift_url, ends.stan_url, once=True).run()
    assert progress.copied == 1


async def test_a_server_that_is_not_there_is_reported_at_once(ends: Ends) -> None:
    with pytest.raises(LiftbridgeError):
        await Bridge(f"stan://127.0.0.1:1/{CLUSTER}/{ends.name}", ends.lift_url).run()
    with pytest.raises(ConnectionFailed):
        await Bridge(f"nsq://127.0.0.1:1/{ends.name}/a", ends.lift_url).run()
