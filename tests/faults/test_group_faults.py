"""A group member's handling of servers that fail, fall silent or lose their responses."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ClientOptions,
    CursorsUnavailable,
    GroupState,
    NotGroupMember,
    PermissionDenied,
    RequestTimeout,
    ServerError,
    StreamDeleted,
    StreamPartition,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.groups import rebalancer
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from support.faults import QUICK
from support.groups.group_watcher import (
    EARLIEST,
    GroupWatcher,
    cursor,
    holds,
    it_is,
    places,
    publish,
    shared,
    take,
)
from support.raw import FROM_EARLIEST, Wire, eventually

DATA_PATHS: Final = ["lane"]

FETCH: Final = "FetchConsumerGroupAssignments"


@pytest.fixture
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedBroker]:
    """A broker that expels members after 2.5 seconds, or after those that the test says.

    The second number of these is how long a coordinator may be silent.
    """
    consumer_timeout, coordinator_timeout = getattr(request, "param", (2.5, 1))
    async with EmbeddedBroker(
        cursors_partitions=3,
        consumer_timeout=consumer_timeout,
        coordinator_timeout=coordinator_timeout,
    ) as broker:
        yield broker


@pytest.fixture
def watcher() -> GroupWatcher:
    return GroupWatcher()


@pytest.fixture
async def client(broker: EmbeddedBroker, watcher: GroupWatcher) -> AsyncIterator[Client]:
    """A watched client, and a stream "s" with two messages in its first partition."""
    options = ClientOptions(backoff=QUICK, hook=watcher)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s", partitions=3)
        await publish(client, "s", 0, 2)
        yield client


async def members(client: Client) -> bool:
    """True if the group has members."""
    return "g" in (await client.fetch_metadata(groups=["g"])).groups


async def test_without_cursors_nobody_joins() -> None:
    options = ClientOptions(not_found_timeout=0.1)
    async with (
        EmbeddedBroker(cursors_partitions=0) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream("s")
        with pytest.raises(CursorsUnavailable, match=r"cursors\.stream\.partitions"):
            await client.group("g", ["s"]).__aenter__()
        assert not await members(client)


@pytest.mark.parametrize("broker", [(6.0, 1)], indirect=True)
async def test_a_program_that_blocks_its_event_loop_keeps_the_coordinator(
    broker: EmbeddedBroker, client: Client, watcher: GroupWatcher
) -> None:
    async with client.group("g", ["s"], start=EARLIEST) as group:
        await take(group, 2)
        fault = broker.faults.delay(FETCH, seconds=0.01)
        await fault.wait()
        time.sleep(2.7)  # noqa: ASYNC251 - longer than the call may take, or a coordinator be silent
        known = group.epoch
        await publish(client, "s", 0, 1)
        await take(group, 1)
        await eventually(it_is(lambda: group.state is GroupState.STABLE))
        assert group.epoch == known
    assert GroupState.COORDINATOR_LOST.value not in {change.state for change in watcher.changes}


@pytest.mark.parametrize("broker", [(30, 30)], indirect=True)  # no coordinator is lost meanwhile
async def test_who_has_not_joined_in_time_is_told_what_failed_last(
    broker: EmbeddedBroker, client: Client
) -> None:
    group = client.group("g", ["s"], start=EARLIEST, timeout=2)
    broker.faults.fail(FETCH, code="UNKNOWN", text="out of order", times=None)
    with pytest.raises(RequestTimeout, match=r"'g', of 's', .* out of order"):
        await group.__aenter__()
    assert not await members(client)


async def test_a_failed_commit_is_told_raised_and_made_good(
    broker: EmbeddedBroker, client: Client, watcher: GroupWatcher
) -> None:
    async with client.group("g", ["s"], start=EARLIEST, commit_interval=0.05) as group:
        fault = broker.faults.fail("SetCursor", code="UNKNOWN", times=None)
        messages = await take(group, 2)
        await eventually(it_is(lambda: bool(watcher.failures)))
        assert (watcher.failures[0].cursor_id, watcher.failures[0].offset) == ("__group:g", 0)
        with pytest.raises(ServerError, match=r"stream='s', partition=0"):
            await group.commit(messages[1])
        fault.cancel()

        async def committed() -> bool:
            return await cursor(client, "g", "s") == 1

        await eventually(committed)


async def test_a_last_commit_that_fails_is_raised_and_the_group_is_left(
    broker: EmbeddedBroker, client: Client
) -> None:
    group = client.group("g", ["s"], start=EARLIEST)
    await group.__aenter__()
    await take(group, 2)
    broker.faults.fail("SetCursor", code="UNKNOWN", times=None)
    with pytest.raises(ServerError):
        await group.__aexit__(None, None, None)
    assert not await members(client)


@pytest.mark.parametrize("place", ["request", "reply"])
async def test_signs_of_life_that_get_lost_are_given_again_in_time(
    broker: EmbeddedBroker, client: Client, place: str
) -> None:
    async with client.group("g", ["s"], consumer_id="me", start=EARLIEST) as group:
        await holds(group, 3)
        fault = broker.faults.drop(FETCH, at=place)  # type: ignore[arg-type]
        await fault.wait()
        await eventually(it_is(lambda: group.state is GroupState.STABLE))
        assert group.epoch == 0
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]


async def test_signs_of_life_that_fail_are_given_again_in_time(
    broker: EmbeddedBroker, client: Client
) -> None:
    async with client.group("g", ["s"], consumer_id="me", start=EARLIEST) as group:
        await holds(group, 3)
        broker.faults.fail(FETCH, code="UNAVAILABLE")
        broker.faults.fail(FETCH, code="INTERNAL")
        await broker.faults.fail(FETCH, code="UNKNOWN").wait()
        broker.faults.assert_all_applied()
        await eventually(it_is(lambda: group.state is GroupState.STABLE))
        assert group.epoch == 0


@pytest.mark.parametrize("broker", [(1.0, 1)], indirect=True)
async def test_while_it_may_have_been_expelled_a_member_commits_nothing(
    broker: EmbeddedBroker, client: Client
) -> None:
    async with client.group(
        "g", ["s"], consumer_id="me", start=EARLIEST, commit_interval=60
    ) as group:
        messages = await take(group, 2)
        fault = broker.faults.fail(FETCH, times=None)
        await eventually(it_is(lambda: group.state is GroupState.COORDINATOR_LOST))

        async def is_unsure() -> bool:
            messages[0].offset += 1  # so that there is something to commit
            try:
                await group.commit(messages[0])
            except NotGroupMember as error:
                return "has not confirmed" in str(error)
            return False

        await eventually(is_unsure)
        fault.cancel()
        await eventually(it_is(lambda: group.state is GroupState.STABLE))


@pytest.mark.parametrize("whole", [True, False], ids=["client", "group"])
async def test_who_is_closed_while_joining_is_told_at_once(
    broker: EmbeddedBroker, whole: bool
) -> None:
    async with Client(broker.address) as other:
        await other.create_stream("s")
        stalled = broker.faults.stall(FETCH)
        group = other.group("g", ["s"])
        joining = asyncio.create_task(group.__aenter__())
        await stalled.wait()
        await (other if whole else group).aclose()
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(joining, 1)
        stalled.release()


async def test_a_lost_leave_is_said_again(broker: EmbeddedBroker, client: Client) -> None:
    async with client.group("g", ["s"]) as group:
        await holds(group, 3)
        broker.faults.fail("LeaveConsumerGroup", times=2)
    broker.faults.assert_all_applied()
    assert not await members(client)


async def test_a_position_that_cannot_be_looked_up_is_looked_up_again(
    broker: EmbeddedBroker, client: Client, watcher: GroupWatcher
) -> None:
    group = client.group("g", ["s"], start=EARLIEST)

    def is_first(request: object) -> bool:
        return getattr(request, "partition", None) == 1 and group.epoch is not None

    broker.faults.fail("FetchCursor", code="INTERNAL", times=2, when=is_first)
    async with group:
        await holds(group, 3)
    assert [(event.partition, event.attempts) for event in watcher.blocked] == [(1, 1), (1, 2)]


async def test_a_partition_with_a_slow_position_does_not_delay_the_others(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalancer, "_LOOK", 0.3)

    def is_second(request: object) -> bool:
        return getattr(request, "partition", None) == 1

    slow = broker.faults.stall("FetchCursor", when=is_second)
    async with client.group("g", ["s"], start=EARLIEST) as group:
        await holds(group, 2)
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]
        slow.release()
        await holds(group, 3)


async def test_a_rebalance_does_not_wait_for_the_next_sign_of_life() -> None:
    async with (
        EmbeddedBroker(cursors_partitions=3, consumer_timeout=120) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s", partitions=3)
        async with client.group("g", ["s"]) as first:
            await holds(first, 3)
            async with client.group("g", ["s"]) as second:
                await shared([first, second], {1, 2})


@pytest.mark.usefixtures("long_transfer")
async def test_what_passes_on_at_the_second_try_is_not_read_twice_either(
    broker: EmbeddedBroker, client: Client
) -> None:
    def is_of_a(request: object) -> bool:
        assert isinstance(request, proto.SubscribeRequest)
        consumer = request.consumer
        return consumer is not None and consumer.consumer_id == "a"

    await client.create_stream("t")
    await publish(client, "t", 0, 2)
    async with client.group(
        "g", ["t"], consumer_id="b", start=EARLIEST, commit_interval=60
    ) as first:
        await take(first, 2)
        reading = asyncio.create_task(anext(first, None))
        paused = "commit log was closed"
        broker.faults.fail("Subscribe", code="FAILED_PRECONDITION", text=paused, when=is_of_a)
        async with (
            Client(broker.address) as other,
            other.group(
                "g", ["t"], consumer_id="a", start=EARLIEST
            ) as second,  # the first in order has it now
        ):
            taking = asyncio.create_task(take(second, 1))
            await holds(first, 0)
            await publish(client, "t", 0)
            assert places(await taking) == [(0, 2)]
        broker.faults.assert_all_applied()
        await first.aclose()
        assert await reading is None


async def test_a_warning_in_the_log_keeps_nothing_of_a_closed_client(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that keep records of the log would otherwise collect all clients they ever had."""
    monkeypatch.setattr(rebalancer, "_BLOCKED_AFTER", 1)
    taken = "Consumer is not currently assigned this partition"
    broker.faults.fail("Subscribe", code="FAILED_PRECONDITION", text=taken)
    before = networks()
    async with Client(broker.address) as other:
        await other.create_stream("s")
        group = other.group("g", ["s"])
        async with group:
            await eventually(it_is(lambda: taken in caplog.text))
    del other, group
    await asyncio.sleep(0)
    assert caplog.records
    assert networks() == before


