from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest, MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.crc32c import crc32c, crc32c_by_table
from liftbridge_aio.wire.envelope import (
    EnvelopeMessage,
    decode_ack,
    decode_message,
    encode_ack,
    encode_message,
    is_envelope,
)
from support.wire.acks import acks

MAGIC = b"\xb9\x0e\x43\xb4"
OFFSETS = st.integers(0, 2**63 - 1)

messages = st.builds(
    EnvelopeMessage,
    value=st.binary(max_size=200),
    key=st.binary(max_size=20),
    headers=st.dictionaries(
        st.text(max_size=10).filter(lambda name: name not in {"subject", "reply"}),
        st.binary(max_size=10),
        max_size=4,
    ),
    ack_inbox=st.text(max_size=20),
    correlation_id=st.text(max_size=20),
    ack_policy=st.sampled_from(AckPolicy),
    expected_offset=st.none() | OFFSETS,
)


def encoded(message: EnvelopeMessage, *, crc: bool) -> bytes:
    return encode_message(
        message.value,
        key=message.key,
        headers=message.headers,
        ack_inbox=message.ack_inbox,
        correlation_id=message.correlation_id,
        ack_policy=message.ack_policy,
        expected_offset=message.expected_offset,
        crc=crc,
    )


def sealed(payload: bytes, message_type: int = 0) -> bytes:
    return MAGIC + bytes((0, 8, 0, message_type)) + payload


FULL = EnvelopeMessage(
    b"a value",
    b"a key",
    {"name": b"header"},
    "_INBOX.acks",
    "id-1",
    AckPolicy.ALL,
    7,
)


# What goes round


@given(messages, st.booleans())
def test_a_message_comes_back_as_it_was(message: EnvelopeMessage, crc: bool) -> None:
    assert decode_message(encoded(message, crc=crc)) == message


@given(acks, st.booleans())
def test_an_ack_comes_back_as_it_was(ack: Ack, crc: bool) -> None:
    assert decode_ack(encode_ack(ack, crc=crc)) == ack


def test_the_bytes_are_those_of_the_protocol() -> None:
    # value is field 3, offset field 1: -1 as ten bytes of two's complement
    unchecked = bytes.fromhex("08 ffffffffffffffffff01")
    assert (
        encode_message(b"hi") == bytes.fromhex("b90e43b4 00 08 00 00") + unchecked + b"\x1a\x02hi"
    )


def test_the_checksum_covers_the_payload_alone_and_is_big_endian() -> None:
    plain, checked = encode_message(b"hi"), encode_message(b"hi", crc=True)
    assert checked[:8] == bytes.fromhex("b90e43b4 00 0c 01 00")
    assert checked[8:12] == crc32c(plain[8:]).to_bytes(4, "big")
    assert checked[12:] == plain[8:]


def test_no_expected_offset_is_minus_one_and_zero_is_zero() -> None:
    assert proto.Message.parse(encode_message(b"")[8:]).offset == -1
    assert proto.Message.parse(encode_message(b"", expected_offset=0)[8:]).offset == 0


def test_an_empty_payload_is_a_message_of_defaults() -> None:
    assert decode_message(sealed(b"")) == EnvelopeMessage(b"", expected_offset=0)


def test_unknown_fields_are_skipped() -> None:
    newer = (
        b"\x1a\x02hi" + b"\xf8\x06\x01" + b"\xfa\x06\x01x" + b"\xfd\x06abcd" + b"\xf9\x06abcdefgh"
    )
    assert decode_message(sealed(newer)).value == b"hi"


def test_ack_errors_stay_visible_even_unknown_ones() -> None:
    refused = encode_ack(Ack("s", "s", "s", 0, ack_error=AckError.TOO_LARGE))
    assert decode_ack(refused).ack_error is AckError.TOO_LARGE
    newer = bytes(proto.Ack(stream="s", ack_error=proto.AckError(99)))
    assert decode_ack(sealed(newer, 1)).ack_error is AckError.UNKNOWN


@pytest.mark.parametrize(
    ("data", "verdict"),
    [(b"", False), (MAGIC, False), (b"12345678", False), (sealed(b""), True), (FULL.value, False)],
)
def test_envelopes_are_told_from_other_bytes(data: bytes, verdict: bool) -> None:
    assert is_envelope(data) is verdict


# What is refused


