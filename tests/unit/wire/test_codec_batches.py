from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, Message
from liftbridge_aio.wire import columns
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    decode_acks,
    decode_message,
    decode_messages,
    decode_publish_response,
    decode_publish_responses,
    message_place,
)
from liftbridge_aio.wire.hot_schema import PARSE_ERRORS, PublishResponseColumns
from support.wire import wire_fields
from support.wire.wire_fields import bytes_field, number_field, split_responses, spoilt

SOME = 40
"""More than the number from which on messages are read in columns."""


def message(offset: int, *, key: bytes = b"", value: bytes = b"value", partition: int = 0) -> bytes:
    """A message as a server writes it."""
    fields = [
        number_field(1, offset) if offset else b"",
        bytes_field(2, key) if key else b"",
        bytes_field(3, value) if value else b"",
        number_field(4, 1_790_000_000_000_000_000 + offset),
        bytes_field(5, b"orders"),
        number_field(6, partition) if partition else b"",
        bytes_field(7, b"orders-subject"),
        bytes_field(9, bytes_field(1, b"subject") + bytes_field(2, b"orders-subject")),
        bytes_field(9, bytes_field(1, b"reply") + bytes_field(2, b"")),
    ]
    return b"".join(fields)


def ack(offset: int, correlation_id: bytes, *, stream: bytes = b"orders", policy: int = 0) -> bytes:
    """An answer as a server writes it."""
    fields = [
        bytes_field(1, stream),
        bytes_field(2, stream + b"-subject"),
        bytes_field(3, stream + b"-subject"),
        number_field(4, offset) if offset else b"",
        bytes_field(5, b"ack.inbox"),
        bytes_field(6, correlation_id),
        number_field(7, policy) if policy else b"",
        number_field(8, 1_790_000_000_000_000_000 + offset),
        number_field(9, 1_790_000_000_000_000_009 + offset),
    ]
    return bytes_field(1, b"".join(fields)) + bytes_field(3, correlation_id)


def one_by_one(datas: Sequence[bytes]) -> list[Message]:
    return [decode_message(data) for data in datas]


def replies_one_by_one(datas: Sequence[bytes]) -> list[Ack | PublishRefusal]:
    return [decode_publish_response(data) for data in datas]


def decode_answers(datas: Sequence[bytes]) -> Sequence[Ack | PublishRefusal]:
    """Read answers as a session does."""
    acks = decode_acks(datas)
    return decode_publish_responses(datas) if acks is None else acks


# Messages


@pytest.mark.parametrize("count", [0, 1, 2, SOME])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"key": b"key"},
        {"value": b""},
        {"partition": 3},
        {"value": bytes(4096)},
        {"value": b"\xff" * 200, "key": b"k" * 200},
    ],
    ids=repr,
)
def test_batches_are_read_as_their_messages(count: int, form: dict[str, Any]) -> None:
    datas = [message(offset, **form) for offset in range(7, 7 + count)]
    messages = decode_messages(datas)
    assert messages == one_by_one(datas)
    assert [read.offset for read in messages] == list(range(7, 7 + count))


def test_what_a_server_sends_is_read_in_columns() -> None:
    plain = [message(offset) for offset in range(1, SOME)]
    keyed = [message(offset, key=b"%d" % offset, partition=2) for offset in range(1, SOME)]
    answers = [ack(offset, b"%d" % offset, policy=1) for offset in range(1, SOME)]
    assert columns.message_rows(plain) is not None
    assert columns.message_rows(keyed) is not None
    assert columns.ack_rows(answers) is not None


@given(st.lists(wire_fields.messages, max_size=5), st.integers(0, SOME))
def test_random_messages_among_plain_ones(strange: list[bytes], place: int) -> None:
    datas = [message(offset) for offset in range(1, SOME)]
    datas[place:place] = strange
    assert decode_messages(datas) == one_by_one(datas)


singular = (1, 2, 3, 4)


@given(
    st.lists(
        st.tuples(st.sampled_from(singular), st.integers(0, SOME - 1), st.booleans()), max_size=4
    )
)
@example([(3, 5, True), (3, 6, False)])
@example([(1, 5, True), (1, 30, False)])
@example([(2, 5, True), (2, 6, False)])
def test_fields_given_twice_and_left_out_stay_with_their_messages(
    changes: list[tuple[int, int, bool]],
) -> None:
    contents: list[dict[int, list[bytes]]] = [
        {
            1: [number_field(1, offset)],
            2: [bytes_field(2, b"k%d" % offset)],
            3: [bytes_field(3, b"v%d" % offset)],
            4: [number_field(4, offset + 9)],
        }
        for offset in range(1, SOME + 1)
    ]
    for number, place, twice in changes:
        entries = contents[place][number]
        contents[place][number] = entries * 2 if twice else []
        if twice and entries and number in {2, 3}:
            contents[place][number][0] = bytes_field(number, b"first")
    datas = [b"".join(b"".join(entries) for entries in fields.values()) for fields in contents]
    assert decode_messages(datas) == one_by_one(datas)