def networks() -> int:
    gc.collect()
    return sum(isinstance(each, Network) for each in gc.get_objects())


@pytest.mark.parametrize("data_path", ["lane", "plain"], indirect=True)
@pytest.mark.usefixtures("data_path")
async def test_links_that_break_cost_nothing(broker: EmbeddedBroker, client: Client) -> None:
    async with (
        Client(broker.address) as publisher,
        client.group("g", ["s"], consumer_id="me", start=EARLIEST) as group,
    ):
        assert places(await take(group, 1)) == [(0, 0)]
        await broker.faults.cut_links()
        await publish(publisher, "s", 0)
        assert places(await take(group, 2)) == [(0, 1), (0, 2)]
        assert group.epoch == 0


async def test_who_may_not_be_a_member_is_told(broker: EmbeddedBroker, client: Client) -> None:
    broker.faults.fail("JoinConsumerGroup", code="PERMISSION_DENIED")
    with pytest.raises(PermissionDenied):
        await client.group("g", ["s"]).__aenter__()


async def test_who_may_no_longer_be_a_member_is_told_when_reading(
    broker: EmbeddedBroker, client: Client
) -> None:
    async with client.group("g", ["s"]) as group:
        await holds(group, 3)
        broker.faults.fail(FETCH, code="PERMISSION_DENIED")
        with pytest.raises(PermissionDenied):
            await anext(group)
        assert group.state is GroupState.FAILED
        assert not group.assignment


