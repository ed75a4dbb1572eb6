"""A bridge that cannot go on says why, and has settled nothing that is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from conftest import StartRealServer
from liftbridge_aio import Client, StreamOptions
from liftbridge_aio.bridge import (
    Bridge,
    MessageRefused,
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
    StreamNotFound,
)
from support.bridges import Ends, eventually
from support.servers.nsq_daemons import NsqDaemon
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
    with pytest.raises(TargetUnsuitable, match="stored the message of sequence 1"):
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
    with pytest.raises(NotFound, match="start the bridge again, and it creates"):
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
    with pytest.raises(MessageRefused, match="partition 0, offset 1 is refused") as refused:
        await Bridge(ends.lift_url, ends.nsq_url).run()
    assert (refused.value.stream, refused.value.offset) == (ends.name, 1)
    # Nothing is settled that is not stored: the next bridge copies both.
    progress = await Bridge(ends.lift_url, ends.stan_url, once=True).run()
    assert progress.copied == 2


@pytest.fixture
def narrow_nsqd(nsq_programs: None, tmp_path: Path) -> Iterator[NsqDaemon]:  # noqa: ARG001
    """An nsqd that takes small messages only."""
    daemon = NsqDaemon("nsqd", tmp_path / "nsqd", ("-max-msg-size=1000",))
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def narrow_streaming(streaming_binary: Path, tmp_path: Path) -> Iterator[StreamingServer]:
    """A server that takes small messages only."""
    configuration = tmp_path / "nats.conf"
    configuration.write_text("max_payload: 1000\n")
    server = StreamingServer(streaming_binary, tmp_path, "MEMORY", ("-c", str(configuration)))
    server.start()
    yield server
    server.stop()


async def test_what_the_target_can_never_take_is_skipped_if_wanted(
    ends: Ends, narrow_nsqd: NsqDaemon, narrow_streaming: StreamingServer
) -> None:
    large = bytes(1_048_400)
    for value in (b"0", large, b"2"):
        await ends.to_channel(value)
        await ends.to_topic(value)

    async def copy(source: str, target: str, *, skips: bool) -> tuple[int, int, int]:
        bridge = Bridge(source, target, once=True, message_timeout=1, skip_refused=skips)
        progress = await bridge.run()
        return progress.copied, progress.repeats, progress.skipped

    with pytest.raises(MessageRefused, match="sequence 2 is refused"):
        await copy(ends.stan_url, ends.lift_url, skips=False)
    assert await copy(ends.stan_url, ends.lift_url, skips=True) == (1, 0, 1)
    assert await copy(ends.stan_url, ends.lift_url, skips=False) == (0, 0, 0)
    assert await ends.in_stream() == [b"0", b"2"]
    with pytest.raises(MessageRefused, match=f"of nsqd at {ends.nsqd.address} is refused"):
        await copy(ends.nsq_url, ends.lift_url, skips=False)
    _, _, skipped = await copy(ends.nsq_url, ends.lift_url, skips=True)
    assert skipped == 1
    assert sorted(await ends.in_stream()) == [b"0", b"0", b"2", b"2"]
    for value in (b"", bytes(1001)):
        await ends.to_stream(value)
    narrow = f"nsq://{narrow_nsqd.address}/{ends.name}/moving"
    assert await copy(ends.lift_url, narrow, skips=True) == (2, 0, 2)
    narrow = f"stan://{narrow_streaming.url.removeprefix('nats://')}/{CLUSTER}/{ends.name}"
    refused = Bridge(ends.lift_url, narrow, once=True, message_timeout=1)
    with pytest.raises(MessageRefused, match="partition 0, offset 7 is refused"):
        await refused.run()
    copied, _, skipped = await copy(ends.lift_url, narrow, skips=True)
    assert skipped == 1
    # Without those that came from NATS Streaming. What was acked before the refusal may be done.
    assert refused.progress.copied + copied == 3


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


async def test_what_is_not_there_is_reported_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFTBRIDGE_NOT_FOUND_TIMEOUT", "0.2")
    with pytest.raises(LiftbridgeError):
        await Bridge(f"stan://127.0.0.1:1/{CLUSTER}/{ends.name}", ends.lift_url).run()
    nobody = f"nsq://127.0.0.1:1/{ends.name}/a"
    with pytest.raises(ConnectionFailed, match=f"source {nobody}: .*: start the bridge again"):
        await Bridge(nobody, ends.lift_url).run()
    with pytest.raises(StreamNotFound, match=r"source liftbridge://.*check the URL"):
        await Bridge(f"{ends.lift_url}-2", ends.nsq_url).run()
    with pytest.raises(InvalidRequest, match="at least 1 second"):
        Bridge(nobody, ends.lift_url, message_timeout=0.5)


async def test_a_side_that_stays_away_ends_the_bridge_in_time(
    ends: Ends,
    own_streaming: StreamingServer,
    narrow_nsqd: NsqDaemon,
    start_real_server: StartRealServer,
) -> None:
    node = start_real_server()
    there = f"stan://{own_streaming.url.removeprefix('nats://')}/{CLUSTER}/{ends.name}"
    away = f"liftbridge://{node.address}/{ends.name}"
    narrow = f"nsq://{narrow_nsqd.address}/{ends.name}/moving"
    await ends.lift.create_stream(ends.name)
    async with Client(node.address) as client:
        await client.create_stream(f"{ends.name}-3")
    bridges = {
        f"target {there}": Bridge(ends.lift_url, there, retry_timeout=3),
        f"source {there}": Bridge(there, f"{ends.lift_url}-2", retry_timeout=3),
        f"target {narrow}": Bridge(ends.lift_url, narrow, retry_timeout=3),
        f"source {narrow}": Bridge(narrow, f"{ends.lift_url}-3", retry_timeout=3),
        f"target {away}": Bridge(ends.stan_url, away, retry_timeout=3),
        f"target {away}-2": Bridge(ends.nsq_url, f"{away}-2", retry_timeout=3),
        f"source {away}-3": Bridge(f"{away}-3", ends.stan_url, retry_timeout=3),
    }
    running = [asyncio.create_task(bridge.run()) for bridge in bridges.values()]
    await eventually(lambda: all(bridge.is_connected for bridge in bridges.values()))
    for server in (own_streaming, narrow_nsqd, node):
        await asyncio.to_thread(server.kill)
    for publish in (ends.to_stream, ends.to_channel, ends.to_topic):
        await publish(b"bread")
    async with asyncio.timeout(30):
        errors = await asyncio.gather(*running, return_exceptions=True)
    for side, error in zip(bridges, errors, strict=True):
        assert isinstance(error, LiftbridgeError)
        assert str(error).startswith(f"{side}: ")
        assert "start the bridge again when that side answers" in str(error)
