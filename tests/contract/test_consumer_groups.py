"""Consumer groups: members, epochs, expiry, and reports about the coordinator."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.rpc import Rpc
from support.groups.group_calls import (
    NO_CANDIDATES,
    NO_GROUP,
    NO_STREAM,
    NOT_A_MEMBER,
    OTHER_EPOCH,
    Group,
    group_metadata,
)
from support.raw import End, Wire, eventually

CONSUMER_TIMEOUT = 4.0
COORDINATOR_TIMEOUT = 1.0
"""Of the servers of these tests, in seconds."""


@pytest.fixture
async def group(wire: Wire, stream_name: str) -> Group:
    """A group that nobody has joined, beside a stream of the test's name with 2 partitions."""
    await wire.create(stream_name, partitions=2)
    return Group(wire, f"group-{stream_name}")


@pytest.mark.parametrize(
    ("procedure", "request_", "text"),
    [
        (rpc.JOIN_CONSUMER_GROUP, proto.JoinConsumerGroupRequest(), "No groupId provided"),
        (
            rpc.JOIN_CONSUMER_GROUP,
            proto.JoinConsumerGroupRequest(group_id="g", streams=["s"]),
            "No consumerId provided",
        ),
        (
            rpc.JOIN_CONSUMER_GROUP,
            proto.JoinConsumerGroupRequest(group_id="g", consumer_id="c"),
            "No streams provided",
        ),
        (rpc.LEAVE_CONSUMER_GROUP, proto.LeaveConsumerGroupRequest(), "No groupId provided"),
        (
            rpc.LEAVE_CONSUMER_GROUP,
            proto.LeaveConsumerGroupRequest(group_id="g"),
            "No consumerId provided",
        ),
        (
            rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS,
            proto.FetchConsumerGroupAssignmentsRequest(consumer_id="c"),
            "No groupId provided",
        ),
        (
            rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS,
            proto.FetchConsumerGroupAssignmentsRequest(group_id="g"),
            "No consumerId provided",
        ),
        (
            rpc.REPORT_CONSUMER_GROUP_COORDINATOR,
            proto.ReportConsumerGroupCoordinatorRequest(),
            "No groupId provided",
        ),
        (
            rpc.REPORT_CONSUMER_GROUP_COORDINATOR,
            proto.ReportConsumerGroupCoordinatorRequest(group_id="g"),
            "No consumerId provided",
        ),
        (
            rpc.REPORT_CONSUMER_GROUP_COORDINATOR,
            proto.ReportConsumerGroupCoordinatorRequest(group_id="g", consumer_id="c"),
            "No coordinator provided",
        ),
    ],
)
async def test_what_is_missing_is_named(
    wire: Wire, procedure: Rpc[Any, Any], request_: Any, text: str
) -> None:
    assert await wire.refusal(procedure, request_) == End(Status.INVALID_ARGUMENT, text)


async def test_the_first_join_makes_the_group_at_epoch_0(
    wire: Wire, group: Group, stream_name: str
) -> None:
    [broker] = (await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())).brokers
    reply = await group.join("c", stream_name)

    assert (reply.coordinator, reply.epoch) == (broker.id, 0)
    assert reply.consumer_timeout == CONSUMER_TIMEOUT * 10**9
    assert reply.coordinator_timeout == COORDINATOR_TIMEOUT * 10**9
    found = await group.metadata()
    assert (found.group_id, found.coordinator, found.epoch) == (group.name, broker.id, 0)


async def test_each_join_and_leave_is_a_greater_epoch(group: Group, stream_name: str) -> None:
    epochs = [(await group.join(consumer, stream_name)).epoch for consumer in "abc"]
    for consumer in "ab":
        await group.leave(consumer)
        epochs.append(await group.epoch())
    assert epochs == sorted(set(epochs))


async def test_the_last_leave_ends_the_group_and_a_new_one_begins_at_epoch_0(
    group: Group, stream_name: str
) -> None:
    await group.join("a", stream_name)
    epoch = (await group.join("b", stream_name)).epoch
    await group.leave("a", "b")

    assert not await group.exists()
    assert await group.fetch_refusal("b", epoch) == NO_GROUP
    assert await group.leave_refusal("b") == NO_GROUP
    assert (await group.join("b", stream_name)).epoch == 0


async def test_a_member_cannot_join_again(group: Group, stream_name: str) -> None:
    await group.join("c", stream_name)
    text = "consumer is already a member of the consumer group"
    already = End(Status.FAILED_PRECONDITION, text)
    assert await group.join_refusal("c", stream_name) == already
    assert await group.join_refusal("c", "unknown") == already
    assert await group.epoch() == 0


async def test_all_streams_must_exist(group: Group, stream_name: str) -> None:
    assert await group.join_refusal("c", stream_name, "unknown") == NO_STREAM
    assert not await group.exists()
    await group.join("c", stream_name)
    assert await group.join_refusal("d", "unknown", stream_name) == NO_STREAM
    assert await group.leave_refusal("d") == NOT_A_MEMBER


