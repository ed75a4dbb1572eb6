from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy, OutgoingMessage
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    ack_from_wire,
    decode_publish_response,
    encode_headers,
    frame_publish,
    publish_head,
)
from liftbridge_aio.wire.framing import framed, unframed
from support.wire.proto_file import LIFTBRIDGE

WireRequest = LIFTBRIDGE.message("PublishRequest")
WireResponse = LIFTBRIDGE.message("PublishResponse")

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=12)
blobs = st.binary(max_size=40)
headers = st.dictionaries(texts, blobs, max_size=4)
policies = st.sampled_from(AckPolicy)

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
    expected_offset=st.none() | st.integers(0, 2**63 - 1),
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
    head = publish_head(stream, partition, policy)
    fields = value, key, None, expected_offset, correlation_id
    data = unframed(frame_publish(head, *fields, encode_headers(headers)))
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
    head = publish_head("orders", 3, policy)
    checked = frame_publish(
        head, value, key, None, expected_offset, correlation_id, encode_headers(headers)
    )
    assert framed(unframed(checked)) == checked
    for _ in range(2):  # what is kept from the first is used by the second
        fields = value, key, headers, expected_offset
        assert frame_publish(head, *fields, correlation_id) == checked


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
        *({"value": bytearray(b"v")}, {"key": "k"}, {"expected_offset": -1}),
        *({"expected_offset": 2**63}, {"expected_offset": True}, {"expected_offset": 1.0}),
    ],
)
def test_fields_that_may_be_wrong_are_left_to_a_closer_look(fields: Any) -> None:
    assert not encoded_fast(OutgoingMessage(**{"stream": "orders", "value": b"v"} | fields))


def encoded_fast(message: OutgoingMessage) -> bytes:
    fields = message.value, message.key, message.headers, message.expected_offset
    return frame_publish(publish_head("orders", 3, message.ack_policy), *fields, "c")


def test_codes_of_future_servers_are_kept_or_count_as_unknown() -> None:
    refusal = WireResponse(asyncError={"code": 99})
    assert decode_publish_response(refusal.SerializeToString()) == PublishRefusal("", 99, "")
    nack = WireResponse(ack={"ackError": 99, "ackPolicy": 99})
    ack = decode_publish_response(nack.SerializeToString())
    assert isinstance(ack, Ack)
    assert ack.ack_error is AckError.UNKNOWN
    assert ack.ack_policy is AckPolicy.LEADER


# Garbage


@pytest.mark.parametrize("field", ["stream", "offset", "ack_error", "commit_timestamp"])
def test_fields_of_wrong_types_are_malformed_acks(field: str) -> None:
    wire = proto.Ack()
    setattr(wire, field, [])
    with pytest.raises(MalformedData):
        ack_from_wire(wire)
