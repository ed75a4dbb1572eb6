"""Metadata as protobuf's C runtime reads and writes it, against the generated classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire import metadata_codec, proto
from liftbridge_aio.wire.broker_codec import encode_reply
from liftbridge_aio.wire.convert import metadata_from_wire
from liftbridge_aio.wire.metadata_codec import parse_metadata
from liftbridge_aio.wire.rpc import FETCH_METADATA
from support.wire.proto_file import LIFTBRIDGE
from support.wire.wire_fields import (
    any_order,
    bytes_field,
    contents,
    int32s,
    int64s,
    number_field,
    numbers,
    spoilt,
    texts,
    unknown,
)

WireMetadata = LIFTBRIDGE.message("FetchMetadataResponse")
SLOWLY = dataclasses.replace(FETCH_METADATA, quick=None)

words = st.text(max_size=6)
events = st.none() | st.builds(
    proto.PartitionEventTimestamps, first_timestamp=int64s, latest_timestamp=int64s
)
partitions = st.just(proto.PartitionMetadata()) | st.builds(
    proto.PartitionMetadata,
    id=int32s,
    leader=words,
    replicas=st.lists(words, max_size=3),
    isr=st.lists(words, max_size=3),
    high_watermark=int64s,
    newest_offset=int64s,
    paused=st.booleans(),
    readonly=st.booleans(),
    messages_received_timestamps=events,
    pause_timestamps=events,
    readonly_timestamps=events,
)
replies = st.builds(  # every field of each
    proto.FetchMetadataResponse,
    brokers=st.lists(
        st.builds(
            proto.Broker,
            id=words,
            host=words,
            port=int32s,
            partition_count=int32s,
            leader_count=int32s,
        ),
        max_size=2,
    ),
    stream_metadata=st.lists(
        st.builds(
            proto.StreamMetadata,
            name=words,
            subject=words,
            error=st.sampled_from(list(proto.StreamMetadataError)),
            partitions=st.dictionaries(st.integers(0, 3) | int32s, partitions, max_size=3),
            creation_timestamp=int64s,
        ),
        max_size=2,
    ),
    group_metadata=st.lists(
        st.builds(
            proto.ConsumerGroupMetadata,
            group_id=words,
            error=st.sampled_from(list(proto.ConsumerGroupMetadataError)),
            coordinator=words,
            epoch=st.integers(0, 2**64 - 1),
        ),
        max_size=2,
    ),
)

# What an encoder may write that is not ours.
event_wires = any_order(numbers(1), numbers(2), unknown, max_fields=3)
partition_wires = any_order(
    numbers(1, int32s),
    *(contents(number, texts) for number in (2, 3, 4)),
    *(numbers(number) for number in (5, 6)),
    *(numbers(number, st.integers(0, 3)) for number in (7, 8)),
    *(contents(number, event_wires) for number in (9, 10, 11)),
    unknown,
    max_fields=5,
)
entry_wires = any_order(
    numbers(1, st.integers(0, 2)), contents(2, partition_wires), unknown, max_fields=3
)
broker_wires = any_order(
    contents(1, texts), contents(2, texts), numbers(3, int32s), numbers(5, int32s), unknown
)
stream_wires = any_order(
    contents(1, texts),
    contents(2, texts),
    numbers(3, st.integers(0, 2)),
    contents(4, entry_wires),
    numbers(5),
    unknown,
    max_fields=5,
)
group_wires = any_order(
    contents(1, texts), numbers(2, st.integers(0, 2)), contents(3, texts), numbers(4), unknown
)
wires = any_order(
    contents(1, broker_wires),
    contents(2, stream_wires),
    contents(3, group_wires),
    unknown,
    max_fields=4,
)


def read(rpc: Any, data: bytes) -> Any:
    """Return what a client learns from a reply, or its refusal."""
    try:
        return metadata_from_wire(rpc.read_reply(data))
    except MalformedData as error:
        return str(error)


def quickly_read(data: bytes) -> proto.FetchMetadataResponse | None:
    """Return what is read without the generated classes."""
    steps = parse_metadata(data)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        reply: proto.FetchMetadataResponse | None = end.value
        return reply


@given(replies, st.integers(1, 3))
def test_metadata_is_read_as_it_was_written(reply: proto.FetchMetadataResponse, step: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metadata_codec, "_STEP", step)
        read_back = quickly_read(bytes(reply))
        assert read_back is not None
        assert metadata_from_wire(read_back) == metadata_from_wire(reply)


@given(replies)
def test_metadata_is_written_as_the_generated_classes_write_it(
    reply: proto.FetchMetadataResponse,
) -> None:
    assert encode_reply(reply) == bytes(reply)


def test_what_protobuf_writes_is_read_at_once() -> None:
    """Go's runtime writes the same: a key of 0 and an empty message are there in an entry."""
    data = WireMetadata(
        brokers=[{"id": "b", "host": "h", "port": 9292}],
        streamMetadata=[{"name": "s", "partitions": {0: {}, 1: {"id": 1, "highWatermark": -1}}}],
    ).SerializeToString()
    reply = quickly_read(data)
    assert reply is not None
    slowly_read = proto.FetchMetadataResponse.parse(data)
    assert metadata_from_wire(reply) == metadata_from_wire(slowly_read)


@given(replies.map(bytes) | wires | spoilt(replies.map(bytes)) | spoilt(wires))
@example(bytes_field(1, number_field(1, 7)))  # a number for the id
@example(bytes_field(1, bytes_field(1, b"n")[:-1]))  # cut off inside
@example(bytes_field(1, bytes_field(1, b"n"))[:-1])
@example(bytes_field(1, bytes_field(1, b"\xff")))
@example(bytes_field(1, number_field(3, 2**32 + 1)))  # more than fits
@example(bytes_field(2, number_field(3, 77)))  # an error that is not known
@example(bytes_field(3, number_field(2, 77)))
@example(bytes_field(2, bytes_field(4, number_field(1, 3))))  # a partition without a value
@example(bytes_field(2, bytes_field(4, bytes_field(2, b""))))  # and one without a number
@example(bytes_field(2, bytes_field(4, number_field(1, 1) + bytes_field(2, b"\x08\x01")) * 2))
def test_what_is_read_quickly_is_what_the_generated_classes_read(data: bytes) -> None:
    assert read(FETCH_METADATA, data) == read(SLOWLY, data)
