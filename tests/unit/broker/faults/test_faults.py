"""`broker.faults` on the wire: faults of calls and their messages."""

from __future__ import annotations

import asyncio
import time

import pytest
from grpclib.const import Status

from liftbridge_aio.broker import AppliedFault, EmbeddedBroker
from liftbridge_aio.broker.faults.fault_plan import MessagePlace
from liftbridge_aio.wire import proto, rpc
from support.raw import FROM_EARLIEST, End, Ended, Wire, message

DELAY = 0.15
"""Seconds: long enough to be seen, short enough for a test."""


@pytest.fixture
def cursor() -> proto.SetCursorRequest:
    """A cursor to set."""
    return proto.SetCursorRequest(stream="s", cursor_id="c", offset=4)


@pytest.fixture(autouse=True)
async def stream(wire: Wire) -> None:
    """A stream called "s"."""
    await wire.create("s")


async def offset_of_cursor(wire: Wire) -> int:
    request = proto.FetchCursorRequest(stream="s", cursor_id="c")
    return (await wire.call(rpc.FETCH_CURSOR, request)).offset


def values(messages: list[proto.Message]) -> list[bytes]:
    return [one.value for one in messages]


# --- unary calls ---


async def test_the_next_calls_fail_without_being_executed(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    fault = broker.faults.fail("Publish", times=2, code="ABORTED", text="not today")

    ends = [await wire.refusal(rpc.PUBLISH, message("s", b"lost")) for _ in range(2)]
    assert ends == [End(Status.ABORTED, "not today")] * 2
    assert (fault.applied, fault.is_pending) == (2, False)
    await wire.publish("s", b"stored")

    assert values(await wire.read("s")) == [b"stored"]
    assert broker.faults.applied == (
        AppliedFault("fail", "Publish", "request", 1),
        AppliedFault("fail", "Publish", "request", 2),
    )


async def test_a_dropped_call_is_never_answered_and_not_executed(
    broker: EmbeddedBroker, wire: Wire, cursor: proto.SetCursorRequest
) -> None:
    broker.faults.drop("SetCursor")

    end = await wire.refusal(rpc.SET_CURSOR, cursor, timeout=DELAY)

    assert end.status is Status.DEADLINE_EXCEEDED
    assert await offset_of_cursor(wire) == -1


async def test_refusals_are_replies_too(broker: EmbeddedBroker, wire: Wire) -> None:
    broker.faults.drop("DeleteStream", at="reply")
    broker.faults.fail("DeleteStream", at="reply", code="INTERNAL", text="something else")
    unknown = proto.DeleteStreamRequest(name="unknown")

    dropped = await wire.refusal(rpc.DELETE_STREAM, unknown, timeout=DELAY)
    replaced = await wire.refusal(rpc.DELETE_STREAM, unknown)
    untouched = await wire.refusal(rpc.DELETE_STREAM, unknown)

    assert dropped.status is Status.DEADLINE_EXCEEDED
    assert replaced == End(Status.INTERNAL, "something else")
    assert untouched.status is Status.NOT_FOUND


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_delayed_call_is_answered_later(
    broker: EmbeddedBroker, wire: Wire, at: MessagePlace
) -> None:
    broker.faults.delay("Publish", DELAY, at=at)

    started = time.monotonic()
    await wire.publish("s", b"late")

    assert time.monotonic() - started >= DELAY
    assert values(await wire.read("s")) == [b"late"]


async def test_a_duplicated_call_returns_its_first_reply(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    broker.faults.duplicate("CreateStream")
    broker.faults.duplicate("DeleteStream", times=2)

    await wire.create("t")
    await wire.delete("t")
    end = await wire.refusal(rpc.DELETE_STREAM, proto.DeleteStreamRequest(name="t"))

    assert end.status is Status.NOT_FOUND
    broker.faults.assert_all_applied()


async def test_conditions_and_skip_choose_calls(broker: EmbeddedBroker, wire: Wire) -> None:
    await wire.create("t")
    broker.faults.fail("Publish", skip=1, when=lambda request: request.stream == "s")

    await wire.publish("t", b"other", b"other")
    await wire.publish("s", b"first")
    end = await wire.refusal(rpc.PUBLISH, message("s", b"second"))
    await wire.publish("s", b"third")

    assert end.status is Status.UNAVAILABLE
    assert values(await wire.read("s")) == [b"first", b"third"]


async def test_a_condition_that_raises_fails_its_call_and_the_test(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    broker.faults.drop("Publish", when=lambda request: request.strean == "s")

    end = await wire.refusal(rpc.PUBLISH, message("s"))

    assert end.status is Status.UNKNOWN
    assert "AttributeError" in end.text
    with pytest.raises(AssertionError, match="drop, Publish at request, under a condition"):
        broker.faults.assert_all_applied()
    with pytest.raises(RuntimeError):
        await broker.faults.wait_applied()


# --- streams ---


async def test_subscriptions_fail_before_they_begin(broker: EmbeddedBroker, wire: Wire) -> None:
    broker.faults.fail("Subscribe", text="no")

    with pytest.raises(Ended) as refused:
        async with wire.subscribe("s"):
            pass

    assert refused.value.end == End(Status.UNAVAILABLE, "no")


async def test_the_handshake_of_a_subscription_is_held_back(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    await wire.publish("s", b"0")
    stall = broker.faults.stall("Subscribe", at="handshake")
    reading = asyncio.create_task(wire.read("s"))

    await stall.wait()
    assert not reading.done()
    stall.release()

    assert values(await reading) == [b"0"]


@pytest.mark.parametrize(("at", "stored"), [("request", [b"0"]), ("reply", [b"0", b"1"])])
async def test_a_publish_session_fails_at_a_message(
    broker: EmbeddedBroker, wire: Wire, at: MessagePlace, stored: list[bytes]
) -> None:
    broker.faults.fail("PublishAsync", at=at, skip=1, text="enough")

    async with wire.publish_session() as session:
        await session.send(message("s", b"0", correlation_id="0"))
        answers = [await session.next()]
        await session.send(message("s", b"1"))
        rest, end = await session.rest()

    assert [one.correlation_id for one in answers + rest] == ["0"]
    assert end == End(Status.UNAVAILABLE, "enough")
    assert values(await wire.stored("s", len(stored))) == stored


async def test_later_messages_wait_behind_a_delayed_one(broker: EmbeddedBroker, wire: Wire) -> None:
    broker.faults.delay("PublishAsync", DELAY)

    async with wire.publish_session() as session:
        started = time.monotonic()
        await session.send(message("s", correlation_id="0"), message("s", correlation_id="1"))
        answers = await session.take(2)

    assert time.monotonic() - started >= DELAY
    assert [one.correlation_id for one in answers] == ["0", "1"]


# --- waiting, checking, undoing ---


async def test_faults_that_were_not_applied_are_reported(broker: EmbeddedBroker) -> None:
    broker.faults.assert_all_applied()

    fault = broker.faults.fail("DeleteStream", times=3)

    [pending] = broker.faults.pending
    assert pending.is_pending
    expected = "fail, DeleteStream at request: applied 0 of 3"
    with pytest.raises(AssertionError, match=expected):
        broker.faults.assert_all_applied()
    with pytest.raises(TimeoutError, match=expected):
        await fault.wait(timeout=0.01)
    with pytest.raises(TimeoutError, match=expected):
        await broker.faults.wait_applied(timeout=0.01)

    fault.cancel()
    broker.faults.assert_all_applied()
    await broker.faults.wait_applied()
    with pytest.raises(RuntimeError, match="cancelled or its condition raised"):
        await fault.wait()


async def test_tests_wait_for_faults_without_sleeping(broker: EmbeddedBroker, wire: Wire) -> None:
    first = broker.faults.duplicate("Publish", times=2)
    waiting = [
        asyncio.create_task(one)
        for one in (first.wait(1), first.wait(), broker.faults.wait_applied())
    ]

    await wire.publish("s", b"0")
    await waiting[0]
    assert [one.done() for one in waiting] == [True, False, False]
    await wire.publish("s", b"1")

    await asyncio.gather(*waiting)


async def test_clear_releases_messages_and_cancels_faults(
    broker: EmbeddedBroker, wire: Wire, cursor: proto.SetCursorRequest
) -> None:
    stalled = broker.faults.stall("Publish")
    delayed = broker.faults.delay("SetCursor", 3600)
    broker.faults.fail("Publish", skip=1, times=None)
    broker.faults.skew_clock(3600)
    held = [
        asyncio.create_task(wire.publish("s", b"0")),
        asyncio.create_task(wire.call(rpc.SET_CURSOR, cursor)),
    ]
    await stalled.wait()
    await delayed.wait()

    broker.faults.clear()

    await asyncio.gather(*held)
    await wire.publish("s", b"1")
    assert not broker.faults.pending
    assert [one.kind for one in broker.faults.applied] == ["skew clock", "stall", "delay"]
    [_, last] = await wire.read("s")
    assert abs(last.timestamp - time.time_ns()) < 60 * 10**9


async def test_the_broker_stops_despite_blocked_messages(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    await wire.publish("s", b"0")
    faults = [
        broker.faults.stall("Publish"),
        broker.faults.delay("SetStreamReadonly", 3600),
        broker.faults.drop("PauseStream", at="reply"),
        broker.faults.stall("Subscribe"),
        broker.faults.stall("PublishAsync", at="request"),
    ]
    async with (
        wire.subscribe("s", **FROM_EARLIEST) as reading,
        wire.publish_session() as publishing,
    ):
        await publishing.send(message("s"))
        calls = [
            asyncio.create_task(wire.refusal(rpc.PUBLISH, message("s"), timeout=None)),
            asyncio.create_task(
                wire.refusal(rpc.SET_STREAM_READONLY, proto.SetStreamReadonlyRequest(name="s"))
            ),
            asyncio.create_task(wire.refusal(rpc.PAUSE_STREAM, proto.PauseStreamRequest(name="s"))),
        ]
        for fault in faults:
            await fault.wait()

        started = time.monotonic()
        await broker.stop()

        assert time.monotonic() - started < 5
        assert (await reading.end()).status is Status.UNAVAILABLE
        assert (await publishing.end()).status is Status.UNAVAILABLE
    await asyncio.gather(*calls, return_exceptions=True)
    assert broker.statistics().subscriptions == 0


async def test_faults_outlive_restarts(broker: EmbeddedBroker) -> None:
    broker.faults.fail("FetchMetadata")
    await broker.restart()
    wire = Wire(broker.host, broker.port)

    end = await wire.refusal(rpc.FETCH_METADATA, proto.FetchMetadataRequest())

    assert end.status is Status.UNAVAILABLE
    wire.close()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
async def test_delays_are_finite(broker: EmbeddedBroker, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        broker.faults.delay("Publish", seconds)


async def test_calls_fail_with_codes_that_exist(broker: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match="no failure status: 'OK'; there are CANCELLED, "):
        broker.faults.fail("Publish", code="OK")  # type: ignore[arg-type]
