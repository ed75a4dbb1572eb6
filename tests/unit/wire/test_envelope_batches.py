from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckPolicy
from liftbridge_aio.wire.envelope import (
    EnvelopeMessage,
    decode_ack,
    decode_message,
    encode_ack,
    encode_message,
)
from liftbridge_aio.wire.envelope_batches import (
    decode_ack_envelopes,
    encode_envelope,
    publish_fields,
)
from support.wire.acks import acks

TEXT = st.text(max_size=10)

USUAL = Ack("orders", "orders", "orders", 7, "_INBOX.acks", "id-1", AckPolicy.LEADER, 1, 2)


def usual(number: int) -> Ack:
    return Ack("orders", "orders", "orders", number + 1, "in", f"id-{number}", AckPolicy.ALL, 1, 2)


@given(
    value=st.binary(max_size=300),
    key=st.none() | st.binary(max_size=200),
    headers=st.none() | st.dictionaries(TEXT, st.binary(max_size=200), max_size=4),
    inbox=TEXT,
    correlation_id=st.text(max_size=200),
    policy=st.sampled_from(AckPolicy),
    expected_offset=st.none() | st.integers(0, 2**63 - 1),
    crc=st.booleans(),
)
@example(
    value=b"v" * 128,
    key=b"k" * 128,
    headers={"h" * 128: b"c" * 128},
    inbox="in",
    correlation_id="i" * 128,
    policy=AckPolicy.ALL,
    expected_offset=0,
    crc=True,
)
def test_a_message_says_what_it_was_made_of(
    value: bytes,
    key: bytes | None,
    headers: dict[str, bytes] | None,
    inbox: str,
    correlation_id: str,
    policy: AckPolicy,
    expected_offset: int | None,
    *,
    crc: bool,
) -> None:
    offset = UNCHECKED_OFFSET if expected_offset is None else expected_offset
    fields = publish_fields(inbox, policy, offset)
    data = encode_envelope(fields, value, correlation_id, key=key, headers=headers, crc=crc)

    assert decode_message(data) == EnvelopeMessage(
        value, key or b"", headers or {}, inbox, correlation_id, policy, expected_offset
    )


def test_a_message_is_no_longer_than_it_has_to_be() -> None:
    fields = publish_fields("_INBOX.acks", AckPolicy.ALL)
    data = encode_envelope(fields, b"value", "id-1", key=b"key")
    slow = encode_message(
        b"value",
        key=b"key",
        ack_inbox="_INBOX.acks",
        correlation_id="id-1",
        ack_policy=AckPolicy.ALL,
    )
    assert len(data) == len(slow)


@given(st.lists(st.tuples(acks, st.booleans()), max_size=40))
@example([(USUAL, False)] * 40)
@example([(USUAL, False)] * 39 + [(USUAL, True)])
def test_acks_are_read_in_order_as_they_are_one_by_one(given_acks: list[tuple[Ack, bool]]) -> None:
    datas = [encode_ack(ack, crc=crc) for ack, crc in given_acks]
    assert decode_ack_envelopes(datas) == [decode_ack(data) for data in datas]


def test_many_acks_are_all_read() -> None:
    sent = [usual(number) for number in range(500)]
    assert decode_ack_envelopes([encode_ack(ack) for ack in sent]) == sent


@given(st.integers(0, 29), st.binary(max_size=60))
@example(3, b"")
@example(3, b"\xb9\x0e\x43\xb4\x00\x08\x00\x01\xff")
@example(3, b"\xb9\x0e\x43\xb4\x00\x08\x00\x01" + b"\x0a\x7fa stream that is cut off")
@example(3, b"\xb9\x0e\x43\xb4\x00\xff\x00\x01")
def test_what_is_no_ack_spoils_no_other(place: int, garbage: bytes) -> None:
    sent = [usual(number) for number in range(30)]
    datas = [encode_ack(ack) for ack in sent]
    datas.insert(place, garbage)

    read = decode_ack_envelopes(datas)
    strange = read.pop(place)
    assert read == sent
    # Random bytes may happen to be an ack, but then not one of these.
    assert isinstance(strange, MalformedData) or strange not in sent


def test_a_cut_off_ack_is_named_as_such() -> None:
    [refused] = decode_ack_envelopes([encode_ack(USUAL)[:-1]])
    assert isinstance(refused, MalformedData)
