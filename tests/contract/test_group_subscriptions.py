"""One subscriber for each partition and group, and how epochs decide who it is."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.groups.group_calls import Group
from support.raw import (
    FROM_EARLIEST,
    End,
    Ended,
    Subscription,
    Wire,
    eventually,
)

FENCED = End(Status.FAILED_PRECONDITION, "Consumer is not currently assigned this partition")
REPLACED = End(Status.OK)


class Subscribing:
    """Subscriptions to a stream in the name of a group that nobody has joined."""

    def __init__(self, wire: Wire, stream: str) -> None:
        self.wire = wire
        self.stream = stream
        self.group = f"group-{stream}"

    def request(self, consumer: str, epoch: int, group: str | None = None) -> proto.Consumer:
        """Return the identity of a subscriber."""
        return proto.Consumer(
            group_id=self.group if group is None else group,
            group_epoch=epoch,
            consumer_id=consumer,
        )

    def open(
        self, consumer: str, epoch: int, *, group: str | None = None, partition: int = 0
    ) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe from the start."""
        return self.wire.subscribe(
            self.stream,
            partition=partition,
            consumer=self.request(consumer, epoch, group),
            **FROM_EARLIEST,
        )

    async def refusal(self, consumer: str, epoch: int) -> End:
        """Return the status with which a subscribe fails."""
        request = proto.SubscribeRequest(stream=self.stream, consumer=self.request(consumer, epoch))
        return await self.wire.refusal(rpc.SUBSCRIBE, request)

    async def is_accepted(self, consumer: str, epoch: int) -> bool:
        """True if the consumer can subscribe, which ends the previous subscription."""
        try:
            async with self.open(consumer, epoch):
                return True
        except Ended as ended:
            assert ended.end == FENCED  # noqa: PT017 - any other end is a failure
            return False


@pytest.fixture
async def subscribing(wire: Wire, stream_name: str) -> Subscribing:
    """For a stream of two partitions with one message in each."""
    await wire.create(stream_name, partitions=2)
    await wire.publish(stream_name, b"0", partition=0)
    await wire.publish(stream_name, b"1", partition=1)
    return Subscribing(wire, stream_name)


async def still_reads(subscription: Subscription, subscribing: Subscribing) -> bool:
    """Publish, and see whether it arrives."""
    await subscribing.wire.publish(subscribing.stream, b"new")
    while (received := await subscription.next()).value != b"new":
        assert received.value == b"0"
    return True


@pytest.mark.parametrize("epoch", [5, 6])
async def test_the_same_or_a_greater_epoch_replaces_a_reader_which_ends_cleanly(
    subscribing: Subscribing, epoch: int
) -> None:
    async with subscribing.open("a", 5) as first:
        assert (await first.next()).value == b"0"
        async with subscribing.open("b", epoch) as second:
            assert await first.end() == REPLACED
            assert await still_reads(second, subscribing)


async def test_a_lesser_epoch_is_refused_and_disturbs_nobody(subscribing: Subscribing) -> None:
    async with subscribing.open("a", 5) as first:
        assert await subscribing.refusal("b", 4) == FENCED
        assert await subscribing.refusal("a", 4) == FENCED
        assert await still_reads(first, subscribing)


async def test_partitions_groups_and_readers_without_group_are_apart(
    subscribing: Subscribing,
) -> None:
    async with AsyncExitStack() as stack:
        of_the_group = await stack.enter_async_context(subscribing.open("a", 5))
        others = [
            subscribing.open("b", 4, partition=1),
            subscribing.open("b", 4, group=f"other-{subscribing.group}"),
            subscribing.open("b", 4, group=""),
            subscribing.open("c", 4, group=""),
            subscribing.wire.subscribe(subscribing.stream, **FROM_EARLIEST),
        ]
        opened = [await stack.enter_async_context(other) for other in others]
        assert [(await each.next()).value for each in opened] == [b"1", b"0", b"0", b"0", b"0"]
        assert await still_reads(of_the_group, subscribing)


async def test_one_that_is_refused_for_its_positions_replaces_nobody(
    subscribing: Subscribing,
) -> None:
    request = proto.SubscribeRequest(
        stream=subscribing.stream,
        consumer=subscribing.request("b", 6),
        start_position=proto.StartPosition.OFFSET,
        start_offset=0,
        stop_position=proto.StopPosition.STOP_OFFSET,
        stop_offset=-5,
    )
    async with subscribing.open("a", 5) as first:
        end = await subscribing.wire.refusal(rpc.SUBSCRIBE, request)
        assert end == End(Status.INVALID_ARGUMENT, "Stop offset is before start offset: -5 < 0")
        assert await still_reads(first, subscribing)


async def test_epochs_are_compared_before_positions(subscribing: Subscribing) -> None:
    request = proto.SubscribeRequest(
        stream=subscribing.stream,
        consumer=subscribing.request("b", 4),
        start_position=proto.StartPosition.OFFSET,
        stop_position=proto.StopPosition.STOP_OFFSET,
        stop_offset=-5,
    )
    async with subscribing.open("a", 5):
        assert await subscribing.wire.refusal(rpc.SUBSCRIBE, request) == FENCED


async def test_a_group_needs_a_consumer(subscribing: Subscribing) -> None:
    text = "Consumer id cannot be empty when group id is provided"
    assert await subscribing.refusal("", 0) == End(Status.INVALID_ARGUMENT, text)


async def test_when_a_subscriber_has_ended_any_epoch_may_follow(subscribing: Subscribing) -> None:
    async with subscribing.open("a", 5):
        assert await subscribing.refusal("b", 0) == FENCED

    async def is_forgotten() -> bool:
        return await subscribing.is_accepted("b", 0)

    await eventually(is_forgotten)


async def test_a_zombie_of_an_earlier_group_locks_the_new_one_out(
    wire: Wire, subscribing: Subscribing
) -> None:
    """A flaw to live with: epochs begin at 0 again, and only subscribers are compared."""
    group = Group(wire, subscribing.group)
    await group.join("helper", subscribing.stream)
    epoch = (await group.join("zombie", subscribing.stream)).epoch
    async with subscribing.open("zombie", epoch) as zombie:
        await group.leave("helper", "zombie")
        reply = await group.join("new", subscribing.stream)
        assert reply.epoch == 0
        assert await group.fetch("new", 0) == {subscribing.stream: [0, 1]}

        assert await subscribing.refusal("new", 0) == FENCED
        assert await still_reads(zombie, subscribing)


async def test_a_consumer_that_subscribes_again_is_no_longer_fenced(
    subscribing: Subscribing,
) -> None:
    """A flaw to live with: the end of its first subscription takes out the second one."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(subscribing.open("a", 5))
        again = await stack.enter_async_context(subscribing.open("a", 5))
        replies, end = await first.rest()
        assert end == REPLACED
        assert len(replies) <= 1

        async def is_unfenced() -> bool:
            return await subscribing.is_accepted("b", 4)

        await eventually(is_unfenced)
        assert await still_reads(again, subscribing)
