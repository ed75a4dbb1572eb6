"""The end of a micro-batch in each partition. Pure.

Spark stores the end of a batch before anything is read, and takes it from there when it runs the
batch again.
"""

from __future__ import annotations

from collections.abc import Mapping

from liftbridge_aio.model import StreamPartition

from .offsets import Offsets


def admit(
    start: Offsets,
    available: Mapping[StreamPartition, int],
    *,
    min_offsets: int = 0,
    max_offsets: int | None = None,
    target: Mapping[StreamPartition, int] | None = None,
) -> Offsets:
    """Return the end of a micro-batch that begins at `start`; `start` if it must wait for more.

    Partitions share the limit in proportion to their lag. Each that lags gets at least one offset;
    if the limit is too small for that, they take turns from batch to batch.

    Args:
        start: where the last batch ended.
        available: the end of each partition. One that is not in `start` begins at 0, and joins the
            result with its first message. One that is only in `start` keeps its offset.
        min_offsets: with fewer available offsets there is no batch yet.
        max_offsets: most offsets of the batch; None: no limit.
        target: where `Trigger.AvailableNow` stops. Partitions that are not in it are not read.

    Returns:
        The end of each partition, never before its start.
    """
    ends = available if target is None else _earlier(available, target)
    lags = {
        place: ends[place] - start.get(place, 0)
        for place in sorted(ends)
        if ends[place] > start.get(place, 0)
    }
    if sum(lags.values()) < min_offsets:
        return start
    shares = lags if max_offsets is None else _shares(lags, max_offsets, turn=sum(start.values()))
    return start.changed({place: start.get(place, 0) + share for place, share in shares.items()})


class TriggerDelay:
    """Delays micro-batches until enough offsets are available, for a limited time.

    As in Kafka's connector, the delay begins whenever a batch was planned without waiting, even if
    nothing was available. It is kept in memory only, so the first batch after a start takes what is
    available.

    Args:
        min_offsets: offsets that a batch waits for; None: it does not wait.
        max_delay: seconds.
    """

    def __init__(self, min_offsets: int | None, max_delay: float) -> None:
        self._min_offsets = min_offsets or 0
        self._max_delay = max_delay
        self._planned_at: float | None = None

    def min_offsets(self, now: float) -> int:
        """Return how many offsets a batch planned at `now` must have."""
        at = self._planned_at
        return 0 if at is None or now - at >= self._max_delay else self._min_offsets

    def planned(self, now: float) -> None:
        """Record that a batch was planned, or would have been if anything had been available."""
        self._planned_at = now


def offsets_within(max_bytes: int, average_bytes: float) -> int:
    """Convert a limit in bytes into offsets; at least 1, so that a query makes progress.

    Args:
        max_bytes: most bytes of a batch.
        average_bytes: average size of a message; less than 1 counts as 1.
    """
    return max(1, int(max_bytes / max(1.0, average_bytes)))


def stricter(one: int | None, other: int | None) -> int | None:
    """Return the smaller of two limits, where None is no limit."""
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
        # `turn` grows by the limit with each batch, so the next one starts with the next partition.
        places = list(lags)
        return {places[(turn + step) % count]: 1 for step in range(limit)}
    # One offset each, and the rest in proportion to the lags: whole parts first, then one more for
    # the largest remainders. Whole numbers only, as offsets exceed the precision of a float.
    shares: dict[StreamPartition, int] = {}
    remainders: list[tuple[int, StreamPartition]] = []
    for place, lag in lags.items():
        whole, remainder = divmod((limit - count) * (lag - 1), total - count)
        shares[place] = 1 + whole
        remainders.append((-remainder, place))
    for _, place in sorted(remainders)[: limit - sum(shares.values())]:
        shares[place] += 1
    return shares
