"""A message as a record, and damage to it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from liftbridge_aio.broker.storage.core.record import (
    HEADER_BYTES,
    MARKER,
    CorruptRecord,
    TornRecord,
    check,
    decode,
    encode,
    find_header,
    record_size,
)
from liftbridge_aio.model import Message

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
POSITIONS = st.integers(0, 2**40)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    headers = draw(st.dictionaries(TEXTS, st.binary(max_size=20), max_size=4))
    subject, reply = draw(TEXTS), draw(TEXTS)
    for name, text in (("subject", subject), ("reply", reply)):
        headers.pop(name, None)
        if text or draw(st.booleans()):
            headers[name] = text.encode()
    key, value = draw(st.binary(max_size=20)), draw(st.binary(max_size=60))
    return Message("s", 3, draw(INT64), key, value, draw(INT64), headers, subject, reply)


@given(message=messages(), position=POSITIONS, before=st.binary(max_size=9))
def test_a_message_comes_back_as_it_was(message: Message, position: int, before: bytes) -> None:
    record = encode(message, position)

    found, end = decode(before + record + b"after", len(before), position, "s", 3)

    assert found == message
    assert end == len(before) + len(record)
    assert check(record, 0, position) == (len(record), message.offset, message.timestamp)


@given(message=messages())
def test_the_size_is_known_before_the_record(message: Message) -> None:
    assert record_size(message) == len(encode(message, 0))


def test_the_size_is_that_of_a_v1_9_0_server() -> None:
    # There: 28 bytes around the message, 10 of checksum, version and attributes besides two
    # lengths, and for each header a length of 2 and one of 4 bytes.
    message = Message("s", 0, 0, b"key", b"value", 1, {"subject": b"foo", "reply": b""}, "foo")

    assert record_size(message) == 28 + 6 + (4 + 3) + (4 + 5) + 2 + (6 + 7 + 3) + (6 + 5)


def test_messages_do_not_share_their_headers() -> None:
    record = encode(Message("s", 0, 0, b"", b"", 0, {"a": b"1"}), 0)
    first, _ = decode(record, 0, 0, "s", 0)
    assert isinstance(first.headers, dict)
    first.headers["b"] = b"2"

    second, _ = decode(record, 0, 0, "s", 0)

    assert second.headers == {"a": b"1"}


@given(message=messages(), position=POSITIONS, data=st.data())
def test_every_flipped_bit_is_noticed(message: Message, position: int, data: st.DataObject) -> None:
    record = bytearray(encode(message, position))
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptRecord) as raised:
        decode(bytes(record), 0, position, "s", 3)

    is_in_body = bit // 8 >= HEADER_BYTES - 4  # the last field is the checksum of the body
    assert raised.value.size == (len(record) if is_in_body else None)


@given(message=messages(), data=st.data())
def test_a_truncated_record_is_torn(message: Message, data: st.DataObject) -> None:
    record = encode(message, 0)
    length = data.draw(st.integers(0, len(record) - 1))

    with pytest.raises(TornRecord) as raised:
        decode(record[:length], 0, 0, "s", 3)

    assert raised.value.needed == (HEADER_BYTES if length < HEADER_BYTES else len(record))


@given(message=messages(), position=POSITIONS, elsewhere=POSITIONS)
def test_a_record_at_another_position_is_corrupt(
    message: Message, position: int, elsewhere: int
) -> None:
    assume((position - elsewhere) % 2**32)

    with pytest.raises(CorruptRecord):
        check(encode(message, position), 0, elsewhere)


@given(message=messages(), before=st.binary(max_size=30), markers=st.integers(0, 3))
def test_the_next_record_is_found_after_any_bytes(
    message: Message, before: bytes, markers: int
) -> None:
    before += MARKER * markers
    record = encode(message, 100 + len(before))

    assert find_header(before + record, 0, 100) == len(before)
    assert find_header(before + record[:HEADER_BYTES], 0, 100) == len(before)
    assert find_header(before, 0, 100) is None


def test_a_record_inside_a_message_is_not_found() -> None:
    inner = encode(Message("s", 0, 7, b"", b"inner", 0), 500)
    outer = encode(Message("s", 0, 8, b"", inner, 0), 500)

    assert find_header(outer, 1, 500) is None


def test_messages_that_do_not_fit_in_a_record_are_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode(Message("s", 0, 0, b"", b"", 0, {"n" * 65_536: b""}), 0)
    with pytest.raises(ValueError, match="among its headers"):
        encode(Message("s", 0, 0, b"", b"", 0, {}, "a subject"), 0)
    with pytest.raises(ValueError, match="among its headers"):
        encode(Message("s", 0, 0, b"", b"", 0, {"reply": b"a reply"}), 0)
