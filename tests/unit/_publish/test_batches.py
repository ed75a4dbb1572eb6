"""Operations on many publishes give what the same on each of them would give."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._publish.batches import (
    are_usual,
    batch_of,
    count_that_fit,
    first_and_last_offsets,
    match_acks,
    size_of,
    stepped_back,
    take_out,
)
from liftbridge_aio._publish.flush_marker import FlushMarker
from liftbridge_aio._publish.message import PartitionRoute, PendingPublish, PublishTerms
from liftbridge_aio.model import Ack, AckPolicy

ACKED = PublishTerms(AckPolicy.ALL, 1.0, 1.0)
NOT_ACKED = PublishTerms(AckPolicy.NONE, 1.0, 1.0)
ROUTES = [PartitionRoute(stream, 0, ()) for stream in ("orders", "totals")]


@pytest.fixture(autouse=True, scope="module")
def loop() -> Iterator[None]:
    """Futures belong to a loop; this one never runs."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def message(
    number: int, route: PartitionRoute = ROUTES[0], terms: PublishTerms = ACKED
) -> PendingPublish:
    pending = PendingPublish(loop=asyncio.get_event_loop())
    pending.route, pending.terms, pending.session = route, terms, None
    pending.correlation_id, pending.frame = f"id-{number}", bytes(number)
    return pending


def ack(pending: PendingPublish, stream: str | None = None, offset: int = 0) -> Ack:
    return Ack(
        stream=stream or pending.route.stream,
        partition_subject="",
        msg_subject="",
        offset=offset,
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


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(ROUTES))))
def test_sizes_and_counts_per_partition(drawn: list[tuple[int, PartitionRoute]]) -> None:
    messages = [message(length, route) for length, route in drawn]
    assert size_of(messages) == sum(length for length, _ in drawn)
    routes = [route for _, route in drawn]
    counted = batch_of(messages, []).routes
    assert dict(counted) == {route: routes.count(route) for route in routes}


def test_only_what_is_acked_and_wanted_is_usual() -> None:
    cancelled = message(3)
    cancelled.cancel()
    marker = FlushMarker("flush", b"", asyncio.get_event_loop().create_future())
    assert are_usual([message(1), message(2)])
    for other in (cancelled, marker, message(3, terms=NOT_ACKED)):
        assert not are_usual([message(1), other, message(2)])


def test_each_ack_finds_its_message() -> None:
    session, messages, unsettled = in_flight(20)
    backwards = messages[::-1]
    batch = match_acks([ack(pending) for pending in backwards], unsettled, session)
    assert batch is not None
    assert batch.messages == backwards
    assert batch == batch_of(batch.messages, batch.acks)
    take_out(unsettled, batch.ids[5:])
    assert list(unsettled.values()) == messages[15:]


def test_acks_of_several_partitions_find_their_messages() -> None:
    messages = [message(number, ROUTES[number % 2]) for number in range(20)]
    for pending in messages:
        pending.session = None
    unsettled = {pending.correlation_id: pending for pending in messages}
    acks = [ack(pending) for pending in messages]
    batch = match_acks(acks, unsettled, None)
    assert batch is not None
    assert batch.messages == messages
    assert match_acks([*acks[1:], ack(messages[0], "totals")], unsettled, None) is None


def test_acks_that_are_not_for_these_messages() -> None:
    session, messages, unsettled = in_flight(20)
    acks = [ack(pending) for pending in messages]
    assert match_acks([*acks, acks[3]], unsettled, session) is None, "a second one"
    assert match_acks([*acks, ack(message(99))], unsettled, session) is None, "unknown"
    assert match_acks([*acks[1:], ack(messages[0], "other")], unsettled, session) is None
    assert match_acks(acks, unsettled, object()) is None, "of another session"
    messages[7].session = None
    assert match_acks(acks, unsettled, session) is None, "not written yet"


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(ROUTES))))
def test_first_and_last_offset_of_each_partition(
    drawn: list[tuple[int, PartitionRoute]],
) -> None:
    messages = [message(1, route) for _, route in drawn]
    acks = [
        ack(pending, offset=offset) for pending, (offset, _) in zip(messages, drawn, strict=True)
    ]
    offsets = {route: [offset for offset, other in drawn if other is route] for route in ROUTES}
    assert first_and_last_offsets(batch_of(messages, acks)) == {
        route: (found[0], found[-1]) for route, found in offsets.items() if found
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(ROUTES))))
def test_only_what_was_written_after_an_ack_must_get_a_higher_offset(
    drawn: list[tuple[int, int, PartitionRoute]],
) -> None:
    """Acks with policy ALL come after those with LEADER of messages that follow."""
    route = PartitionRoute("orders", 0, (), newest_offset=5, newest_at=5.0)
    messages = [message(1, route if other is ROUTES[0] else other) for _, _, other in drawn]
    for pending, (written_at, _, _) in zip(messages, drawn, strict=True):
        pending.written_at = float(written_at)
    acks = [
        ack(pending, offset=offset) for pending, (_, offset, _) in zip(messages, drawn, strict=True)
    ]
    assert stepped_back(route, batch_of(messages, acks)) == any(
        offset <= 5 and written_at >= 5 and other is ROUTES[0]
        for written_at, offset, other in drawn
    )
