from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy, Message, OutgoingMessage
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    ack_from_wire,
    decode_message,
    decode_publish_response,
    frame_publish,
    frame_publish_fast,
    publish_head,
)
from liftbridge_aio.wire.framing import framed, unframed
from support.wire.proto_file import LIFTBRIDGE
from support.wire.wire_fields import spoilt

WireAck = LIFTBRIDGE.message("Ack")
WireMessage = LIFTBRIDGE.message("Message")
WireRequest = LIFTBRIDGE.message("PublishRequest")
WireResponse = LIFTBRIDGE.message("PublishResponse")

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=12)
blobs = st.binary(max_size=40)
headers = st.dictionaries(texts, blobs, max_size=4)
policies = st.sampled_from(AckPolicy)

wire_acks = st.builds(
    WireAck,
    stream=texts,
    partitionSubject=texts,
    msgSubject=texts,
    offset=int64,
    ackInbox=texts,
    correlationId=texts,
    ackPolicy=policies,
    receptionTimestamp=int64,
    commitTimestamp=int64,
    ackError=st.sampled_from(AckError),
)
wire_messages = st.builds(
    WireMessage,
    stream=texts,
    partition=int32,
    offset=int64,
    key=blobs,
    value=blobs,
    timestamp=int64,
    headers=headers,
    subject=texts,
    replySubject=texts,
    ackInbox=texts,
    correlationId=texts,
    ackPolicy=policies,
)


def ours(ack: Any) -> Ack:
    return Ack(
        ack.stream,
        ack.partitionSubject,
        ack.msgSubject,
        ack.offset,
        ack.ackInbox,
        ack.correlationId,
        AckPolicy(ack.ackPolicy),
        ack.receptionTimestamp,
        ack.commitTimestamp,
        AckError(ack.ackError),
    )


# Against protobuf's own runtime


@settings(deadline=None)  # the first call builds the classes
@given(
    stream=texts,
    partition=int32,
    value=blobs,
    key=st.none() | blobs,
    headers=st.none() | headers,
    policy=policies,
    correlation_id=texts,
    expected_offset=st.none() | int64,
)
def test_protobuf_reads_the_requests_that_are_written_here(
    stream: str,
    partition: int,
    value: bytes,
    key: bytes | None,
    headers: dict[str, bytes] | None,
    policy: AckPolicy,
    correlation_id: str,
    expected_offset: int | None,
) -> None:
    message = OutgoingMessage(
        stream, value, key, headers, partition, expected_offset=expected_offset
    )
    head = publish_head(stream, partition, policy)
    data = unframed(frame_publish(head, message, correlation_id))
    assert WireRequest.FromString(data) == WireRequest(
        stream=stream,
        partition=partition,
        value=value,
        key=key or b"",
        headers=headers or {},
        ackPolicy=policy,
        correlationId=correlation_id,
        expectedOffset=-1 if expected_offset is None else expected_offset,
    )


@settings(deadline=None)
@given(
    value=blobs,
    key=st.none() | blobs,
    headers=st.none() | headers,
    policy=st.sampled_from((AckPolicy.LEADER, AckPolicy.ALL)),
    correlation_id=texts,
    expected_offset=st.none() | st.integers(0, 2**63 - 1),
)
@example(b"", None, {}, AckPolicy.ALL, "", None)
@example(b"v", b"k", {"h" * 128: b"c" * 300}, AckPolicy.LEADER, "c", 5)
def test_the_fast_way_encodes_the_same_bytes(
    value: bytes,
    key: bytes | None,
    headers: dict[str, bytes] | None,
    policy: AckPolicy,
    correlation_id: str,
    expected_offset: int | None,
) -> None:
    message = OutgoingMessage("orders", value, key, headers, expected_offset=expected_offset)
    head = publish_head("orders", 3, policy)
    checked = frame_publish(head, message, correlation_id)
    assert framed(unframed(checked)) == checked
    for _ in range(2):  # what is kept from the first is used by the second
        fields = value, key, headers, expected_offset
        assert frame_publish_fast(head, *fields, correlation_id) == checked


@pytest.mark.parametrize(
    "headers",
    [
        MappingProxyType({"of another type": b"v"}),
        {"text": "v"},
        {"not bytes": bytearray(b"v")},
        {5: b"v"},
        {"reply": b"v"},
        {"subject": b"v"},
        {"surrogate \ud800": b"v"},
        {"long " * 30: b"v"},
        {str(number): b"v" for number in range(65)},
    ],
)
def test_headers_that_may_be_wrong_are_left_to_a_closer_look(headers: Any) -> None:
    assert not encoded_fast(OutgoingMessage("orders", b"v", headers=headers))


@pytest.mark.parametrize(
    "fields",
    [
        {"value": bytearray(b"v")},
        {"key": "k"},
        {"expected_offset": -1},
        {"expected_offset": 2**63},
        {"expected_offset": True},
        {"expected_offset": 1.0},
    ],
)
def test_fields_that_may_be_wrong_are_left_to_a_closer_look(fields: Any) -> None:
    assert not encoded_fast(OutgoingMessage(**{"stream": "orders", "value": b"v"} | fields))


def encoded_fast(message: OutgoingMessage) -> bytes:
    fields = message.value, message.key, message.headers, message.expected_offset
    return frame_publish_fast(publish_head("orders", 3, message.ack_policy), *fields, "c")