async def test_assignments_are_for_members_who_know_the_epoch(
    group: Group, stream_name: str
) -> None:
    assert await group.fetch_refusal("c", 0) == NO_GROUP
    await group.join("c", stream_name)
    assert await group.fetch_refusal("c", 1) == OTHER_EPOCH
    assert await group.fetch_refusal("stranger", 1) == OTHER_EPOCH
    assert await group.fetch_refusal("stranger", 0) == NOT_A_MEMBER

    epoch = (await group.join("d", stream_name)).epoch
    assert await group.fetch_refusal("c", 0) == OTHER_EPOCH
    assert await group.fetch("c", epoch) == {stream_name: [0]}


async def test_metadata_tells_of_groups_only_when_asked(
    wire: Wire, group: Group, stream_name: str
) -> None:
    await group.join("c", stream_name)
    found = await group_metadata(wire, "unknown", group.name, "unknown")

    unknown = proto.ConsumerGroupMetadata(
        group_id="unknown", error=proto.ConsumerGroupMetadataError.UNKNOWN_GROUP
    )
    assert [found[0], found[2]] == [unknown, unknown]
    assert (found[1].group_id, found[1].error) == (group.name, proto.ConsumerGroupMetadataError.OK)
    assert await group_metadata(wire) == []


async def test_a_silent_member_is_expelled_and_the_others_get_its_share(
    group: Group, stream_name: str
) -> None:
    await group.join("silent", stream_name)
    joined = time.monotonic()
    epoch = (await group.join("alive", stream_name)).epoch

    async def is_expelled() -> bool:
        try:
            assert await group.fetch("alive", epoch) == {stream_name: [0]}
        except GRPCError as error:
            assert End(error.status, error.message or "") == OTHER_EPOCH  # noqa: PT017 - no other
            return True
        return False

    await eventually(is_expelled)
    assert time.monotonic() - joined >= CONSUMER_TIMEOUT - 0.1
    assert await group.leave_refusal("silent") == NOT_A_MEMBER
    assert await group.shares("alive") == {"alive": {stream_name: [0, 1]}}


async def test_only_a_fetch_that_succeeds_is_a_sign_of_life(group: Group, stream_name: str) -> None:
    await group.join("c", stream_name)

    async def is_gone() -> bool:
        return await group.fetch_refusal("c", 1) == NO_GROUP

    await eventually(is_gone)
    assert not await group.exists()


async def test_a_fetch_gives_the_whole_time_again(group: Group, stream_name: str) -> None:
    await group.join("c", stream_name)
    until = time.monotonic() + CONSUMER_TIMEOUT + 0.5
    while time.monotonic() < until:
        assert await group.fetch("c", 0) == {stream_name: [0, 1]}
        await asyncio.sleep(CONSUMER_TIMEOUT / 10)


async def test_reports_are_of_members_about_the_present_coordinator(
    group: Group, stream_name: str
) -> None:
    text = f"No such consumer group {group.name}"
    assert await group.report_refusal("c", "a", 0) == End(Status.FAILED_PRECONDITION, text)

    coordinator = (await group.join("c", stream_name)).coordinator
    now = f"Coordinator generation mismatch, current coordinator: {coordinator} epoch: 0, got"
    text = f"{now} coordinator: other epoch: 0"
    assert await group.report_refusal("c", "other", 0) == End(Status.FAILED_PRECONDITION, text)
    text = f"{now} coordinator: {coordinator} epoch: 7"
    assert await group.report_refusal("c", coordinator, 7) == End(Status.FAILED_PRECONDITION, text)
    text = f"Consumer stranger is not a member of consumer group {group.name}"
    end = await group.report_refusal("stranger", coordinator, 0)
    assert end == End(Status.FAILED_PRECONDITION, text)


async def test_alone_there_is_no_other_coordinator(group: Group, stream_name: str) -> None:
    coordinator = (await group.join("c", stream_name)).coordinator
    assert await group.report_refusal("c", coordinator, 0) == NO_CANDIDATES
    assert await group.fetch("c", 0) == {stream_name: [0, 1]}


async def test_more_than_half_of_the_members_must_report(group: Group, stream_name: str) -> None:
    await group.join("a", stream_name)
    await group.join("b", stream_name)
    reply = await group.join("c", stream_name)

    await group.report("a", reply.coordinator, reply.epoch)
    await group.report("a", reply.coordinator, reply.epoch)
    end = await group.report_refusal("b", reply.coordinator, reply.epoch)
    assert end == NO_CANDIDATES


async def test_reports_are_forgotten_but_not_once_they_were_enough(
    group: Group, stream_name: str
) -> None:
    await group.join("a", stream_name)
    reply = await group.join("b", stream_name)

    async def time_for_a_report_passes() -> None:
        await asyncio.sleep(1.2 * COORDINATOR_TIMEOUT)
        await group.shares("a", "b")

    await group.report("a", reply.coordinator, reply.epoch)
    await time_for_a_report_passes()
    await group.report("b", reply.coordinator, reply.epoch)
    assert await group.report_refusal("a", reply.coordinator, reply.epoch) == NO_CANDIDATES
    await time_for_a_report_passes()
    assert await group.report_refusal("a", reply.coordinator, reply.epoch) == NO_CANDIDATES
