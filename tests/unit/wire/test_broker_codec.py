"""The hot messages as a broker reads and writes them, against the generated classes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.model import AckPolicy
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.broker_codec import encode_reply, parse_publish_request
from liftbridge_aio.wire.codec import frame_publish, publish_head
from liftbridge_aio.wire.field_types import wrong_field
from liftbridge_aio.wire.framing import unframed
from liftbridge_aio.wire.strict import is_cut_off
from support.wire.wire_fields import (
    any_order,
    blobs,
    bytes_field,
    contents,
    header_entries,
    int32s,
    int64s,
    number_field,
    numbers,
    spoilt,
    texts,
    unknown,
)

policies = st.sampled_from(list(proto.AckPolicy))
headers = st.dictionaries(
    st.text(min_size=1, max_size=4), st.binary(min_size=1, max_size=20), max_size=3
)

requests = st.builds(
    proto.PublishRequest,
    key=blobs,
    value=blobs,
    stream=st.text(max_size=6),
    partition=int32s,
    headers=headers,
    correlation_id=st.text(max_size=6),
    ack_policy=policies,
    expected_offset=int64s,
)
acks = st.builds(
    proto.Ack,
    stream=st.text(max_size=6),
    partition_subject=st.text(max_size=6),
    msg_subject=st.text(max_size=6),
    offset=int64s,
    ack_inbox=st.text(max_size=6),
    correlation_id=st.text(max_size=6),
    ack_policy=policies,
    reception_timestamp=int64s,
    commit_timestamp=int64s,
    ack_error=st.sampled_from(list(proto.AckError)),
)
replies = st.one_of(
    st.builds(  # every field of each
        proto.Message,
        offset=int64s,
        key=blobs,
        value=blobs,
        timestamp=int64s,
        stream=st.text(max_size=6),
        partition=int32s,
        subject=st.text(max_size=6),
        reply_subject=st.text(max_size=6),
        headers=headers,
        ack_inbox=st.text(max_size=6),
        correlation_id=st.text(max_size=6),
        ack_policy=policies,
    ),
    st.builds(
        proto.PublishResponse,
        ack=st.none() | st.just(proto.Ack()) | acks,
        async_error=st.none()
        | st.builds(
            proto.PublishAsyncError,
            code=st.sampled_from(list(proto.PublishAsyncErrorCode)),
            message=st.text(max_size=6),
        ),
        correlation_id=st.text(max_size=6),
    ),
    st.builds(proto.PublishToSubjectResponse, ack=acks),
)
publishes = any_order(
    contents(1, blobs),
    contents(2, blobs),
    contents(3, texts),
    numbers(4, int32s),
    contents(5, header_entries),
    contents(6, texts),
    contents(7, texts),
    numbers(8, st.integers(0, 4)),
    numbers(9),
    unknown,
    max_fields=5,
)


@given(requests)
def test_a_publish_is_read_as_it_was_written(request: proto.PublishRequest) -> None:
    assert parse_publish_request(bytes(request)) == request


def test_what_the_client_writes_is_read_at_once() -> None:
    head = publish_head("orders", 3, AckPolicy.ALL)
    headers = {"a": b"1", "b": b"2"}
    data = unframed(frame_publish(head, b"value", b"key", headers, None, "c"))
    assert parse_publish_request(data) == proto.PublishRequest.parse(data)


@given(publishes | spoilt(publishes))
@example(number_field(1, 7))  # a number for the key
@example(bytes_field(2, b"a")[:-1])
@example(bytes_field(6, b"inbox"))
@example(number_field(8, 77))  # an ack policy that is none
@example(bytes_field(3, b"\xff"))
def test_what_is_read_quickly_is_what_the_generated_classes_read(data: bytes) -> None:
    request = parse_publish_request(data)
    if request is not None:
        assert not is_cut_off(data)
        assert request == proto.PublishRequest.parse(data)
        assert wrong_field(request) is None


@given(replies)
@example(proto.Message(headers={"": b""}))
def test_replies_are_what_the_generated_classes_read(reply: proto.Message) -> None:
    assert type(reply).parse(encode_reply(reply)) == reply
