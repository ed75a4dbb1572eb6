"""Making partitions read-only and writable again."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, message


async def readonly(wire: Wire, stream: str) -> set[int]:
    """The partitions that metadata calls read-only."""
    partitions = (await wire.stream(stream)).partitions
    return {number for number, each in partitions.items() if each.readonly}


@pytest.mark.parametrize("policy", list(proto.AckPolicy))
async def test_a_readonly_partition_refuses_publishes(
    wire: Wire, stream_name: str, policy: proto.AckPolicy
) -> None:
    await wire.create(stream_name, partitions=2)
    await wire.set_readonly(stream_name, 1)
    request = message(stream_name, partition=1, correlation_id="id", ack_policy=policy)

    end = End(Status.FAILED_PRECONDITION, "readonly partition: 1")
    assert await wire.refusal(rpc.PUBLISH, request) == end
    async with wire.publish_session() as session:
        await session.send(request)
        reply = await session.next()
    assert reply.correlation_id == "id"
    assert reply.async_error == proto.PublishAsyncError(
        code=proto.PublishAsyncErrorCode.READONLY, message=end.text
    )
    await wire.publish(stream_name, b"the other one", partition=0)


async def test_what_goes_to_the_subject_of_a_readonly_partition_is_never_acked(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name)
    await wire.set_readonly(stream_name)

    request = proto.PublishToSubjectRequest(subject=stream_name, value=b"lost")
    end = await wire.refusal(rpc.PUBLISH_TO_SUBJECT, request, timeout=0.3)
    assert end.status is Status.DEADLINE_EXCEEDED
    await wire.set_readonly(stream_name, readonly=False)
    [ack] = await wire.publish(stream_name, b"stored")
    assert ack.offset == 0


async def test_changes_leave_their_times(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    await wire.set_readonly(stream_name)
    first = (await wire.partition(stream_name)).readonly_timestamps
    await wire.set_readonly(stream_name, readonly=False)
    then = (await wire.partition(stream_name)).readonly_timestamps

    assert first is not None
    assert then is not None
    assert 0 < first.first_timestamp == first.latest_timestamp
    assert then.first_timestamp == first.first_timestamp < then.latest_timestamp


async def test_a_pause_makes_writable_what_metadata_goes_on_to_call_readonly(
    wire: Wire, stream_name: str
) -> None:
    """A flaw to live with: the log that a resume opens has forgotten that it was read-only."""
    await wire.create(stream_name)
    await wire.set_readonly(stream_name)
    await wire.pause(stream_name)
    refused = await wire.refusal(rpc.PUBLISH, message(stream_name))
    assert refused == End(Status.FAILED_PRECONDITION, "readonly partition: 0")

    async with wire.subscribe(stream_name, resume=True) as subscription:
        await wire.publish(stream_name, b"written")
        assert (await subscription.next()).value == b"written"
    assert await readonly(wire, stream_name) == {0}
