"""What transactions write to the log, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import ACK_HEADER, UUID_HEADER
from liftbridge_aio.transactions.core.uuid import MAX_CLOCK
from liftbridge_aio.transactions.core.visibility import AckEntry
from liftbridge_aio.transactions.errors import MalformedAck, NewerFormat
from liftbridge_aio.transactions.log_format import (
    ACK_HEADERS,
    MAX_ENTRIES,
    ack_values,
    event_of,
)
from liftbridge_aio.wire.transactions_codec import decode_ack, encode_ack
from support.wire.proto_file import ProtoFile

PROTO = ProtoFile("transactions.proto")
PAGE = Path(__file__).parents[3] / "docs" / "transactions-format.md"
OFFSET = 10**9
entries = st.builds(
    AckEntry,
    st.binary(min_size=6, max_size=6),
    st.integers(1, MAX_CLOCK),
    st.integers(-1, OFFSET - 1),
    st.integers(0, MAX_CLOCK),
    st.booleans(),
)


@given(st.lists(entries, max_size=5))
def test_acks_are_what_the_proto_file_says(given_entries: list[AckEntry]) -> None:
    ack = PROTO.message("Ack").FromString(encode_ack(given_entries))
    assert [
        AckEntry(it.id, it.clock, it.state.begin, it.state.last_ack, it.final) for it in ack.entries
    ] == given_entries
    assert decode_ack(ack.SerializeToString()) == given_entries
    event = event_of(OFFSET, ACK_HEADERS, ack.SerializeToString(), "message")
    assert (event.acks, event.uuid) == (tuple(given_entries), None)


def test_the_bytes_of_an_ack() -> None:
    """Those of the example on the page of the format."""
    (value,) = ack_values([AckEntry(bytes.fromhex("0170726f6441"), 165, 1, 160)])
    assert value.hex() == "0a1e0a060170726f6441120b09a000000000000000100119a500000000000000"
    assert ACK_HEADERS == {"txn-ack": b"\1"}
    page = PAGE.read_text()
    assert f"txn-ack: 01\nvalue:   {value.hex()}\n" in page
    assert f"at most {MAX_ENTRIES:,} entries" in page


def test_many_entries_make_several_acks_that_are_not_too_large() -> None:
    entry = AckEntry(b"\1" * 6, MAX_CLOCK, 2**62, MAX_CLOCK, final=True)
    first, second = ack_values([entry] * (MAX_ENTRIES + 1))
    assert len(decode_ack(second)) == 1
    assert len(first) < 2**20 - 4096


def test_other_messages() -> None:
    uuid = bytes(16)
    assert event_of(3, {UUID_HEADER: uuid}, b"", "m") == (3, "m", uuid, ())
    assert event_of(3, {"other": b""}, None, "m") == (3, "m", None, ())


def test_a_later_version_is_refused() -> None:
    with pytest.raises(NewerFormat, match="offset 3 has version 02 "):
        event_of(3, {ACK_HEADER: b"\2"}, b"", "m")


@pytest.mark.parametrize("version", [b"", b"\1\0", b"garbage" * 100])
def test_a_version_that_is_garbage_is_malformed(version: bytes) -> None:
    with pytest.raises(MalformedAck, match="the ack at offset 3 is malformed: its header"):
        event_of(3, {ACK_HEADER: version}, b"", "m")


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        encode_ack([(b"short", 1, -1, 0, False)]),
        encode_ack([(b"\1" * 6, 0, -1, 0, False)]),
        encode_ack([(b"\1" * 6, 1, -2, 0, False)]),
    ],
)
def test_an_ack_that_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedAck, match="the ack at offset 3 is malformed"):
        event_of(3, ACK_HEADERS, value, "m")
