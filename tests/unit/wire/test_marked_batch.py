"""Marks of many messages, read at once: the same as those of each message by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio.model import ACK_HEADER, UUID_HEADER
from liftbridge_aio.wire.codec import decode_message
from liftbridge_aio.wire.columns import ACK_MARK, Mark
from liftbridge_aio.wire.hot_schema import WireMessage
from liftbridge_aio.wire.marked_batch import read_marked
from support.examples import examples

UUID = bytes(range(16))
LOOKS_LIKE_A_UUID = WireMessage(
    headers=[{"name": UUID_HEADER, "content": UUID}]
).SerializeToString()

HEADERS = st.lists(
    st.sampled_from(
        [
            ("subject", b"stream"),
            ("reply", b""),
            ("mine", UUID),
            ("looks", LOOKS_LIKE_A_UUID),
            (UUID_HEADER, UUID),
            (UUID_HEADER, b"short"),
            (ACK_HEADER, b"\1"),
        ]
    ),
    unique_by=lambda header: header[0],
    max_size=4,
)
VALUES = st.sampled_from([b"", b"value", b"txn-uuid", LOOKS_LIKE_A_UUID])


def encoded(offset: int, value: bytes, headers: list[tuple[str, bytes]]) -> bytes:
    message = WireMessage(offset=offset, value=value, timestamp=1 + offset, stream="s")
    for name, content in headers:
        message.headers.add(name=name, content=content)
    data: bytes = message.SerializeToString()
    return data


def mark_of(data: bytes) -> Mark:
    headers = decode_message(data).transaction_headers
    return ACK_MARK if ACK_HEADER in headers else headers.get(UUID_HEADER)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(VALUES, HEADERS), min_size=1, max_size=60))
def test_marks_are_those_of_each_message(rows: list[tuple[bytes, list[tuple[str, bytes]]]]) -> None:
    datas = [encoded(number, *row) for number, row in enumerate(rows)]
    batch, broken = read_marked(datas)
    assert broken is None
    expected = [mark_of(data) for data in datas]
    assert (batch.marks or [None] * len(datas)) == expected
    assert batch.offsets == list(range(len(datas)))
    assert batch.messages() == [decode_message(data) for data in datas]


def test_a_uniform_batch_is_read_in_columns() -> None:
    headers = [("reply", b""), (UUID_HEADER, UUID), ("subject", b"s")]
    batch, _ = read_marked([encoded(1 + number, b"value", headers) for number in range(64)])
    assert batch.marks == [UUID] * 64
    assert batch.select([3]).offsets == [4]


def test_what_stands_before_a_malformed_message_is_read() -> None:
    good = encoded(7, b"value", [(UUID_HEADER, UUID)])
    batch, broken = read_marked([good, b"\xff\xff"])
    assert broken is not None
    assert (batch.offsets, batch.marks) == ([7], [UUID])
