"""Events of the activity stream: read from what servers write, each once, never failing."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import Message
from liftbridge_aio._client.activity import EventsOnce, activity_event
from liftbridge_aio.activity_events import (
    ActivityEvent,
    CreateStreamEvent,
    DeleteStreamEvent,
    JoinGroupEvent,
    LeaveGroupEvent,
    PauseStreamEvent,
    ResumeStreamEvent,
    SetStreamReadonlyEvent,
    UnknownEvent,
)
from liftbridge_aio.wire import proto

OP = proto.ActivityStreamOp
PLACE = {"id": 7, "offset": 3, "timestamp": 1_000_000_000}

WRITTEN_AND_READ: list[tuple[dict[str, Any], ActivityEvent]] = [
    (
        {"op": OP.CREATE_STREAM, "create_stream_op": proto.CreateStreamOp("s", [0, 1])},
        CreateStreamEvent(**PLACE, stream="s", partitions=(0, 1)),
    ),
    (
        {"op": OP.DELETE_STREAM, "delete_stream_op": proto.DeleteStreamOp("s")},
        DeleteStreamEvent(**PLACE, stream="s"),
    ),
    (
        {"op": OP.PAUSE_STREAM, "pause_stream_op": proto.PauseStreamOp("s", [2], resume_all=True)},
        PauseStreamEvent(**PLACE, stream="s", partitions=(2,), resume_all=True),
    ),
    (
        {"op": OP.RESUME_STREAM, "resume_stream_op": proto.ResumeStreamOp("s", [2])},
        ResumeStreamEvent(**PLACE, stream="s", partitions=(2,)),
    ),
    (
        {
            "op": OP.SET_STREAM_READONLY,
            "set_stream_readonly_op": proto.SetStreamReadonlyOp("s", [1], readonly=True),
        },
        SetStreamReadonlyEvent(**PLACE, stream="s", partitions=(1,), readonly=True),
    ),
    (
        {
            "op": OP.JOIN_CONSUMER_GROUP,
            "join_consumer_group_op": proto.JoinConsumerGroupOp("g", "c", ["s", "t"]),
        },
        JoinGroupEvent(**PLACE, group="g", consumer="c", streams=("s", "t")),
    ),
    (
        {
            "op": OP.LEAVE_CONSUMER_GROUP,
            "leave_consumer_group_op": proto.LeaveConsumerGroupOp("g", "c", expired=True),
        },
        LeaveGroupEvent(**PLACE, group="g", consumer="c", expired=True),
    ),
]


def message(data: bytes, offset: int = 3) -> Message:
    return Message("__activity", 0, offset, b"", data, 1_000_000_000)


def written(number: int, **fields: Any) -> bytes:
    return bytes(proto.ActivityStreamEvent(id=number, **fields))


def deleted(number: int) -> bytes:
    return written(number, op=OP.DELETE_STREAM, delete_stream_op=proto.DeleteStreamOp("s"))


@pytest.mark.parametrize(
    ("fields", "event"), WRITTEN_AND_READ, ids=[type(e).__name__ for _, e in WRITTEN_AND_READ]
)
def test_each_operation_has_an_event(fields: dict[str, Any], event: ActivityEvent) -> None:
    assert activity_event(message(written(7, **fields))) == event


def test_no_operation_is_left_out() -> None:
    assert [fields["op"] for fields, _ in WRITTEN_AND_READ] == list(OP)


def test_events_cannot_be_changed_and_know_their_time() -> None:
    for _, event in WRITTEN_AND_READ:
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.id = 8  # type: ignore[misc]
        assert not hasattr(event, "__dict__")
        assert event.time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_an_operation_of_a_newer_server_is_handed_over_as_it_is() -> None:
    newer = b"\x08\x07\x10\x63\x52\x03new"  # id 7, operation 99, and a field that nobody knows
    assert activity_event(message(newer)) == UnknownEvent(**PLACE, operation=99, data=newer)


def test_an_operation_without_what_belongs_to_it_is_unknown() -> None:
    bare = written(7, op=OP.PAUSE_STREAM)
    assert activity_event(message(bare)) == UnknownEvent(**PLACE, operation=2, data=bare)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello world", id="text"),
        pytest.param(deleted(7)[:-1], id="cut-off"),
        pytest.param(b"\x0a\x03abc", id="other-type"),
        pytest.param(b"\x08\x07\x1a\x02\x08\x01", id="other-type-inside"),
        pytest.param(deleted(0), id="no-id"),
    ],
)
def test_what_is_no_event_is_handed_over_as_it_is(data: bytes) -> None:
    assert activity_event(message(data)) == UnknownEvent(
        id=0, offset=3, timestamp=1_000_000_000, operation=None, data=data
    )


def read(once: EventsOnce, *told: tuple[int, bytes]) -> list[int]:
    events = [once.read(message(data, offset)) for offset, data in told]
    return [event.id for event in events if event is not None]


@given(
    repeats=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=20),
    count=st.integers(1, 12),
    after=st.integers(0, 15),
)
def test_each_event_comes_once_and_in_order_however_often_it_is_told(
    repeats: list[tuple[int, int]], count: int, after: int
) -> None:
    # A server that takes over tells again what may not have been told, in order.
    ids = list(range(1, count + 1))
    for back, forth in repeats:
        behind = max(ids[-1] - back, 0)
        ids += range(behind + 1, ids[-1] + forth)
    told = [(offset, deleted(number)) for offset, number in enumerate(ids)]
    assert read(EventsOnce(after), *told) == list(range(after + 1, max(ids) + 1))


def test_what_is_no_event_comes_always_and_hides_nothing() -> None:
    told = [(0, deleted(5)), (1, b"noise"), (2, b"noise"), (3, deleted(6))]
    assert read(EventsOnce(0), *told) == [5, 0, 0, 6]


def test_a_reading_that_is_sent_back_tells_again() -> None:
    once = EventsOnce(2)
    told = [(0, deleted(2)), (1, deleted(3)), (2, deleted(4))]
    assert read(once, *told) == [3, 4]
    assert read(once, *told) == [3, 4]
    assert read(once, told[2]) == [4]
