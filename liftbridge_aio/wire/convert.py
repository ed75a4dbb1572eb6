"""Conversion between public values and wire messages, except those on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from liftbridge_aio.model import (
    Ack,
    BrokerInfo,
    EventTimestamps,
    GroupInfo,
    Metadata,
    PartitionInfo,
    PartitionRest,
    StreamInfo,
)
from liftbridge_aio.options import Duration, StreamOptions, milliseconds

from . import proto
from .hot_schema import WirePartition


def create_stream_request(
    name: str,
    subject: str,
    *,
    partitions: int,
    replication_factor: int,
    group: str | None,
    options: StreamOptions,
) -> proto.CreateStreamRequest:
    """Make a CreateStreamRequest; settings that are None stay absent, which is not zero."""
    return proto.CreateStreamRequest(
        name=name,
        subject=subject,
        partitions=partitions,
        replication_factor=replication_factor,
        group=group or "",
        retention_max_bytes=_int64(options.retention_max_bytes),
        retention_max_messages=_int64(options.retention_max_messages),
        retention_max_age=_milliseconds(options.retention_max_age),
        cleaner_interval=_milliseconds(options.cleaner_interval),
        segment_max_bytes=_int64(options.segment_max_bytes),
        segment_max_age=_milliseconds(options.segment_max_age),
        compact_max_goroutines=_int32(options.compact_max_goroutines),
        compact_enabled=_bool(options.compact_enabled),
        auto_pause_time=_milliseconds(options.auto_pause_time),
        auto_pause_disable_if_subscribers=_bool(options.auto_pause_disable_if_subscribers),
        min_isr=_int32(options.min_isr),
        optimistic_concurrency_control=_bool(options.optimistic_concurrency_control),
        encryption=_bool(options.encryption),
    )


def _int64(value: int | None) -> proto.NullableInt64 | None:
    return None if value is None else proto.NullableInt64(value=value)


def _int32(value: int | None) -> proto.NullableInt32 | None:
    return None if value is None else proto.NullableInt32(value=value)


def _bool(value: bool | None) -> proto.NullableBool | None:
    return None if value is None else proto.NullableBool(value=value)


def _milliseconds(value: Duration | None) -> proto.NullableInt64 | None:
    return None if value is None else proto.NullableInt64(value=milliseconds(value))


def metadata_from_wire(
    response: proto.FetchMetadataResponse,
) -> tuple[Metadata, frozenset[str], frozenset[str]]:
    """Read a metadata answer.

    Returns:
        What it knows (without a time), the names of streams that the server does not know, and the
        ids of groups that it does not know: those come back as entries with an error set.
    """
    brokers = {
        broker.id: BrokerInfo(
            broker.id, broker.host, broker.port, broker.partition_count, broker.leader_count
        )
        for broker in response.brokers
    }
    streams: dict[str, StreamInfo] = {}
    unknown_streams = set()
    for stream in response.stream_metadata:
        if stream.error != proto.StreamMetadataError.OK:
            unknown_streams.add(stream.name)
            continue
        # A map entry without a value means an empty message; betterproto2 makes it None.
        entries: Mapping[int, proto.PartitionMetadata | None] = stream.partitions
        partitions = {
            number: _partition(_NO_PARTITION if entry is None else entry)
            for number, entry in sorted(entries.items())
        }
        streams[stream.name] = StreamInfo(
            stream.name, stream.subject, MappingProxyType(partitions), stream.creation_timestamp
        )
    groups: dict[str, GroupInfo] = {}
    unknown_groups = set()
    for group in response.group_metadata:
        if group.error != proto.ConsumerGroupMetadataError.OK:
            unknown_groups.add(group.group_id)
            continue
        groups[group.group_id] = GroupInfo(group.group_id, group.coordinator, group.epoch)
    known = Metadata(
        None, MappingProxyType(brokers), MappingProxyType(streams), MappingProxyType(groups)
    )
    return known, frozenset(unknown_streams), frozenset(unknown_groups)


def partition_from_wire(partition: proto.PartitionMetadata) -> PartitionInfo:
    """Convert a PartitionMetadata of the wire to the public type."""
    return PartitionInfo(partition.id, partition.leader, *_after_leader(partition))


def _partition(partition: Any) -> PartitionInfo:
    """Convert number and leader. A client needs the rest of few of the partitions of a cluster."""
    if isinstance(partition, proto.PartitionMetadata):
        return partition_from_wire(partition)
    unread = partition.SerializeToString()
    return PartitionInfo.received(partition.id, partition.leader, unread, _read_after_leader)


def _read_after_leader(data: bytes) -> PartitionRest:
    return _after_leader(WirePartition.FromString(data))


def _after_leader(partition: proto.PartitionMetadata) -> PartitionRest:
    return (
        tuple(partition.replicas),
        tuple(partition.isr),
        partition.high_watermark,
        partition.newest_offset,
        partition.paused,
        partition.readonly,
        _timestamps(partition.messages_received_timestamps),
        _timestamps(partition.pause_timestamps),
        _timestamps(partition.readonly_timestamps),
    )


def _timestamps(event: proto.PartitionEventTimestamps | None) -> EventTimestamps:
    if event is None:
        return _NEVER
    first, latest = event.first_timestamp, event.latest_timestamp
    return EventTimestamps(first or None, latest or None) if first or latest else _NEVER


_NO_PARTITION: Final = proto.PartitionMetadata()
_NEVER: Final = EventTimestamps()


def ack_to_wire(ack: Ack) -> proto.Ack:
    """Turn an ack into the Ack of betterproto2."""
    return proto.Ack(
        stream=ack.stream,
        partition_subject=ack.partition_subject,
        msg_subject=ack.msg_subject,
        offset=ack.offset,
        ack_inbox=ack.ack_inbox,
        correlation_id=ack.correlation_id,
        ack_policy=proto.AckPolicy(ack.ack_policy),
        reception_timestamp=ack.reception_timestamp,
        commit_timestamp=ack.commit_timestamp,
        ack_error=proto.AckError(ack.ack_error),
    )
