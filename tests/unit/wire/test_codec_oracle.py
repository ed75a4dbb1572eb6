"""The fast codec against betterproto2, and against protobuf's own classes where they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy, Message
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    decode_message,
    decode_publish_response,
)
from liftbridge_aio.wire.hot_schema import PARSE_ERRORS
from support.wire import betterproto_codec as betterproto
from support.wire.proto_file import LIFTBRIDGE
from support.wire.wire_fields import (
    bytes_field,
    messages,
    number_field,
    responses,
    split_responses,
    spoilt,
)

WireMessage = LIFTBRIDGE.message("Message")
WireResponse = LIFTBRIDGE.message("PublishResponse")


def outcome(decode: Callable[[bytes], object], data: bytes) -> object:
    try:
        return decode(data)
    except MalformedData:
        return MalformedData


def protobuf_message(data: bytes) -> Message:
    wire = parsed(WireMessage, data)
    return Message(
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


def protobuf_response(data: bytes) -> Ack | PublishRefusal:
    wire = parsed(WireResponse, data)
    if wire.HasField("asyncError"):
        return PublishRefusal(wire.correlationId, wire.asyncError.code, wire.asyncError.message)
    if not wire.HasField("ack"):
        raise MalformedData("neither")
    ack = wire.ack
    return Ack(
        ack.stream,
        ack.partitionSubject,
        ack.msgSubject,
        ack.offset,
        ack.ackInbox,
        ack.correlationId or wire.correlationId,
        AckPolicy(ack.ackPolicy) if ack.ackPolicy in set(AckPolicy) else AckPolicy.LEADER,
        ack.receptionTimestamp,
        ack.commitTimestamp,
        AckError(ack.ackError) if ack.ackError in set(AckError) else AckError.UNKNOWN,
    )


def parsed(wire_class: Any, data: bytes) -> Any:
    try:
        return wire_class.FromString(data)
    except PARSE_ERRORS as error:
        raise MalformedData(str(error)) from error


# Against betterproto2


@given(messages)
def test_messages_are_read_as_betterproto_reads_them(data: bytes) -> None:
    assert decode_message(data) == betterproto.decode_message(data)


@given(responses)
def test_responses_are_read_as_betterproto_reads_them(data: bytes) -> None:
    ours = outcome(decode_publish_response, data)
    assert ours == outcome(betterproto.decode_publish_response, data)


# Against protobuf's own classes


@given(split_responses)
def test_parts_of_an_ack_or_error_belong_together(data: bytes) -> None:
    assert outcome(decode_publish_response, data) == outcome(protobuf_response, data)


@given(st.binary(max_size=30) | spoilt(messages))
@example(bytes_field(10, b"\xff"))  # a text that is not looked at
def test_spoilt_messages_are_read_or_refused_as_protobuf_does(data: bytes) -> None:
    ours, theirs = outcome(decode_message, data), outcome(protobuf_message, data)
    if isinstance(ours, Message) and isinstance(theirs, Message):
        # protobuf's C runtime puts a header that has an unknown field aside; betterproto2, Go and
        # this codec keep it.
        assert set(theirs.headers) <= set(ours.headers)
        theirs.headers = ours.headers
    assert ours == theirs


@given(st.binary(max_size=30) | spoilt(split_responses))
def test_spoilt_responses_are_read_or_refused_as_protobuf_does(data: bytes) -> None:
    assert outcome(decode_publish_response, data) == outcome(protobuf_response, data)


# Where betterproto2 reads what is broken, it is refused here


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes_field(3, b"value")[:-1], id="a value cut off"),
        pytest.param(bytes_field(5, b"\xff"), id="a text that is not UTF-8"),
        pytest.param(bytes_field(9, bytes_field(1, b"\xff")), id="a header that is not UTF-8"),
        pytest.param(bytes_field(9, bytes_field(2, b"content")[:-1]), id="a header cut off"),
        pytest.param(b"\x1a" + b"\xff" * 9 + b"\x01", id="a length of 64 bits"),
        pytest.param(b"\x08" + b"\xff" * 10 + b"\x01", id="a number of more than 64 bits"),
        pytest.param(b"\x00\x00", id="a field of number zero"),
        pytest.param(b"\x0f", id="a wire type that does not exist"),
    ],
)
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedData):
        decode_message(data)


@given(messages, st.data())
def test_a_message_that_ends_within_a_field_is_refused(data: bytes, draws: st.DataObject) -> None:
    whole = data + bytes_field(3, b"value")
    cut = draws.draw(st.integers(1, len(whole) - len(data) - 1))
    with pytest.raises(MalformedData):
        decode_message(whole[:-cut])


# A field of the wrong wire type: betterproto2 puts a number where a text belongs, which was
# refused. protobuf takes the field for an unknown one, in every language, and so it is as if the
# field were not there; what the caller gets has the right types.


@pytest.mark.parametrize(
    "wrong",
    [
        *(bytes_field(1, b"\x05"), number_field(3, 5), number_field(5, 5), number_field(9, 5)),
        b"\x25\x00\x00\x00\x00",
    ],
)
def test_a_field_of_the_wrong_wire_type_counts_as_absent(wrong: bytes) -> None:
    assert decode_message(wrong) == decode_message(b"")
    assert outcome(betterproto.decode_message, wrong) is MalformedData


def test_an_ack_of_the_wrong_wire_type_is_no_answer() -> None:
    with pytest.raises(MalformedData, match="neither"):
        decode_publish_response(number_field(1, 5))
