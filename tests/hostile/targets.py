"""The decoders of untrusted bytes, each as one function: it returns, or raises MalformedData.

`test_hostile_bytes.py` and `fuzz.py` send the same bytes to them. Whatever else a target raises is
a bug, and so is a target that does not keep what it holds within what it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hpack import Encoder

from liftbridge_aio._client.activity import activity_event
from liftbridge_aio.compression import Gzip, Zlib
from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, AckPolicy, Message
from liftbridge_aio.net.core.data_lane import DataLane
from liftbridge_aio.net.core.lane_stream import LanePhase
from liftbridge_aio.wire import convert, envelope, proto, rpc
from liftbridge_aio.wire.codec import (
    decode_acks,
    decode_message,
    decode_messages,
    decode_publish_response,
    decode_publish_responses,
    message_place,
)
from liftbridge_aio.wire.column_batch import decode_columns
from support.peers.http2_bytes import DATA, GRPC, HEADERS, block, frame, message, settings, trailers

LONGEST: Final = 1000
"""Messages on the lane may have so many bytes."""


def messages(data: bytes) -> None:
    """Messages of a subscription, alone, in a batch and as columns."""
    good = bytes(proto.Message(offset=1, value=b"good", timestamp=1))
    with suppress(MalformedData):
        found = decode_message(data)
        assert (found.offset, found.timestamp) == message_place(data)
        assert isinstance(found.headers, dict)
    with suppress(MalformedData):
        assert len(decode_messages([good, data, good])) == 3
    read, error = decode_columns([good, data, good])
    assert len(read) == (3 if error is None else 1)


def answers(data: bytes) -> None:
    """Answers to publishes, alone and in a batch."""
    good = bytes(proto.PublishResponse(ack=proto.Ack(offset=1), correlation_id="1"))
    with suppress(MalformedData):
        decode_publish_response(data)
    with suppress(MalformedData):
        assert len(decode_publish_responses([good, data])) == 2
    with suppress(MalformedData):
        decode_acks([good, data, good])


def envelopes(data: bytes) -> None:
    """Decode envelopes of a NATS subject or inbox, alone and behind a valid beginning."""
    for prefix in (b"", envelope.encode_ack(Ack("s", "s", "s", 1))[:8]):
        whole = prefix + data
        envelope.is_envelope(whole)
        for read in (envelope.decode_message, envelope.decode_ack):
            with suppress(MalformedData):
                read(whole)


def replies(data: bytes) -> None:
    """Answers of unary calls, those of groups and cursors among them, and what is made of them."""
    for procedure in UNARY:
        with suppress(MalformedData):
            reply = procedure.read_reply(data)
            if isinstance(reply, proto.FetchMetadataResponse):
                convert.metadata_from_wire(reply)
            elif isinstance(reply, proto.FetchPartitionMetadataResponse) and reply.metadata:
                convert.partition_from_wire(reply.metadata)


def activity(data: bytes) -> None:
    """Events of the activity stream."""
    activity_event(_message(data)).time  # noqa: B018 - it must be possible to ask


def compressed(data: bytes) -> None:
    """Values that say they are compressed; they may be bombs."""
    for encoding in (Gzip(), Zlib()):
        with suppress(MalformedData):
            assert len(encoding.decompress(data, 10_000)) <= 10_000


def lane(data: bytes) -> None:
    """Receive bytes on a connection with an open stream: in one piece and in single bytes."""
    for size in (max(len(data), 1), 1):
        taken = DataLane()
        stream = taken.open(1, window=2**16, max_message_bytes=LONGEST)
        taken.feed(settings() + frame(HEADERS, 4, 1, block(GRPC)))
        passed = 0
        for at in range(0, len(data), size):
            passed += len(taken.feed(data[at : at + size]))
            taken.credit()
            taken.touched = []
        assert stream.phase in LanePhase
        assert all(len(one) <= LONGEST for one in stream.messages)
        assert sum(map(len, stream.messages)) <= len(data)
        assert passed <= len(data) + 64


def _message(value: bytes) -> Message:
    return decode_message(bytes(proto.Message(offset=1, value=value, timestamp=1)))


UNARY: Final = [
    one
    for one in vars(rpc).values()
    if isinstance(one, rpc.Rpc) and not one.streams_replies and one is not rpc.PUBLISH
]

Target = Callable[[bytes], None]
TARGETS: Final[dict[str, Target]] = {
    target.__name__: target
    for target in (messages, answers, envelopes, replies, activity, compressed, lane)
}


def _partition(number: int) -> proto.PartitionMetadata:
    return proto.PartitionMetadata(id=number, leader="n1", replicas=["n1", "n2"], isr=["n1"])


SEEDS: Final[dict[str, list[bytes]]] = {
    "messages": [
        bytes(
            proto.Message(
                offset=5,
                key=b"k",
                value=b"value",
                timestamp=7,
                stream="s",
                subject="s",
                headers={"a": b"1", "b": b""},
                correlation_id="c",
            )
        )
    ],
    "answers": [
        bytes(proto.PublishResponse(ack=proto.Ack(stream="s", offset=3), correlation_id="c")),
        bytes(proto.PublishResponse(async_error=proto.PublishAsyncError(message="no"))),
    ],
    "envelopes": [
        envelope.encode_ack(Ack("s", "s", "s", 1), crc=True),
        envelope.encode_message(b"value", key=b"k", ack_policy=AckPolicy.ALL, crc=True),
    ],
    "replies": [
        bytes(
            proto.FetchMetadataResponse(
                brokers=[proto.Broker(id="n1", host="h", port=9292)],
                stream_metadata=[proto.StreamMetadata(name="s", partitions={0: _partition(0)})],
                group_metadata=[proto.ConsumerGroupMetadata(group_id="g", coordinator="n1")],
            )
        ),
        bytes(proto.FetchPartitionMetadataResponse(metadata=_partition(3))),
        bytes(
            proto.FetchConsumerGroupAssignmentsResponse(
                epoch=1, assignments=[proto.PartitionAssignment(stream="s", partitions=[0, 1])]
            )
        ),
        bytes(proto.FetchCursorResponse(offset=-1)),
    ],
    "activity": [
        bytes(
            proto.ActivityStreamEvent(
                id=3,
                op=proto.ActivityStreamOp.CREATE_STREAM,
                create_stream_op=proto.CreateStreamOp(stream="s", partitions=[0]),
            )
        )
    ],
    "compressed": [Gzip().compress(bytes(50_000)), Zlib().compress(b"text" * 100)],
    "lane": [
        frame(DATA, 0, 1, message(b"one")) * 3 + trailers(1),
        frame(DATA, 8, 1, b"\2" + message(b"two") + b"\0\0") + frame(DATA, 1, 1, b""),
        frame(HEADERS, 0, 1, Encoder().encode([("a", "b")])) + frame(9, 4, 1),
    ],
}
"""Sound examples, which are spoilt."""
