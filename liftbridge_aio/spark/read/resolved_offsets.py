"""Resolve the start and end of a query into offsets."""

from __future__ import annotations

from collections.abc import Mapping

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import StreamPartition, datetime_from_ns
from liftbridge_aio.spark.core.offsets import EARLIEST_OFFSET, LATEST_OFFSET, Offsets
from liftbridge_aio.spark.core.positions import (
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    NoOffsetStrategy,
    Position,
    check_covers,
)
from liftbridge_aio.spark.errors import NoOffsetAtTime

from .log_ends import offsets_at, oldest_offsets


async def resolve(
    client: Client,
    position: Position,
    ends: Mapping[StreamPartition, int],
    no_offset: NoOffsetStrategy,
) -> Offsets:
    """Resolve a position into an offset for each partition. Cancelling abandons the reads.

    Args:
        client: connected.
        position: from the options.
        ends: the offset after the newest committed message of each partition.
        no_offset: what to do if no message is as new as the time.

    Raises:
        InvalidOption: the position is for other partitions.
        NoOffsetAtTime: no message is as new as the time, and `no_offset` says ERROR.
        LiftbridgeError: a partition could not be read.
    """
    check_covers(position, ends.keys())
    match position:
        case Edge.LATEST:
            return Offsets(ends)
        case Edge.EARLIEST:
            return Offsets(await oldest_offsets(client, ends))
        case AtOffsets(offsets=offsets):
            oldest = [place for place, offset in offsets.items() if offset == EARLIEST_OFFSET]
            latest = [place for place, offset in offsets.items() if offset == LATEST_OFFSET]
            found = await oldest_offsets(client, {place: ends[place] for place in oldest})
            return Offsets({**offsets, **found, **{place: ends[place] for place in latest}})
        case AtTime(timestamp=timestamp):
            timestamps: Mapping[StreamPartition, int] = dict.fromkeys(ends, timestamp)
        case AtTimes(timestamps=by_partition):
            timestamps = by_partition
    at_times = await offsets_at(client, ends, timestamps)
    if no_offset is NoOffsetStrategy.ERROR:
        for place, offset in sorted(at_times.items()):
            if offset is None:
                raise _no_offset(place, ends[place], timestamps[place], position.option)
    return Offsets(
        {place: ends[place] if offset is None else offset for place, offset in at_times.items()}
    )


def _no_offset(place: StreamPartition, end: int, timestamp: int, option: str) -> NoOffsetAtTime:
    moment = datetime_from_ns(timestamp).isoformat()
    text = f"no message is as new as {moment}, the value of {option}"
    error = NoOffsetAtTime(text, stream=place.stream, partition=place.partition, offset=end)
    error.hint = (
        f"set {option} to an earlier time, or startingOffsetsByTimestampStrategy=latest to begin "
        "with what is published next"
    )
    return error
