"""Columns hold what the messages hold, whatever these look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire import column_batch
from liftbridge_aio.wire.codec import decode_message
from liftbridge_aio.wire.column_batch import ColumnBatch, decode_columns
from support.wire import wire_fields
from support.wire.wire_fields import bytes_field, number_field

SOME = 40
"""More than the number from which on messages are read together."""


def message(offset: int, key: bytes = b"", value: bytes = b"value") -> bytes:
    fields = [
        number_field(1, offset) if offset else b"",
        bytes_field(2, key) if key else b"",
        bytes_field(3, value) if value else b"",
        number_field(4, 1_790_000_000_000_000_000 + offset),
        bytes_field(7, b"subject-%d" % offset),
        bytes_field(9, bytes_field(1, b"number") + bytes_field(2, b"%d" % offset)),
    ]
    return b"".join(fields)


def check(columns: ColumnBatch, datas: list[bytes]) -> None:
    messages = [decode_message(data) for data in datas]
    assert columns.offsets == [each.offset for each in messages]
    assert columns.keys == [each.key for each in messages]
    assert columns.values == [each.value for each in messages]
    assert columns.timestamps == [each.timestamp for each in messages]
    assert columns.data == datas
    assert columns.headers() == [each.headers for each in messages]
    assert columns.subjects() == [each.subject for each in messages]
    own = [each.transaction_headers for each in messages]
    uuids, acks = columns.transaction_headers()
    assert uuids == [each.get("txn-uuid") for each in own]
    assert acks == {index: each["txn-ack"] for index, each in enumerate(own) if "txn-ack" in each}


@pytest.mark.parametrize("count", [0, 1, SOME, 1200])
@pytest.mark.parametrize(
    "form",
    [(b"", b"value"), (b"key", b"value"), (b"", b""), (b"", bytes(20_000))],
    ids=["plain", "with keys", "without values", "large"],
)
def test_columns_hold_what_messages_hold(count: int, form: tuple[bytes, bytes]) -> None:
    datas = [message(offset, *form) for offset in range(count)]
    columns, broken = decode_columns(datas)
    assert broken is None
    assert len(columns) == count
    check(columns, datas)


def header(name: bytes, content: bytes) -> bytes:
    return bytes_field(9, bytes_field(1, name) + bytes_field(2, content))


UUID = bytes(range(16))
ENTRY = bytes_field(1, b"txn-uuid") + bytes_field(2, UUID)


def test_uuids_are_those_of_their_messages() -> None:
    for value in (b"value", b"J\x1c" + ENTRY, ENTRY[:14], b"x" * 300):
        datas = [message(offset, value=value) for offset in range(100, 100 + SOME)]
        datas[3] += header(b"txn-uuid", UUID)
        datas[-1] += header(b"txn-uuid", UUID)
        datas[-2] += header(b"txn-uuid", UUID[:7])
        check(decode_columns(datas)[0], datas)
        plain = [message_of(value, offset) for offset in range(100, 100 + SOME)]
        plain[5] += header(b"txn-uuid", UUID)
        check(decode_columns(plain)[0], plain)
        plain[6] += header(b"copy", b"J\x1c" + ENTRY)
        plain[7] += header(b"txn-ack", b"\x01")
        check(decode_columns(plain)[0], plain)


def message_of(value: bytes, offset: int) -> bytes:
    """Return a message without headers of its publisher."""
    fields = [
        number_field(1, offset),
        bytes_field(3, value),
        number_field(4, 1_790_000_000_000_000_000 + offset),
        bytes_field(5, b"stream"),
        bytes_field(7, b"subject"),
        header(b"reply", b""),
        header(b"subject", b"subject"),
    ]
    return b"".join(fields)


@given(st.lists(wire_fields.messages, max_size=5), st.integers(0, SOME))
def test_random_messages_among_plain_ones(strange: list[bytes], place: int) -> None:
    datas = [message(offset) for offset in range(1, SOME)]
    datas[place:place] = strange
    columns, broken = decode_columns(datas)
    assert broken is None
    check(columns, datas)


@pytest.mark.parametrize("place", [0, 17, 600])
@pytest.mark.parametrize("cut", [b"\xff", bytes_field(3, b"value")[:-2], b"\x0a\x7f"], ids=repr)
def test_what_stands_before_a_broken_message_is_read(place: int, cut: bytes) -> None:
    datas = [message(offset) for offset in range(1, 700)]
    datas[place] += cut
    columns, broken = decode_columns(datas)
    assert isinstance(broken, MalformedData)
    check(columns, datas[:place])


def test_what_a_server_sends_is_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_batch, "_add_one_by_one", None)
    for key in b"", b"key":
        datas = [message(offset, key) for offset in range(1, 1200)]
        columns, _ = decode_columns(datas)
        check(columns, datas)


def test_some_of_the_messages_can_be_selected() -> None:
    datas = [message(offset) for offset in range(SOME)]
    columns, _ = decode_columns(datas)
    check(columns.select([0, 3, 7]), [datas[0], datas[3], datas[7]])