async def test_a_paused_partition_is_read_again_when_it_is_resumed(
    client: Client, watcher: GroupWatcher
) -> None:
    async with client.group("g", ["s"], start=EARLIEST) as group:
        await take(group, 2)
        await client.pause_stream("s", [0])
        reading = asyncio.create_task(anext(group))
        await eventually(it_is(lambda: bool(watcher.blocked)))
        assert watcher.blocked[0].partition == 0
        await client.publish("s", b"resumes it", partition=0)
        message = await reading
        assert (message.partition, message.offset) == (0, 2)


async def test_a_deleted_stream_is_gone_though_it_is_made_anew_at_once(client: Client) -> None:
    """The group does not have it any more, so nothing would ever come."""
    async with client.group("g", ["s"], start=EARLIEST) as group:
        await take(group, 2)
        await client.delete_stream("s")
        await client.create_stream("s", partitions=3)
        await publish(client, "s", 0)
        with pytest.raises(StreamDeleted):
            await take(group, 1)


async def test_what_another_member_has_taken_cannot_be_committed(
    broker: EmbeddedBroker, client: Client, watcher: GroupWatcher
) -> None:
    wire = Wire(broker.host, broker.port)
    thief = proto.Consumer(group_id="g", group_epoch=0, consumer_id="thief")
    async with client.group("g", ["s"], start=EARLIEST, commit_interval=None) as group:
        messages = await take(group, 2)
        told = broker.faults.stall(FETCH)  # whose it is
        async with wire.subscribe("s", partition=0, consumer=thief, **FROM_EARLIEST):
            await eventually(it_is(lambda: bool(watcher.blocked)))
            with pytest.raises(NotGroupMember):
                await group.commit(messages[0])
        told.release()
    wire.close()
    assert await cursor(client, "g", "s") is None


async def test_cancelling_a_reader_loses_nothing(client: Client) -> None:
    read = []
    async with client.group("g", ["s"], start=EARLIEST) as group:
        await publish(client, "s", 1, 20)
        for steps in range(60):
            reading = asyncio.create_task(anext(group))
            for _ in range(steps % 4):
                await asyncio.sleep(0)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                read.append(await reading)
        read += await take(group, 22 - len(read))
    assert places(read) == [(0, at) for at in range(2)] + [(1, at) for at in range(20)]


async def test_closing_is_bounded_whatever_a_handler_does(broker: EmbeddedBroker) -> None:
    async def on_revoked(_: frozenset[StreamPartition]) -> None:
        await asyncio.Event().wait()

    options = ClientOptions(close_timeout=0.4)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s", exist_ok=True)
        group = client.group("g", ["s"], on_revoked=on_revoked)
        await group.__aenter__()
        await holds(group, 1)
        async with asyncio.timeout(15):
            with pytest.raises(TimeoutError, match="on_revoked"):
                await group.aclose()
        assert not await members(client)
