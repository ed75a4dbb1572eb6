"""How far a micro-batch reads: the end offset of each partition. Pure.

What comes out is a function of what goes in, and Spark writes it down before anything is read. So
a replayed batch does not come through here again.
"""

from __future__ import annotations

from collections.abc import Mapping

from .offsets import Offsets, StreamPartition


def admit(
    start: Offsets,
    available: Mapping[StreamPartition, int],
    *,
    max_offsets: int | None = None,
    target: Mapping[StreamPartition, int] | None = None,
) -> Offsets:
    """Say where a micro-batch ends that begins at `start`.

    Partitions share the limit by how far behind they are. Each that is behind gets at least one
    offset; where the limit is too small for that, they take turns from batch to batch.

    Args:
        start: where the last batch ended.
        available: the offset after the last that may be read, of each partition. One that is not
            in `start` begins at 0, and joins the result with its first message. One that is only
            in `start` stays where it is.
        max_offsets: how many offsets the batch has at most; None: as many as there are.
        target: where `Trigger.AvailableNow` stops. What is not in it is not read.

    Returns:
        The end of each partition, never before its start.
    """
    ends = available if target is None else _earlier(available, target)
    lags = {
        place: ends[place] - start.get(place, 0)
        for place in sorted(ends)
        if ends[place] > start.get(place, 0)
    }
    shares = lags if max_offsets is None else _shares(lags, max_offsets, turn=sum(start.values()))
    return start.changed({place: start.get(place, 0) + share for place, share in shares.items()})


def offsets_within(max_bytes: int, average_bytes: float) -> int:
    """Turn a limit in bytes into one in offsets; at least 1, so that a query gets on.

    Args:
        max_bytes: what a batch should have at most.
        average_bytes: what a message was found to have, on average; less than 1 counts as 1.
    """
    return max(1, int(max_bytes / max(1.0, average_bytes)))


def stricter(one: int | None, other: int | None) -> int | None:
    """Choose the smaller of two limits, where None is no limit."""
    given = [limit for limit in (one, other) if limit is not None]
    return min(given, default=None)


def _earlier(
    available: Mapping[StreamPartition, int], target: Mapping[StreamPartition, int]
) -> dict[StreamPartition, int]:
    return {place: min(end, target[place]) for place, end in available.items() if place in target}


def _shares(lags: dict[StreamPartition, int], limit: int, turn: int) -> dict[StreamPartition, int]:
    """Divide `limit` offsets; `lags` is sorted and has no zeros."""
    total, count = sum(lags.values()), len(lags)
    if total <= limit:
        return lags
    if limit <= count:
        # `turn` grows by the limit with each batch, so the next ones begin where these end.
        places = list(lags)
        return {places[(turn + step) % count]: 1 for step in range(limit)}
    # One for each, and the rest in proportion to what is left: whole parts first, then one more
    # for the largest remainders. Whole numbers only: offsets outgrow the precision of a float.
    shares: dict[StreamPartition, int] = {}
    remainders: list[tuple[int, StreamPartition]] = []
    for place, lag in lags.items():
        whole, remainder = divmod((limit - count) * (lag - 1), total - count)
        shares[place] = 1 + whole
        remainders.append((-remainder, place))
    for _, place in sorted(remainders)[: limit - sum(shares.values())]:
        shares[place] += 1
    return shares