@given(st.integers(0, SOME - 1), st.data())
def test_a_message_cut_off_within_a_batch_is_named(place: int, draws: st.DataObject) -> None:
    datas = [message(offset) for offset in range(1, SOME + 1)]
    length = draws.draw(st.integers(0, len(datas[place]) - 1))
    datas[place] = datas[place][:length]
    try:
        expected = one_by_one(datas)
    except MalformedData:
        with pytest.raises(MalformedData, match=rf"message {place} of {SOME}, of {length} bytes"):
            decode_messages(datas)
    else:  # cut between two fields
        assert decode_messages(datas) == expected


@given(st.integers(0, SOME - 1), spoilt(st.builds(message, st.integers(1, 2**62))))
def test_a_spoilt_message_spoils_no_other(place: int, data: bytes) -> None:
    datas = [message(offset) for offset in range(1, SOME + 1)]
    datas[place] = data
    try:
        messages = decode_messages(datas)
    except MalformedData as error:
        assert f"message {place} of" in str(error)  # noqa: PT017 - it need not be malformed
        return
    del messages[place], datas[place]
    assert messages == one_by_one(datas)


def test_a_place_is_the_offset_and_time_of_a_message() -> None:
    assert message_place(message(5)) == (5, 1_790_000_000_000_000_005)
    assert message_place(b"") == (0, 0)
    with pytest.raises(MalformedData, match="3 bytes"):
        message_place(b"\x1a\x05a")


# Headers


@pytest.mark.parametrize("count", [1, SOME])
@pytest.mark.parametrize("size", [10, 5000])
def test_headers_belong_to_their_message(count: int, size: int) -> None:
    datas = [
        message(offset, value=bytes(size))
        + bytes_field(9, bytes_field(1, b"number") + bytes_field(2, b"%d" % offset))
        for offset in range(count)
    ]
    for offset, read in enumerate(decode_messages(datas)):
        assert read.headers == {"number": b"%d" % offset}
        assert read.subject == "orders-subject"
        assert read.headers is read.headers, "they are read once"


# Responses


@pytest.mark.parametrize("count", [0, 1, SOME])
@pytest.mark.parametrize("policy", [0, 1, 9])
def test_answers_are_read_as_one_by_one(count: int, policy: int) -> None:
    datas = [ack(offset, b"id%d" % offset, policy=policy) for offset in range(5, 5 + count)]
    replies = decode_answers(datas)
    assert replies == replies_one_by_one(datas)
    assert [reply.correlation_id for reply in replies] == [f"id{n}" for n in range(5, 5 + count)]


def says_twice(data: bytes) -> bool:
    """Tell whether an answer gives a field twice, as no server does, and another may lack it."""
    try:
        given = PublishResponseColumns.FromString(data).ack
    except PARSE_ERRORS:
        return False
    return any(len(field) > 1 for field in (given.stream, given.offset, given.correlation_id))


@given(st.lists(split_responses, max_size=4), st.integers(0, SOME))
def test_random_answers_among_plain_ones(strange: list[bytes], place: int) -> None:
    assume(not any(map(says_twice, strange)))
    datas = [ack(offset, b"%d" % offset) for offset in range(1, SOME + 1)]
    datas[place:place] = strange
    try:
        expected = replies_one_by_one(datas)
    except MalformedData:
        with pytest.raises(MalformedData, match="neither"):
            decode_answers(datas)
    else:
        assert decode_answers(datas) == expected


@given(st.integers(0, SOME - 1), st.data())
def test_an_answer_cut_off_among_others_is_named(place: int, draws: st.DataObject) -> None:
    datas = [ack(offset, b"%d" % offset) for offset in range(1, SOME + 1)]
    length = draws.draw(st.integers(1, len(datas[place]) - 1))
    datas[place] = datas[place][:length]
    try:
        expected = replies_one_by_one(datas)
    except MalformedData:
        with pytest.raises(MalformedData, match=rf"response {place} of {SOME}"):
            decode_answers(datas)
    else:
        assert decode_answers(datas) == expected
