"""Publishing: acks of every policy, unary, in a session and to a subject."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, message

LEADER, ALL, NONE = proto.AckPolicy.LEADER, proto.AckPolicy.ALL, proto.AckPolicy.NONE
WITH_ACK = [pytest.param(policy, id=policy.name or "") for policy in (LEADER, ALL)]


async def test_the_headers_subject_and_reply_are_the_servers(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"value", headers={"subject": b"mine", "reply": b"mine"})

    [stored] = await wire.read(stream_name)
    assert stored.headers == {"subject": stream_name.encode(), "reply": b""}
    assert (stored.subject, stored.reply_subject) == (stream_name, "")


@pytest.mark.parametrize("policy", WITH_ACK)
async def test_unary_publish_returns_the_ack(
    wire: Wire, stream_name: str, policy: proto.AckPolicy
) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"first")

    [ack] = await wire.publish(stream_name, b"second", correlation_id="id", ack_policy=policy)
    assert ack.ack_inbox
    assert ack == proto.Ack(
        stream=stream_name,
        partition_subject=stream_name,
        msg_subject=stream_name,
        offset=1,
        ack_inbox=ack.ack_inbox,
        correlation_id="id",
        ack_policy=policy,
        reception_timestamp=ack.reception_timestamp,
        commit_timestamp=ack.commit_timestamp,
    )


async def test_unary_publish_without_ack_policy_returns_nothing(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name)

    reply = await wire.call(rpc.PUBLISH, message(stream_name, b"value", ack_policy=NONE))
    assert reply == proto.PublishResponse()
    assert [stored.value for stored in await wire.stored(stream_name, 1)] == [b"value"]


@pytest.mark.parametrize("policy", WITH_ACK)
async def test_unary_publish_without_deadline_waits_for_no_ack(
    wire: Wire, stream_name: str, policy: proto.AckPolicy
) -> None:
    await wire.create(stream_name)

    request = message(stream_name, b"value", ack_policy=policy)
    reply = await wire.call(rpc.PUBLISH, request, timeout=None)
    assert reply == proto.PublishResponse()
    assert [stored.value for stored in await wire.stored(stream_name, 1)] == [b"value"]


@pytest.mark.parametrize(("policy", "timeout"), [(NONE, 10.0), (LEADER, None), (ALL, None)])
async def test_publish_to_subject_may_return_nothing(
    wire: Wire, stream_name: str, policy: proto.AckPolicy, timeout: float | None
) -> None:
    await wire.create(stream_name)

    request = proto.PublishToSubjectRequest(subject=stream_name, value=b"value", ack_policy=policy)
    reply = await wire.call(rpc.PUBLISH_TO_SUBJECT, request, timeout=timeout)
    assert reply == proto.PublishToSubjectResponse()
    assert [stored.value for stored in await wire.stored(stream_name, 1)] == [b"value"]


async def test_publish_to_a_subject_without_stream_ends_at_its_deadline(
    wire: Wire, stream_name: str
) -> None:
    request = proto.PublishToSubjectRequest(subject=stream_name, value=b"value")
    end = await wire.refusal(rpc.PUBLISH_TO_SUBJECT, request, timeout=0.3)
    assert end.status is Status.DEADLINE_EXCEEDED


async def test_a_session_sends_acks_to_itself_whatever_inbox_is_asked_for(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name)

    async with wire.publish_session() as session:
        await session.send(message(stream_name, ack_inbox="mine", correlation_id="id"))
        reply = await session.next()
    assert reply.ack is not None
    assert reply.ack.ack_inbox not in ("", "mine")


@pytest.mark.parametrize("policy", list(proto.AckPolicy))
async def test_an_error_in_a_session_comes_with_an_empty_ack(
    wire: Wire, stream_name: str, policy: proto.AckPolicy
) -> None:
    async with wire.publish_session() as session:
        await session.send(message(stream_name, correlation_id="id", ack_policy=policy))
        reply = await session.next()
    assert reply == proto.PublishResponse(
        ack=proto.Ack(),
        async_error=proto.PublishAsyncError(
            code=proto.PublishAsyncErrorCode.NOT_FOUND, message=f"no such stream: {stream_name}"
        ),
        correlation_id="id",
    )


async def test_an_error_tells_that_all_before_it_is_on_its_way(
    wire: Wire, stream_name: str
) -> None:
    """So a publish that must fail is a flush: what was sent before is stored soon after."""
    await wire.create(stream_name)
    count = 1000

    async with wire.publish_session() as session:
        await session.send(
            *(message(stream_name, b"%d" % n, ack_policy=NONE) for n in range(count)),
            message("", correlation_id="barrier"),
        )
        reply = await session.next()
        assert reply.correlation_id == "barrier"
        assert reply.async_error is not None
        assert reply.async_error.code == proto.PublishAsyncErrorCode.NOT_FOUND
    assert [stored.value for stored in await wire.stored(stream_name, count)] == [
        b"%d" % n for n in range(count)
    ]


async def test_a_half_closed_session_ends_after_its_last_ack(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    count = 50

    async with wire.publish_session() as session:
        await session.send(*(message(stream_name, correlation_id=f"{n}") for n in range(count)))
        await session.half_close()
        replies, end = await session.rest()
    assert [reply.ack.offset for reply in replies if reply.ack] == list(range(count))
    assert end == End(Status.OK)


async def test_a_value_above_the_limit_of_nats_is_refused(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    big, small = bytes(1 << 20), bytes((1 << 20) - 300)
    text = "failed to publish to NATS: nats: maximum payload exceeded"

    assert await wire.refusal(rpc.PUBLISH, message(stream_name, big)) == End(Status.UNKNOWN, text)
    to_subject = proto.PublishToSubjectRequest(subject=stream_name, value=big)
    assert await wire.refusal(rpc.PUBLISH_TO_SUBJECT, to_subject) == End(Status.UNKNOWN, text)
    async with wire.publish_session() as session:
        await session.send(
            message(stream_name, big, correlation_id="big"),
            message(stream_name, small, correlation_id="small"),
        )
        refused, taken = await session.take(2)
    assert refused.correlation_id == "big"
    assert refused.async_error == proto.PublishAsyncError(
        code=proto.PublishAsyncErrorCode.INTERNAL, message=text
    )
    assert taken.ack is not None
    assert taken.ack.offset == 0
    [stored] = await wire.read(stream_name)
    assert stored.value == small


async def test_a_request_above_4_mib_ends_the_session(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    too_big = message(stream_name, bytes(4 << 20))

    end = await wire.refusal(rpc.PUBLISH, too_big)
    assert end == End(
        Status.RESOURCE_EXHAUSTED,
        f"grpc: received message larger than max ({len(bytes(too_big))} vs. 4194304)",
    )
    async with wire.publish_session() as session:
        await session.send_while_open(too_big)
        assert await session.end() == end
    assert await wire.read(stream_name) == []


async def test_with_too_few_replicas_the_leader_acks_what_nobody_will_see(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name, min_isr=proto.NullableInt32(value=2))

    [ack] = await wire.publish(stream_name, b"value", ack_policy=LEADER)
    assert ack.offset == 0
    for_all = message(stream_name, b"value", ack_policy=ALL)
    end = await wire.refusal(rpc.PUBLISH, for_all, timeout=0.3)
    assert end.status is Status.DEADLINE_EXCEEDED
    metadata = await wire.partition(stream_name)
    assert (metadata.high_watermark, metadata.newest_offset) == (-1, 1)
