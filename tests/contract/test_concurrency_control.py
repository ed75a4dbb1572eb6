"""Optimistic concurrency: a message is stored only at the offset its publisher expects."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, message

CONTROLLED = {"optimistic_concurrency_control": proto.NullableBool(value=True)}
NO_ACK = "stream with concurrency control must have AckPolicy set"


async def test_minus_one_expects_nothing(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, **CONTROLLED)

    acks = await wire.publish(stream_name, b"a", b"b", expected_offset=-1)
    assert [ack.offset for ack in acks] == [0, 1]


async def test_an_ack_policy_is_required(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, **CONTROLLED)
    request = message(stream_name, correlation_id="id", ack_policy=proto.AckPolicy.NONE)

    assert await wire.refusal(rpc.PUBLISH, request) == End(Status.INVALID_ARGUMENT, NO_ACK)
    async with wire.publish_session() as session:
        await session.send(request)
        reply = await session.next()
    assert reply.async_error == proto.PublishAsyncError(
        code=proto.PublishAsyncErrorCode.BAD_REQUEST, message=NO_ACK
    )


@pytest.mark.parametrize(("stored_before", "error"), [(0, "OK"), (1, "INCORRECT_OFFSET")])
async def test_publish_to_subject_always_expects_offset_0(
    wire: Wire, stream_name: str, stored_before: int, error: str
) -> None:
    """The refusal is an ack with an error in it, not a failed call."""
    await wire.create(stream_name, **CONTROLLED)
    await wire.publish(stream_name, *[b"before"] * stored_before)

    request = proto.PublishToSubjectRequest(
        subject=stream_name, value=b"value", correlation_id="id"
    )
    reply = await wire.call(rpc.PUBLISH_TO_SUBJECT, request)
    assert reply.ack is not None
    assert (reply.ack.ack_error.name, reply.ack.offset) == (error, 0)
    assert reply.ack.correlation_id == "id"
    assert len(await wire.read(stream_name)) == 1


async def test_without_deadline_nobody_hears_of_a_wrong_offset(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name, **CONTROLLED)

    request = message(stream_name, b"lost", expected_offset=7)
    assert await wire.call(rpc.PUBLISH, request, timeout=None) == proto.PublishResponse()
    [ack] = await wire.publish(stream_name, b"stored", expected_offset=0)
    assert ack.offset == 0
