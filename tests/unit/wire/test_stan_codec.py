from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire import stan
from liftbridge_aio.wire.hot_schema import PARSE_ERRORS
from liftbridge_aio.wire.stan_codec import (
    ack_head,
    decode_message,
    decode_publish_ack,
    encode_acks,
    encode_publish,
    publish_start,
)
from support.wire.proto_file import ProtoFile

STAN = ProtoFile("stan.proto")
texts = st.text(max_size=12)
guids = st.text(max_size=200)
blobs = st.binary(max_size=300)
uint64 = st.integers(1, 2**64 - 1)


@given(texts, blobs, texts, texts, guids, blobs)
def test_a_publish_is_what_the_proto_file_says(
    client_id: str, connection_id: bytes, channel: str, reply: str, guid: str, data: bytes
) -> None:
    head = publish_start(client_id, connection_id, channel, reply)
    wire = STAN.message("PubMsg").FromString(encode_publish(head, guid.encode(), data))
    assert (wire.client_id, wire.conn_id) == (client_id, connection_id)
    assert (wire.subject, wire.reply, wire.guid, wire.data) == (channel, reply, guid, data)


@given(texts, st.lists(uint64))
@example("orders", [0x7F, 0x80, 0x3FFF, 0x4000, 0x1FFFFF, 0x200000])
def test_acks_are_what_the_proto_file_says(channel: str, sequences: list[int]) -> None:
    acks = map(STAN.message("Ack").FromString, encode_acks(ack_head(channel), sequences))
    assert [(ack.subject, ack.sequence) for ack in acks] == [(channel, n) for n in sequences]


@given(guids, texts)
@example("x" * 127, "")
@example("x" * 128, "")
@example("é", "")
@example("", "")
def test_an_ack_of_a_publish_is_read(guid: str, error: str) -> None:
    wire = STAN.message("PubAck")(guid=guid, error=error).SerializeToString()
    assert decode_publish_ack(wire) == (guid.encode(), error)


@given(uint64, texts, texts, blobs, st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_a_message_is_read(
    sequence: int, channel: str, reply: str, data: bytes, timestamp: int, redelivered: bool
) -> None:
    count = sequence % 2**32
    wire = STAN.message("MsgProto")(
        sequence=sequence,
        subject=channel,
        reply=reply,
        data=data,
        timestamp=timestamp,
        redelivered=redelivered,
        redelivery_count=count,
    )
    got = decode_message(wire.SerializeToString())
    assert (got.sequence, got.subject, got.reply, got.data) == (sequence, channel, reply, data)
    assert (got.timestamp, got.redelivered, got.redelivery_count) == (timestamp, redelivered, count)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    with suppress(*PARSE_ERRORS):
        decode_message(data)
    with suppress(MalformedData):
        decode_publish_ack(data)


def test_the_generated_messages_have_the_fields_of_the_proto_file() -> None:
    for name, kind in STAN.messages.items():
        generated = getattr(stan, name)
        declared = {field.name: field.number for field in kind.DESCRIPTOR.fields}
        assert set(generated.__dataclass_fields__) == set(declared)
