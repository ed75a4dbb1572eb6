"""Bytes of protobuf messages field by field, as an encoder may write them that is not ours."""

from __future__ import annotations

from hypothesis import strategies as st

FIRST_UNKNOWN = 20
"""No hot message has a field of this number or a higher one."""


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=6).map(str.encode)
blobs = st.binary(max_size=20)


def numbers(number: int, values: st.SearchStrategy[int] = int64s) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: number_field(number, value))


def contents(number: int, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return values.map(lambda content: bytes_field(number, content))


unknown = st.one_of(
    st.builds(number_field, st.integers(FIRST_UNKNOWN, 3000), st.integers(0, 2**64 - 1)),
    st.builds(bytes_field, st.integers(FIRST_UNKNOWN, 3000), blobs),
    st.builds(
        lambda number, content: varint(number << 3 | 1) + content,
        st.integers(FIRST_UNKNOWN, 3000),
        st.binary(min_size=8, max_size=8),
    ),
    st.builds(
        lambda number, content: varint(number << 3 | 5) + content,
        st.integers(FIRST_UNKNOWN, 3000),
        st.binary(min_size=4, max_size=4),
    ),
)


def any_order(*fields: st.SearchStrategy[bytes], max_fields: int = 14) -> st.SearchStrategy[bytes]:
    """Messages of these fields in any order, each any number of times."""
    return st.lists(st.one_of(*fields), max_size=max_fields).map(b"".join)


header_entries = any_order(contents(1, texts), contents(2, blobs), unknown, max_fields=3)

messages = any_order(
    numbers(1),
    contents(2, blobs),
    contents(3, blobs),
    numbers(4),
    contents(5, texts),
    numbers(6, int32s),
    contents(7, texts),
    contents(8, texts),
    contents(9, header_entries),
    contents(10, texts),
    contents(11, texts),
    numbers(12, st.integers(0, 4)),
    unknown,
)

acks = any_order(
    contents(1, texts),
    contents(2, texts),
    contents(3, texts),
    numbers(4),
    contents(5, texts),
    contents(6, texts),
    numbers(7, st.integers(0, 4)),
    numbers(8),
    numbers(9),
    numbers(10, st.integers(0, 6)),
    unknown,
)

errors = any_order(numbers(1, st.integers(0, 9)), contents(2, texts), unknown, max_fields=4)

responses = st.tuples(
    st.just(b"") | contents(1, acks),
    st.just(b"") | contents(2, errors),
    any_order(contents(3, texts), unknown, max_fields=3),
).flatmap(lambda parts: st.permutations(parts).map(b"".join))

split_responses = any_order(
    contents(1, acks), contents(1, acks), contents(2, errors), contents(3, texts), max_fields=5
)
"""Acks and errors may come in parts, which belong together."""


@st.composite
def spoilt(draw: st.DrawFn, wires: st.SearchStrategy[bytes]) -> bytes:
    """The bytes of a message with some of them changed, lost or added."""
    data = bytearray(draw(wires))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)
