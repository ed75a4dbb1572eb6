"""Pausing partitions, and what wakes them up."""

from __future__ import annotations

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire

PAUSED = End(Status.FAILED_PRECONDITION, "The request should be sent to partition leader")


async def running(wire: Wire, stream: str) -> set[int]:
    """The partitions that are not paused now.

    Only the call for one partition tells: a paused one has no leader that answers.
    """
    found = set()
    for partition in (await wire.stream(stream)).partitions:
        try:
            await wire.partition(stream, partition)
        except GRPCError as error:
            if End(error.status, error.message or "") != PAUSED:
                raise
        else:
            found.add(partition)
    return found


async def test_a_publish_resumes_the_partition_it_goes_to(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, partitions=3)
    await wire.publish(stream_name, b"before", partition=1)
    await wire.pause(stream_name)

    [ack] = await wire.publish(stream_name, b"after", partition=1)
    assert ack.offset == 1
    assert await running(wire, stream_name) == {1}
    assert [stored.value for stored in await wire.read(stream_name, 1)] == [b"before", b"after"]


async def test_what_goes_to_the_subject_of_a_paused_partition_is_lost(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"before")
    await wire.pause(stream_name)

    request = proto.PublishToSubjectRequest(subject=stream_name, value=b"lost")
    end = await wire.refusal(rpc.PUBLISH_TO_SUBJECT, request, timeout=0.3)
    assert end.status is Status.DEADLINE_EXCEEDED
    assert await running(wire, stream_name) == set()
    await wire.publish(stream_name, b"after")
    stored = await wire.stored(stream_name, 2)
    assert [each.value for each in stored] == [b"before", b"after"]


async def test_metadata_says_paused_for_ever_after(wire: Wire, stream_name: str) -> None:
    """A flaw to live with: the flag is set by a pause and no resume clears it."""
    await wire.create(stream_name, partitions=2)
    await wire.publish(stream_name, b"before")
    await wire.pause(stream_name, 0)
    paused = (await wire.stream(stream_name)).partitions
    assert {number: each.paused for number, each in paused.items()} == {0: True, 1: False}
    assert (paused[0].leader, paused[0].newest_offset) == (paused[1].leader, 0)

    await wire.publish(stream_name, b"after")
    resumed = (await wire.stream(stream_name)).partitions
    assert {number: each.paused for number, each in resumed.items()} == {0: True, 1: False}
    assert (await wire.partition(stream_name)).paused


async def test_pauses_and_resumes_leave_their_times(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    none = proto.PartitionEventTimestamps()
    assert (await wire.partition(stream_name)).pause_timestamps == none

    await wire.pause(stream_name)
    first = (await wire.stream(stream_name)).partitions[0].pause_timestamps
    assert first is not None
    assert 0 < first.first_timestamp == first.latest_timestamp
    await wire.publish(stream_name, b"resumes")
    then = (await wire.partition(stream_name)).pause_timestamps
    assert then is not None
    assert then.first_timestamp == first.first_timestamp < then.latest_timestamp
