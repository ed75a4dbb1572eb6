"""Conversion between the broker's values and protocol messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from liftbridge_aio.broker.errors import PublishCode, PublishRefused
from liftbridge_aio.broker.storage.core.reader import ReadRange
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.model import (
    Ack,
    AckError,
    BrokerInfo,
    EventTimestamps,
    Message,
    PartitionInfo,
    StreamInfo,
)
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.convert import ack_to_wire

from .incoming import Incoming
from .requests import StreamRequest

_NACKS = {
    AckError.INCORRECT_OFFSET: (PublishCode.INCORRECT_OFFSET, "incorrect expected offset"),
    AckError.TOO_LARGE: (PublishCode.BAD_REQUEST, "message exceeds max replication size"),
    AckError.ENCRYPTION: (PublishCode.ENCRYPTION_FAILED, "encryption failed on partition"),
}


def stream_request(request: proto.CreateStreamRequest) -> StreamRequest:
    """Convert a CreateStream request."""
    nullables = {
        name: getattr(request, name)
        for name in (
            "retention_max_bytes",
            "retention_max_messages",
            "retention_max_age",
            "cleaner_interval",
            "segment_max_bytes",
            "segment_max_age",
            "compact_max_goroutines",
            "compact_enabled",
            "auto_pause_time",
            "auto_pause_disable_if_subscribers",
            "min_isr",
            "optimistic_concurrency_control",
            "encryption",
        )
    }
    given = {name: wrapper.value for name, wrapper in nullables.items() if wrapper is not None}
    return StreamRequest(
        name=request.name,
        subject=request.subject,
        group=request.group,
        replication_factor=request.replication_factor,
        partitions=request.partitions,
        config=StreamConfig(**given),
    )


def read_range(request: proto.SubscribeRequest, *, reads_in_reverse: bool) -> ReadRange:
    """Convert the positions of a Subscribe request; old servers ignore that it is reversed."""
    return ReadRange(
        start=int(request.start_position),
        start_offset=request.start_offset,
        start_timestamp=request.start_timestamp,
        stop=int(request.stop_position),
        stop_offset=request.stop_offset,
        stop_timestamp=request.stop_timestamp,
        reverse=request.reverse and reads_in_reverse,
    )


def incoming_message(
    request: proto.PublishRequest,
    ack_inbox: str,
    reply: Callable[[Ack], None],
    *,
    inbox_is_awaited: bool = False,
) -> Incoming:
    """Convert a publish request; `reply` receives its acks."""
    return Incoming(
        request.key,
        request.value,
        request.headers,
        ack_inbox,
        request.correlation_id,
        int(request.ack_policy),
        reply,
        request.expected_offset,
        request.stream,
        inbox_is_awaited,
    )


def stored_message(message: Message) -> proto.Message:
    """Convert a stored message for a subscriber."""
    return proto.Message(
        offset=message.offset,
        key=message.key,
        value=message.value,
        timestamp=message.timestamp,
        stream=message.stream,
        partition=message.partition,
        subject=message.subject,
        headers=dict(message.headers),
    )


def refusal_of(ack: Ack) -> PublishRefused | None:
    """Return the refusal that an ack with an error stands for, None for a true ack."""
    if ack.ack_error is AckError.OK:
        return None
    return PublishRefused(*_NACKS.get(ack.ack_error, (PublishCode.UNKNOWN, "unknown error")))


def async_response(ack: Ack) -> proto.PublishResponse:
    """Convert an ack or nack to the answer of a PublishAsync session."""
    refused = refusal_of(ack)
    if refused is not None:
        return async_error(refused, ack.correlation_id)
    return proto.PublishResponse(ack=ack_to_wire(ack), correlation_id=ack.correlation_id)


def async_error(refused: PublishRefused, correlation_id: str) -> proto.PublishResponse:
    """Return the answer of a PublishAsync session to a refused message, with an empty ack in it."""
    return proto.PublishResponse(
        ack=proto.Ack(),
        async_error=proto.PublishAsyncError(
            code=proto.PublishAsyncErrorCode(refused.code), message=refused.text
        ),
        correlation_id=correlation_id,
    )


def broker_message(broker: BrokerInfo) -> proto.Broker:
    """Convert a broker of the cluster."""
    return proto.Broker(
        id=broker.id,
        host=broker.host,
        port=broker.port,
        partition_count=broker.partition_count,
        leader_count=broker.leader_count,
    )


def stream_message(stream: StreamInfo) -> proto.StreamMetadata:
    """Convert the metadata of a stream."""
    return proto.StreamMetadata(
        name=stream.name,
        subject=stream.subject,
        partitions={number: partition_message(one) for number, one in stream.partitions.items()},
        creation_timestamp=stream.creation_timestamp,
    )


def partition_message(partition: PartitionInfo) -> proto.PartitionMetadata:
    """Convert the metadata of a partition."""
    return proto.PartitionMetadata(
        id=partition.id,
        leader=partition.leader,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        high_watermark=partition.high_watermark,
        newest_offset=partition.newest_offset,
        paused=partition.paused,
        readonly=partition.readonly,
        messages_received_timestamps=_event_message(partition.messages_received),
        pause_timestamps=_event_message(partition.pause),
        readonly_timestamps=_event_message(partition.readonly_changes),
    )


def _event_message(timestamps: EventTimestamps) -> proto.PartitionEventTimestamps:
    if timestamps.latest is None:
        return _NEVER
    return proto.PartitionEventTimestamps(
        first_timestamp=timestamps.first or 0, latest_timestamp=timestamps.latest
    )


_NEVER: Final = proto.PartitionEventTimestamps()
"""Of nearly all events of nearly all partitions, in each of thousands of answers."""