@pytest.mark.parametrize("name", ["subject", "reply"])
def test_headers_that_the_server_overwrites_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        encode_message(b"", headers={name: b"x"})


@pytest.mark.parametrize("offset", [-1, -2, 2**63])
def test_expected_offsets_out_of_range_are_refused(offset: int) -> None:
    with pytest.raises(InvalidRequest, match="expected_offset"):
        encode_message(b"", expected_offset=offset)


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        encode_message(b"", correlation_id="\ud800")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "0 bytes"),
        (sealed(b"")[:7], "7 bytes"),
        (b"\xb9\x0e\x43\xb5\x00\x08\x00\x00", "starts with b9 0e 43 b5"),
        (MAGIC + bytes((1, 8, 0, 0)), "version 1"),
        (MAGIC + bytes((0, 8, 2, 0)), "flags 0b00000010"),
        (MAGIC + bytes((0, 12, 0x81, 0)) + bytes(4), "flags 0b10000001"),
        (MAGIC + bytes((0, 7, 0, 0)), "7 bytes"),
        (MAGIC + bytes((0, 9, 0, 0)) + b"x", "9 bytes"),
        (MAGIC + bytes((0, 12, 0, 0)) + bytes(4), "12 bytes"),
        (MAGIC + bytes((0, 255, 0, 0)), "255 bytes"),
        (MAGIC + bytes((0, 8, 1, 0)), "must have 12"),
        (MAGIC + bytes((0, 12, 1, 0)) + bytes(3), "11 bytes are there"),
        (MAGIC + bytes((0, 12, 1, 0)) + bytes(3) + b"\x01", "checksum"),
        (sealed(b"", 1), "an ack, not a published message"),
        (sealed(b"", 2), "internal message of the servers"),
        (sealed(b"", 14), "internal message of the servers"),
        (sealed(b"", 15), "unknown type 15"),
        (sealed(b"\x12\x05ab"), "3 bytes are missing"),
        (sealed(b"\x12" + b"\xff" * 8 + b"\x7fab"), "missing"),
        (sealed(b"\x12"), "cut off"),
        (sealed(b"\x08" + b"\xff" * 10 + b"\x01"), "longer than 64 bits"),
        (sealed(b"\x08" + b"\xff" * 9 + b"\x02"), "longer than 64 bits"),
        (sealed(b"\x10\x05"), "field 2 has wire type 0"),
        (sealed(b"\x13"), "field 2 has wire type 3"),
        (sealed(b"\xfb\x06"), "unknown wire type 3"),
        (sealed(b"\xfd\x06abc"), "1 bytes are missing"),
        (sealed(b"\x02\x00"), "field 0"),
        (sealed(b"\x5a\x01\xff"), "UTF-8"),
        (sealed(b"\x4a\x02\x0a\x09"), "9 bytes are missing"),
        (sealed(b"\x60\x09"), "ack policy 9"),
    ],
)
def test_each_fault_is_named(data: bytes, text: str) -> None:
    with pytest.raises(MalformedData, match=text):
        decode_message(data)


def test_a_message_is_no_ack() -> None:
    with pytest.raises(MalformedData, match="a published message, not an ack"):
        decode_ack(encode_message(b""))


@pytest.mark.parametrize("crc", [False, True])
def test_a_truncated_envelope_never_passes_for_the_whole(crc: bool) -> None:
    whole = encoded(FULL, crc=crc)
    for length in range(len(whole)):
        try:
            message = decode_message(whole[:length])
        except MalformedData:
            continue
        # Only a cut between two fields cannot be seen, and only without a checksum.
        assert not crc
        assert message != FULL


@pytest.mark.parametrize("crc", [False, True])
def test_no_flipped_bit_of_the_header_passes(crc: bool) -> None:
    whole = encoded(FULL, crc=crc)
    for position in range(12 if crc else 8):
        for bit in range(8):
            broken = bytearray(whole)
            broken[position] ^= 1 << bit
            with pytest.raises(MalformedData):
                decode_message(bytes(broken))


# The checksum


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_is_castagnolis(data: bytes, checksum: int) -> None:
    assert crc32c(data) == crc32c_by_table(data) == checksum


@given(st.binary())
def test_the_table_has_the_checksums_of_the_installed_package(data: bytes) -> None:
    assert google_crc32c.implementation == "c"
    assert crc32c is google_crc32c.value
    assert crc32c(data) == crc32c_by_table(data)