@given(wire_messages)
def test_messages_are_read_as_protobuf_writes_them(wire: Any) -> None:
    assert decode_message(wire.SerializeToString()) == Message(
        wire.stream,
        wire.partition,
        wire.offset,
        wire.key,
        wire.value,
        wire.timestamp,
        dict(wire.headers),
        wire.subject,
        wire.replySubject,
    )


@given(wire_acks, texts)
def test_acks_are_read_as_protobuf_writes_them(wire: Any, correlation_id: str) -> None:
    response = WireResponse(ack=wire, correlationId=correlation_id)
    expected = replace(ours(wire), correlation_id=wire.correlationId or correlation_id)
    assert decode_publish_response(response.SerializeToString()) == expected


@given(st.none() | wire_acks, st.integers(0, 7), texts, texts)
def test_an_error_beats_the_ack_that_comes_with_it(
    wire: Any, code: int, text: str, correlation_id: str
) -> None:
    response = WireResponse(
        ack=wire, asyncError={"code": code, "message": text}, correlationId=correlation_id
    )
    assert decode_publish_response(response.SerializeToString()) == PublishRefusal(
        correlation_id, code, text
    )


def test_an_empty_error_is_an_error_with_code_zero() -> None:
    response = WireResponse(ack=WireAck(), correlationId="1")
    response.asyncError.SetInParent()
    reply = decode_publish_response(response.SerializeToString())
    assert reply == PublishRefusal("1", 0, "")


def test_codes_of_future_servers_are_kept_or_count_as_unknown() -> None:
    refusal = WireResponse(asyncError={"code": 99})
    assert decode_publish_response(refusal.SerializeToString()) == PublishRefusal("", 99, "")
    nack = WireResponse(ack={"ackError": 99, "ackPolicy": 99})
    ack = decode_publish_response(nack.SerializeToString())
    assert isinstance(ack, Ack)
    assert ack.ack_error is AckError.UNKNOWN
    assert ack.ack_policy is AckPolicy.LEADER


def test_fields_of_future_servers_are_passed_over() -> None:
    data = WireMessage(offset=3).SerializeToString() + b"\xf8\x07\x01"
    assert decode_message(data) == Message("", 0, 3, b"", b"", 0)


# Garbage


def test_a_response_with_neither_ack_nor_error_is_malformed() -> None:
    with pytest.raises(MalformedData, match="neither"):
        decode_publish_response(WireResponse(correlationId="1").SerializeToString())


def serialized(wire: Any) -> bytes:
    data: bytes = wire.SerializeToString()
    return data


@given(st.binary(max_size=30) | spoilt(wire_messages.map(serialized)))
@example(b"\x0a\x01\x00")  # offset as bytes
@example(b"\x20\x01\x2d\x00\x00\x00\x00")  # stream as a fixed number
@example(b"\x4a\x04\x08\x01\x12\x00")  # the name of a header as a number
@example(b"\x2a\x01\xff")  # a stream that is not UTF-8
@example(b"\x28\x05")  # stream as a number
def test_garbage_is_malformed_or_a_sound_message(data: bytes) -> None:
    try:
        message = decode_message(data)
    except MalformedData:
        return
    numbers = (message.partition, message.offset, message.timestamp)
    texts = (message.stream, message.subject, message.reply_subject, *message.headers)
    blobs = (message.key, message.value, *message.headers.values())
    assert [type(number) for number in numbers] == [int] * 3
    assert {type(text) for text in texts} == {str}
    assert {type(blob) for blob in blobs} == {bytes}


responses = st.builds(
    lambda ack, error: WireResponse(ack=ack, asyncError=error, correlationId="7"),
    st.none() | wire_acks,
    st.none() | st.just({"code": 3, "message": "no"}),
)


@given(st.binary(max_size=30) | spoilt(responses.map(serialized)))
@example(b"\x12\x02\x0a\x00")  # the code of an error as bytes
@example(b"\x12\x02\x10\x01")  # the text of an error as a number
@example(b"\x10\x01")  # the error itself as a number
@example(b"\x08\x01")  # the ack itself as a number
@example(b"\x0a\x02\x52\x00")  # the error of an ack as bytes
@example(b"\x0a\x02\x22\x00")  # the offset of an ack as bytes
@example(b"\x0a\x02\x0a\x00\x18\x05")  # the correlation id as a number
def test_garbage_is_malformed_or_a_sound_answer(data: bytes) -> None:
    try:
        reply = decode_publish_response(data)
    except MalformedData:
        return
    assert type(reply.correlation_id) is str
    if isinstance(reply, PublishRefusal):
        assert (type(reply.code), type(reply.text)) == (int, str)
        return
    ack = reply
    numbers = (ack.offset, ack.reception_timestamp, ack.commit_timestamp)
    texts = (ack.stream, ack.partition_subject, ack.msg_subject, ack.ack_inbox, ack.correlation_id)
    assert [type(number) for number in numbers] == [int] * 3
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    "data",
    [b"\x2a\x01\xff", b"\x2a\x02a", b"\x4a\x03\x0a\x01\xff"],
)
def test_broken_texts_are_malformed_messages(data: bytes) -> None:
    with pytest.raises(MalformedData):
        decode_message(data)


@pytest.mark.parametrize("field", ["stream", "offset", "ack_error", "commit_timestamp"])
def test_fields_of_wrong_types_are_malformed_acks(field: str) -> None:
    wire = proto.Ack()
    setattr(wire, field, [])
    with pytest.raises(MalformedData):
        ack_from_wire(wire)
