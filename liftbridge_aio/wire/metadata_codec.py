"""FetchMetadataResponse read and written by protobuf's C runtime.

It names every stream of a cluster, and the event loop stands still while it is read: so it is read
in steps, between which others run, and the generated classes would take many times as long. What
comes in and out is generated messages all the same, but that partitions which were read stay what
the C runtime has read: it has the same fields, and a client asks for those of few partitions. Bytes
that are in any way unusual go through the generated classes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from liftbridge_aio.errors import MalformedData

from . import proto
from .hot_schema import PARSE_ERRORS, WireMetadata

_CLOSER_LOOK_BYTES: Final = 2**16
"""Up to this size, what is unusual goes through the generated classes. It is all the same there but
for errors that are not known yet, and for bytes that no protobuf writes."""

_MAX_ENTRIES: Final = 2**16
"""Brokers, groups, streams and their partitions, at most. 4 MiB hold some 50,000 of those that
servers name, but ten times as many that are a letter or a number each, or nothing."""
_STEP: Final = 1000
"""Entries that are read in one step."""

_STREAM_ERRORS: Final = {int(error): error for error in proto.StreamMetadataError}
_GROUP_ERRORS: Final = {int(error): error for error in proto.ConsumerGroupMetadataError}

T = TypeVar("T")


def parse_metadata(data: bytes) -> Generator[None, None, proto.FetchMetadataResponse | None]:
    """Read metadata as servers write it, in steps; None for all that needs a closer look.

    None does not mean that the bytes are wrong: only that they are not what would be written here,
    or that there are fields or errors of a newer server.

    Raises:
        MalformedData: much of it is nothing, or it is more than any cluster has.
    """
    wire = WireMetadata()
    try:
        wire.ParseFromString(data)
    except PARSE_ERRORS:
        return None
    wire.DiscardUnknownFields()  # among them those of a wrong wire type
    if len(data) > _CLOSER_LOOK_BYTES:
        _check_size(wire)
    elif wire.SerializeToString() != data:
        return None
    try:
        return proto.FetchMetadataResponse(
            brokers=(yield from _in_steps(_broker, wire.brokers)),
            stream_metadata=(yield from _streams(wire.stream_metadata)),
            group_metadata=(yield from _in_steps(_group, wire.group_metadata)),
        )
    except KeyError:  # an error that is not known
        return None


def _in_steps(read: Callable[[Any], T], entries: Any) -> Generator[None, None, list[T]]:
    found: list[T] = []
    for first in range(0, len(entries), _STEP):
        if first:
            yield
        found += map(read, entries[first : first + _STEP])
    return found


def _streams(entries: Any) -> Generator[None, None, list[proto.StreamMetadata]]:
    found: list[proto.StreamMetadata] = []
    left = _STEP
    for entry in entries:
        partitions: dict[int, proto.PartitionMetadata] = {}
        for first in range(0, len(entry.partitions), _STEP):
            some = entry.partitions[first : first + _STEP]
            if left < len(some):
                yield
                left = _STEP
            left -= len(some)
            partitions |= {one.number: one.metadata for one in some}
        if not left:
            yield
            left = _STEP
        left -= 1
        found.append(_stream(entry, partitions))
    return found


def _check_size(wire: Any) -> None:
    """Refuse what would be objects by the million, which hold up the garbage collector too.

    Raises:
        MalformedData: there are more entries than any cluster has.
    """
    count = len(wire.brokers) + len(wire.stream_metadata) + len(wire.group_metadata)
    if count <= _MAX_ENTRIES:
        count += sum(len(stream.partitions) for stream in wire.stream_metadata)
    if count > _MAX_ENTRIES:
        raise MalformedData(
            f"the metadata names {count} brokers, groups, streams and partitions, or more;"
            f" at most {_MAX_ENTRIES} are taken"
        )


def _broker(wire: Any) -> proto.Broker:
    return proto.Broker(
        id=wire.id,
        host=wire.host,
        port=wire.port,
        partition_count=wire.partition_count,
        leader_count=wire.leader_count,
    )


def _stream(wire: Any, partitions: dict[int, proto.PartitionMetadata]) -> proto.StreamMetadata:
    return proto.StreamMetadata(
        name=wire.name,
        subject=wire.subject,
        error=_STREAM_ERRORS[wire.error],
        partitions=partitions,
        creation_timestamp=wire.creation_timestamp,
    )


def _group(wire: Any) -> proto.ConsumerGroupMetadata:
    return proto.ConsumerGroupMetadata(
        group_id=wire.group_id,
        error=_GROUP_ERRORS[wire.error],
        coordinator=wire.coordinator,
        epoch=wire.epoch,
    )


def encode_metadata(response: proto.FetchMetadataResponse) -> bytes:
    """Return the bytes of a FetchMetadataResponse.

    Raises:
        ValueError: a number does not fit its field, or a text is no Unicode.
    """
    wire = WireMetadata()
    for broker in response.brokers:
        wire.brokers.add(
            id=broker.id,
            host=broker.host,
            port=broker.port,
            partition_count=broker.partition_count,
            leader_count=broker.leader_count,
        )
    for stream in response.stream_metadata:
        to = wire.stream_metadata.add(
            name=stream.name,
            subject=stream.subject,
            error=stream.error,
            creation_timestamp=stream.creation_timestamp,
        )
        for number, partition in stream.partitions.items():
            _write_partition(to.partitions.add(number=number).metadata, partition)
    for group in response.group_metadata:
        wire.group_metadata.add(
            group_id=group.group_id,
            error=group.error,
            coordinator=group.coordinator,
            epoch=group.epoch,
        )
    encoded: bytes = wire.SerializeToString()
    return encoded


def _write_partition(wire: Any, partition: proto.PartitionMetadata) -> None:
    wire.id = partition.id
    wire.leader = partition.leader
    wire.replicas.extend(partition.replicas)
    wire.isr.extend(partition.isr)
    wire.high_watermark = partition.high_watermark
    wire.newest_offset = partition.newest_offset
    wire.paused = partition.paused
    wire.readonly = partition.readonly
    for to, event in (
        (wire.messages_received_timestamps, partition.messages_received_timestamps),
        (wire.pause_timestamps, partition.pause_timestamps),
        (wire.readonly_timestamps, partition.readonly_timestamps),
    ):
        if event is not None:
            to.first_timestamp = event.first_timestamp
            to.latest_timestamp = event.latest_timestamp
