"""Turns where a query starts and ends, as its options say it, into offsets."""

from __future__ import annotations

from collections.abc import Mapping

from liftbridge_aio.client import Client
from liftbridge_aio.model import datetime_from_ns

from .errors import NoOffsetAtTime
from .log_ends import offsets_at, oldest_offsets
from .offsets import EARLIEST_OFFSET, LATEST_OFFSET, Offsets, StreamPartition
from .positions import AtOffsets, AtTime, AtTimes, Edge, NothingSoNew, Position, check_covers


async def resolve(
    client: Client,
    position: Position,
    ends: Mapping[StreamPartition, int],
    nothing_so_new: NothingSoNew,
) -> Offsets:
    """Turn a position into an offset for each partition. Cancelling abandons the readings.

    Args:
        client: connected.
        position: what the options say.
        ends: the offset behind the newest committed message of each partition.
        nothing_so_new: what to do where no message is as new as the time that is asked for.

    Raises:
        InvalidOption: the position names other partitions.
        NoOffsetAtTime: no message is as new as the time, and `nothing_so_new` says ERROR.
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
    if nothing_so_new is NothingSoNew.ERROR:
        for place, offset in sorted(at_times.items()):
            if offset is None:
                raise _nothing_so_new(place, ends[place], timestamps[place], position.option)
    return Offsets(
        {place: ends[place] if offset is None else offset for place, offset in at_times.items()}
    )


def _nothing_so_new(
    place: StreamPartition, end: int, timestamp: int, option: str
) -> NoOffsetAtTime:
    moment = datetime_from_ns(timestamp).isoformat()
    text = f"no message is as new as {moment}, which {option} asks for"
    error = NoOffsetAtTime(text, stream=place.stream, partition=place.partition, offset=end)
    error.hint = (
        f"set {option} to an earlier time, or startingOffsetsByTimestampStrategy=latest to begin "
        "with what is published next"
    )
    return error
