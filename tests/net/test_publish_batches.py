"""What is asked of many publishes at once is what asking each of them would give."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import Ack, AckPolicy
from liftbridge_aio.net.pending_publish import PendingPublish, PublishLane, PublishTerms
from liftbridge_aio.net.publish_batches import (
    are_usual,
    count_that_fit,
    lanes_of,
    messages_of,
    size_of,
    take_out,
)
from liftbridge_aio.net.publish_proof import Barrier

ACKED = PublishTerms(AckPolicy.ALL, 1.0, 1.0)
NOT_ACKED = PublishTerms(AckPolicy.NONE, 1.0, 1.0)
LANES = [PublishLane(stream, 0, ()) for stream in ("orders", "totals")]


@pytest.fixture(autouse=True, scope="module")
def loop() -> Iterator[None]:
    """Futures belong to a loop; this one never runs."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def message(
    number: int, lane: PublishLane = LANES[0], terms: PublishTerms = ACKED
) -> PendingPublish:
    return PendingPublish.of(
        asyncio.get_event_loop(), lane, terms, f"id-{number}", bytes(number), 0.0
    )


def ack(pending: PendingPublish, stream: str | None = None) -> Ack:
    return Ack(
        stream=stream or pending.lane.stream,
        partition_subject="",
        msg_subject="",
        offset=0,
        correlation_id=pending.correlation_id,
    )


def in_flight(count: int) -> tuple[object, list[PendingPublish], dict[str, PendingPublish]]:
    """Messages written over one session, and the table in which they are found."""
    session = object()
    messages = [message(number) for number in range(count)]
    for pending in messages:
        pending.session = session  # type: ignore[assignment] # only who it is matters
    return session, messages, {pending.correlation_id: pending for pending in messages}


@given(st.lists(st.integers(0, 50)), st.integers(1, 100), st.none() | st.integers(0, 100))
def test_as_many_are_taken_as_fit(sizes: list[int], enough: int, limit: int | None) -> None:
    expected = size = 0
    for length in sizes:
        if size >= enough or (limit is not None and size + length > limit):
            break
        size += length
        expected += 1
    assert count_that_fit([message(length) for length in sizes], enough, limit) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(LANES))))
def test_sizes_and_lanes(drawn: list[tuple[int, PublishLane]]) -> None:
    messages = [message(length, lane) for length, lane in drawn]
    assert size_of(messages) == sum(length for length, _ in drawn)
    lanes = [lane for _, lane in drawn]
    assert dict(lanes_of(messages)) == {lane: lanes.count(lane) for lane in lanes}


def test_only_what_is_acked_and_wanted_is_usual() -> None:
    cancelled = message(3)
    cancelled.cancel()
    barrier = Barrier("barrier", b"", asyncio.get_event_loop().create_future())
    assert are_usual([message(1), message(2)])
    for other in (cancelled, barrier, message(3, terms=NOT_ACKED)):
        assert not are_usual([message(1), other, message(2)])


def test_each_ack_finds_its_message() -> None:
    session, messages, unsettled = in_flight(20)
    backwards = messages[::-1]
    assert messages_of([ack(pending) for pending in backwards], unsettled, session) == backwards
    take_out(unsettled, messages[:15])
    assert list(unsettled.values()) == messages[15:]


def test_acks_that_are_not_for_these_messages() -> None:
    session, messages, unsettled = in_flight(20)
    acks = [ack(pending) for pending in messages]
    assert messages_of([*acks, acks[3]], unsettled, session) is None, "a second one"
    assert messages_of([*acks, ack(message(99))], unsettled, session) is None, "unknown"
    assert messages_of([*acks[1:], ack(messages[0], "other")], unsettled, session) is None
    assert messages_of(acks, unsettled, object()) is None, "of another session"
    messages[7].session = None
    assert messages_of(acks, unsettled, session) is None, "not written yet"
