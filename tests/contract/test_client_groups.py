"""Members of consumer groups through the client: what they read, and what they commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from liftbridge_aio import (
    CallbackCancelled,
    Client,
    ConsumerGroup,
    GroupState,
    InvalidRequest,
    Message,
    NoCommittedPosition,
    NotGroupMember,
    StartAt,
    StreamDeleted,
    StreamNotFound,
    StreamPartition,
    StreamReset,
    UsageError,
    WrongType,
)
from support.faults import await_what_others_cancel
from support.groups.group_calls import Group
from support.groups.group_watcher import EARLIEST, cursor, holds, places, publish, take
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, Wire, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name, partitions=3)
    return stream_name


@pytest.fixture
def group_id(stream_name: str) -> str:
    return f"group-{stream_name}"


async def test_a_missing_stream_is_named_where_the_time_is_too_short_to_be_sure(
    client: Client, stream: str, group_id: str
) -> None:
    missing, seconds = f"{stream}-missing", 1.5

    async def refused(asked: Awaitable[object]) -> None:
        async with asyncio.timeout(seconds + BOUND):
            with pytest.raises(StreamNotFound) as caught:
                await asked
        assert caught.value.stream == missing

    async with asyncio.TaskGroup() as group:
        for asked in (
            client.group(group_id, [stream, missing], timeout=seconds).__aenter__(),
            client.subscribe(missing, partition=0, timeout=seconds).__aenter__(),
            client.subscribe(missing, partition=[0, 1], timeout=seconds).__aenter__(),
            client.subscribe(missing, partition=0, cursor="reader", timeout=seconds).__aenter__(),
            client.last(missing, partition=0, n=1, timeout=seconds),
            client.oldest_offset(missing, timeout=seconds),
            client.resume_stream(missing, timeout=seconds),
        ):
            group.create_task(refused(asked))


async def test_a_member_alone_reads_everything_and_the_next_one_goes_on(
    client: Client, stream: str, group_id: str
) -> None:
    for partition in range(3):
        await publish(client, stream, partition, 2)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert group.state is GroupState.STABLE
        assert (group.epoch, group.coordinator) == (0, *client.metadata.brokers)
        read = await take(group, 6)
        assert places(read) == [(number, at) for number in range(3) for at in range(2)]
        assert group.assignment == {(stream, number) for number in range(3)}
    assert group.state.value == "left"
    assert [await cursor(client, group_id, stream, number) for number in range(3)] == [1, 1, 1]
    assert group_id not in (await client.fetch_metadata(groups=[group_id])).groups

    await publish(client, stream, 1)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 1)) == [(1, 2)]


async def test_several_streams_are_read_as_one(client: Client, stream: str, group_id: str) -> None:
    other = f"{stream}-other"
    await client.create_stream(other)
    await publish(client, other, 0)
    await publish(client, stream, 2)
    async with client.group(group_id, [stream, other], start=EARLIEST) as group:
        read = await take(group, 2)
    assert {(each.stream, each.partition) for each in read} == {(other, 0), (stream, 2)}
    await client.delete_stream(other)


@ON_EMBEDDED
async def test_what_is_in_hand_when_the_block_breaks_is_read_again(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    group = client.group(group_id, [stream], start=EARLIEST)
    await group.__aenter__()
    await take(group, 2)
    await group.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert await cursor(client, group_id, stream) == 0
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 2)) == [(0, 1), (0, 2)]


@ON_EMBEDDED
async def test_a_list_is_finished_when_the_next_one_is_asked_for(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 4)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        batches = group.batches(2)
        assert places(await anext(batches)) == [(0, 0), (0, 1)]
        await group.commit()
        assert await cursor(client, group_id, stream) is None
        assert places(await anext(batches)) == [(0, 2), (0, 3)]
        await group.commit()
        assert await cursor(client, group_id, stream) == 1
    assert await cursor(client, group_id, stream) == 3


@ON_EMBEDDED
async def test_positions_are_committed_now_and_then(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=0.05) as group:
        await take(group, 3)

        async def committed() -> bool:
            return await cursor(client, group_id, stream) == 1

        await eventually(committed)
        assert group.committed == {(stream, 0): 1}


@ON_EMBEDDED
async def test_without_an_interval_only_commit_commits(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=None) as group:
        messages = await take(group, 3)
        await group.commit(messages[1])
        assert await cursor(client, group_id, stream) == 1
    assert await cursor(client, group_id, stream) == 1


@ON_EMBEDDED
async def test_only_what_is_ours_can_be_committed(
    client: Client, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream]) as group:
        await holds(group, 3)
        with pytest.raises(NotGroupMember):
            await group.commit(Message("other", 0, 5, b"", b"", 0))
        with pytest.raises(NotGroupMember):
            await group.seek(stream, 7, 0)
        with pytest.raises(NotGroupMember):
            group.pause((stream, 7))
        for wrong in (stream, 0):
            with pytest.raises(WrongType):
                group.pause(wrong)  # type: ignore[arg-type]
            with pytest.raises(WrongType):
                await group.commit(wrong)  # type: ignore[arg-type]


async def test_a_commit_never_steps_back_behind_a_higher_one(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        messages = await take(group, 3)
        await client.set_cursor(f"__group:{group_id}", stream, 0, 10)
        await group.commit(messages[1])
        assert await cursor(client, group_id, stream) == 10
    assert await cursor(client, group_id, stream) == 10


# Where the group begins


@pytest.mark.parametrize("before", [0, 2])
async def test_new_messages_are_not_lost_where_nothing_was_ever_committed(
    client: Client, stream: str, group_id: str, before: int
) -> None:
    await publish(client, stream, 0, before)
    async with client.group(group_id, [stream]) as group:
        await holds(group, 3)
    await publish(client, stream, 0, 2)
    async with client.group(group_id, [stream]) as group:
        assert places(await take(group, 2)) == [(0, before), (0, before + 1)]


@ON_EMBEDDED
async def test_new_is_what_comes_after_joining(client: Client, stream: str, group_id: str) -> None:
    await publish(client, stream, 0)
    async with client.group(group_id, [stream]) as group:
        await publish(client, stream, 0)
        assert places(await take(group, 1)) == [(0, 1)]


async def test_the_latest_message_is_not_lost_either(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 1)
    async with client.group(group_id, [stream], start=StartAt.latest()) as group:
        await holds(group, 3)
    await publish(client, stream, 0, 1)
    async with client.group(group_id, [stream], start=StartAt.latest()) as group:
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]


async def test_without_a_start_something_must_have_been_committed(
    client: Client, stream: str, group_id: str
) -> None:
    with pytest.raises(NoCommittedPosition, match=group_id):
        await client.group(group_id, [stream], start=None).__aenter__()
    assert group_id not in (await client.fetch_metadata(groups=[group_id])).groups
    for partition in range(3):
        await publish(client, stream, partition)
        await client.set_cursor(f"__group:{group_id}", stream, partition, 0)
    await publish(client, stream, 1)
    async with client.group(group_id, [stream], start=None) as group:
        assert places(await take(group, 1)) == [(1, 1)]


async def test_a_stream_that_was_made_anew_is_read_from_where_the_user_says(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        await take(group, 3)
    await client.delete_stream(stream)
    await client.create_stream(stream, partitions=2)
    await publish(client, stream, 0, 2)
    await publish(client, stream, 1)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 1)) == [(1, 0)]
        with pytest.raises(StreamReset, match="created anew") as caught:
            await take(group, 1)
        assert (caught.value.stream, caught.value.partition) == (stream, 0)
        await group.seek(stream, 0, EARLIEST)
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]
    # The position of the other log does not keep that of this one from being stored.
    await publish(client, stream, 0)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 1)) == [(0, 2)]
    assert await cursor(client, group_id, stream) == 2


async def create_anew(client: Client, stream: str, *, messages: int) -> None:
    await client.delete_stream(stream)
    await client.create_stream(stream)
    await publish(client, stream, 0, messages)


async def test_a_longer_log_of_a_recreated_stream_is_told(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        await take(group, 3)
    await create_anew(client, stream, messages=6)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(StreamReset, match="created anew") as caught:
            await take(group, 1)
        assert (caught.value.partition, caught.value.offset) == (0, 2)
        await group.seek(stream, 0, EARLIEST)
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 4)) == [(0, 2), (0, 3), (0, 4), (0, 5)]
    # A third log is told apart from the second one.
    await create_anew(client, stream, messages=8)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(StreamReset):
            await take(group, 1)


async def test_a_group_begins_a_recreated_stream_at_its_start(
    client: Client, stream: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(client, stream, 0, 3)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        await take(group, 3)
    await create_anew(client, stream, messages=6)
    async with client.group(group_id, [stream], start=EARLIEST, on_reset="start") as group:
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]
    assert "created anew" in caplog.text
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 1)) == [(0, 2)]
    with pytest.raises(InvalidRequest, match="on_reset"):
        client.group(group_id, [stream], on_reset="latest")  # type: ignore[arg-type]


async def test_a_position_without_a_note_of_its_log_is_used(
    client: Client, stream: str, group_id: str
) -> None:
    """Earlier versions and Go members note nothing."""
    await publish(client, stream, 0, 4)
    await client.set_cursor(f"__group:{group_id}", stream, 0, 1)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 1)) == [(0, 2)]
    await create_anew(client, stream, messages=6)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(StreamReset, match="offset 2"):
            await take(group, 1)


async def test_a_recreated_stream_of_which_nothing_was_read_is_begun(
    client: Client, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        await holds(group, 3)
    await create_anew(client, stream, messages=2)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]


async def test_a_deleted_stream_ends_no_member_that_reads_another(
    client: Client, stream: str, group_id: str
) -> None:
    other = f"{stream}-other"
    await client.create_stream(other, partitions=2)
    async with client.group(group_id, [stream, other], start=EARLIEST) as group:
        await holds(group, 5)
        reading = asyncio.create_task(take(group, 1))
        await client.delete_stream(other)
        await holds(group, 3)
        await publish(client, stream, 0)
        assert places(await reading) == [(0, 0)]
        await client.delete_stream(stream)
        with pytest.raises(StreamDeleted):
            await take(group, 1)
        assert await anext(group, None) is None


async def test_an_expelled_member_rejoins_without_a_deleted_stream(
    client: Client, stream: str, group_id: str, server: Server
) -> None:
    """And takes it in again once it is created again."""
    other = f"{stream}-other"
    await client.create_stream(other, partitions=2)
    wire = Wire(server.host, server.port)
    async with client.group(group_id, [stream, other], start=EARLIEST) as group:
        await holds(group, 5)
        reading = asyncio.create_task(take(group, 3))
        await client.delete_stream(other)
        await holds(group, 3)
        expelled = group.consumer_id
        await Group(wire, group_id).leave(expelled)
        await eventually(joined_again(group, expelled))
        await holds(group, 3)
        await client.create_stream(other, partitions=2)
        await publish(client, other, 1, 2)
        await holds(group, 5)
        await publish(client, stream, 0)
        assert sorted(places(await reading)) == [(0, 0), (1, 0), (1, 1)]
    wire.close()


async def test_a_stream_created_again_at_once_is_read_again(
    client: Client, stream: str, group_id: str
) -> None:
    other = f"{stream}-other"
    await client.create_stream(other, partitions=1)
    async with client.group(group_id, [stream, other], start=EARLIEST) as group:
        await holds(group, 4)
        reading = asyncio.create_task(take(group, 1))
        await client.delete_stream(other)
        await client.create_stream(other, partitions=2)
        with pytest.raises(StreamReset) as caught:
            await reading
        assert (caught.value.stream, caught.value.partition) == (other, 0)
        await holds(group, 5)
        await group.seek(other, 0, EARLIEST)
        for partition in range(2):
            await publish(client, other, partition)
        assert places(await take(group, 2)) == [(0, 0), (1, 0)]


def joined_again(group: ConsumerGroup, before: str) -> Callable[[], Awaitable[bool]]:
    async def has() -> bool:
        return group.state is GroupState.STABLE and group.consumer_id != before

    return has


# Positions


async def test_a_member_has_its_partitions_when_it_is_entered(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    await publish(client, stream, 1, 1)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert group.assignment == {(stream, number) for number in range(3)}
        group.pause()
        assert group.paused == group.assignment == group.positions.keys()
        await group.seek(stream, 0, 2)
        assert (await group.lag())[StreamPartition(stream, 0)] == 1
        group.resume(StreamPartition(stream, 0))
        assert places(await take(group, 1)) == [(0, 2)]
        group.resume()
        assert places(await take(group, 1)) == [(1, 0)]


async def test_a_handler_is_told_of_them_when_the_group_is_at_hand(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 3)
    told: list[StreamPartition] = []

    async def on_assigned(assigned: Collection[StreamPartition]) -> None:
        told.extend(sorted(assigned))
        await group.seek(stream, 0, 1)

    async with client.group(group_id, [stream], start=EARLIEST, on_assigned=on_assigned) as group:
        assert not told
        assert not group.assignment
        group.pause(StreamPartition(stream, 0))
        await holds(group, 3)
        assert told == [(stream, number) for number in range(3)]
        group.resume()
        assert places(await take(group, 2)) == [(0, 1), (0, 2)]


async def test_handlers_hear_nothing_of_a_group_that_was_not_entered(
    client: Client, stream: str, group_id: str
) -> None:
    told: list[object] = []

    async def tell(partitions: object) -> None:
        told.append(partitions)

    group = client.group(group_id, [stream], start=EARLIEST, on_assigned=tell, on_revoked=tell)
    entering = asyncio.create_task(group.__aenter__())
    async with asyncio.timeout(5):
        while not group.positions:  # noqa: ASYNC110 - the last moment before it is entered
            await asyncio.sleep(0)
    assert entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert group.state is GroupState.LEFT
    assert not told


async def test_a_partition_is_paused_sought_and_resumed(
    client: Client, stream: str, group_id: str
) -> None:
    place = StreamPartition(stream, 0)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        await holds(group, 3)
        group.pause(place)
        assert group.paused == {place}
        await publish(client, stream, 0, 3)
        await publish(client, stream, 1, 1)
        assert places(await take(group, 1)) == [(1, 0)]
        assert (await group.lag())[place] == 3

        group.resume(place)
        assert places(await take(group, 3)) == [(0, 0), (0, 1), (0, 2)]
        assert group.positions[place] == 3
        assert (await group.lag())[place] == 0

        await group.seek(stream, 0, 1)
        assert group.positions[place] == 1
        assert places(await take(group, 2)) == [(0, 1), (0, 2)]
        await group.seek(stream, 0, EARLIEST)
        assert places(await take(group, 1)) == [(0, 0)]
    assert await cursor(client, group_id, stream) == 2


@ON_EMBEDDED
async def test_a_handler_may_seek_before_anything_is_handed_out(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0, 5)

    async def on_assigned(partitions: frozenset[StreamPartition]) -> None:
        assert partitions == {(stream, number) for number in range(3)}
        await group.seek(stream, 0, 3)

    group = client.group(group_id, [stream], start=EARLIEST, on_assigned=on_assigned)
    async with group:
        assert places(await take(group, 2)) == [(0, 3), (0, 4)]


# Mistakes


@ON_EMBEDDED
async def test_a_stream_that_does_not_exist_is_named(
    impatient: Client, stream: str, group_id: str
) -> None:
    group = impatient.group(group_id, [stream, "no-such-stream"])
    with pytest.raises(StreamNotFound, match="no-such-stream"):
        await group.__aenter__()
    assert group_id not in (await impatient.fetch_metadata(groups=[group_id])).groups


@ON_EMBEDDED
async def test_arguments_that_make_no_sense_are_refused_at_once(client: Client) -> None:
    wrongs: list[dict[str, Any]] = [
        {"group": "", "streams": ["s"]},
        {"group": "g", "streams": []},
        {"group": "g", "streams": [""]},
        {"group": "g", "streams": "s"},
        {"group": "g", "streams": ["s"], "consumer_id": ""},
        {"group": "g", "streams": ["s"], "start": 5},
        {"group": "g", "streams": ["s"], "commit_interval": 0},
        {"group": "g", "streams": ["s"], "on_assigned": 5},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidRequest):
            client.group(**wrong)


@ON_EMBEDDED
async def test_a_member_joins_once(client: Client, stream: str, group_id: str) -> None:
    group = client.group(group_id, [stream])
    for reading in (group, group.batches(), group.batches(raw=True)):
        with pytest.raises(UsageError, match="async with"):
            await anext(reading)
    async with group:
        with pytest.raises(UsageError):
            await group.__aenter__()
    with pytest.raises(UsageError):
        await group.__aenter__()


@ON_EMBEDDED
async def test_a_handler_that_raises_ends_the_group_with_its_error(
    client: Client, stream: str, group_id: str
) -> None:
    async def on_assigned(_: object) -> None:
        raise ZeroDivisionError

    async with client.group(group_id, [stream], on_assigned=on_assigned) as group:
        with pytest.raises(ZeroDivisionError):
            await anext(group)
    assert group.state is GroupState.LEFT


@ON_EMBEDDED
async def test_a_callback_that_others_cancel_ends_the_group_with_an_error(
    client: Client, stream: str, group_id: str
) -> None:
    async def on_assigned(_: object) -> None:
        await await_what_others_cancel()

    async with client.group(group_id, [stream], on_assigned=on_assigned) as group:
        with pytest.raises(CallbackCancelled, match="on_assigned"):
            await anext(group)
    assert group.state is GroupState.LEFT


@ON_EMBEDDED
async def test_what_on_revoked_raises_in_the_end_is_raised_too(
    client: Client, stream: str, group_id: str
) -> None:
    async def on_revoked(_: object) -> None:
        raise ZeroDivisionError

    group = client.group(group_id, [stream], start=EARLIEST, on_revoked=on_revoked)
    await publish(client, stream, 0, 2)
    with pytest.raises(ZeroDivisionError):
        async with group:
            await take(group, 2)
    assert await cursor(client, group_id, stream) == 1
    assert group.state is GroupState.LEFT


# The end


@ON_EMBEDDED
async def test_closing_ends_a_reader_and_may_be_repeated(
    client: Client, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream]) as group:
        await holds(group, 3)
        reader = asyncio.create_task(anext(group, None))
        await asyncio.sleep(0)
        await asyncio.gather(group.aclose(), group.aclose())
        assert await reader is None
        assert await anext(group, None) is None
    assert group.state is GroupState.LEFT
    assert not [task for task in asyncio.all_tasks() if group_id in task.get_name()]


@ON_EMBEDDED
async def test_a_client_that_is_closed_ends_its_groups(
    server_client: Client, stream: str, group_id: str
) -> None:
    group = server_client.group(group_id, [stream])
    async with group:
        await holds(group, 3)
        await server_client.aclose()
        assert await anext(group, None) is None


async def test_who_is_cancelled_while_joining_is_no_member(
    client: Client, stream: str, group_id: str
) -> None:
    for steps in range(0, 40, 3):
        group = client.group(group_id, [stream])
        joining = asyncio.create_task(group.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        if joining.done():
            await group.aclose()
        else:
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
        assert group_id not in (await client.fetch_metadata(groups=[group_id])).groups
