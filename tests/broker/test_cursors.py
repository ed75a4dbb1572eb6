"""Cursors and what the server forgets of them."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cursors import CursorStore
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.state import ClusterState
from liftbridge_aio.model import CURSORS_STREAM
from liftbridge_aio.wire import proto


def store_of(partitions: int, limit: int = 2**20) -> tuple[ClusterState, CursorStore]:
    state = ClusterState(limit, limit)
    store = CursorStore(state, "ns.cursors")
    store.create_stream(partitions, now=1)
    return state, store


def put(store: CursorStore, offset: int, name: str = "c", now: int = 2) -> None:
    cursor = proto.Cursor(stream="s", partition=0, cursor_id=name, offset=offset)
    store.set(cursor, "inbox", now, lambda _: 0)


def get(store: CursorStore, name: str = "c") -> int:
    return store.get(name, "s", 0, now=3)


def test_a_cursor_is_where_it_was_put_last_even_if_it_went_back() -> None:
    _, store = store_of(3)
    assert get(store) == -1

    for offset in (5, 3):
        put(store, offset)
        assert get(store) == offset


def test_a_resumed_partition_only_knows_the_highest_offset() -> None:
    state, store = store_of(3)
    put(store, 5)
    put(store, 3)
    state.pause(CURSORS_STREAM, [], resume_all=False, now=3)
    assert get(store) == 3  # remembered, so nothing is woken

    for number in range(20):  # wakes all partitions, whatever the hash is
        put(store, 1, f"other {number}")

    assert get(store) == 5


def test_the_cursors_can_be_read_as_a_stream() -> None:
    state, store = store_of(3)
    cursor = proto.Cursor(stream="foo", partition=0, cursor_id="mycursor", offset=7)
    store.set(cursor, "inbox", 2, lambda _: 0)

    partition = state.partition(CURSORS_STREAM, 2)  # crc32("mycursor,foo,0") % 3, see W14
    assert partition is not None
    [message] = partition.log.read(0, 9)
    assert message.key == b"mycursor,foo,0"
    assert proto.Cursor.parse(message.value).offset == 7
    assert message.subject == "ns.cursors.2"


def test_what_others_publish_there_does_no_harm() -> None:
    state, store = store_of(1)
    put(store, 7)
    partition = state.partition(CURSORS_STREAM, 0)
    assert partition is not None
    partition.log.read(0, 1)[0].value = b"\x08"
    state.pause(CURSORS_STREAM, [], resume_all=False, now=3)
    state.resume(CURSORS_STREAM, 0, now=4)

    assert get(store) == -1


def test_no_cursors_without_their_stream() -> None:
    _, store = store_of(0)

    for call in (lambda: put(store, 1), lambda: get(store)):
        with pytest.raises(BrokerError, match="Cursors stream does not exist") as refused:
            call()
        assert refused.value.code is Code.INTERNAL


def test_a_refused_cursor_is_an_internal_error_and_forgotten() -> None:
    state, store = store_of(1)
    state.set_readonly(CURSORS_STREAM, [], readonly=True, now=2)

    with pytest.raises(BrokerError) as refused:
        put(store, 1)

    assert refused.value.code is Code.INTERNAL
    text = "rpc error: code = FailedPrecondition desc = readonly partition: 0"
    assert refused.value.text == text
    assert get(store) == -1
