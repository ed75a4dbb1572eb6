"""Operations on many publishes or acks at once, without a step of the interpreter for each.

Pure. Publishing is as fast as its slowest loop over messages, and most of these loops can run in C.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, methodcaller
from typing import Final, NamedTuple

from liftbridge_aio.model import Ack

from .flush_marker import FlushMarker
from .message import PartitionRoute, PendingPublish, PublishTerms

_frame_of: Final[Callable[[PendingPublish | FlushMarker], bytes]] = attrgetter("frame")
_terms_of: Final[Callable[[PendingPublish | FlushMarker], PublishTerms]] = attrgetter("terms")
_is_done: Final[Callable[[PendingPublish | FlushMarker], bool]] = methodcaller("done")
_session_of: Final[Callable[[PendingPublish], object]] = attrgetter("session")
_stream_of: Final[Callable[[PendingPublish], str]] = attrgetter("route.stream")
_route_of: Final[Callable[[PendingPublish], PartitionRoute]] = attrgetter("route")
_id_of: Final[Callable[[Ack | PendingPublish], str]] = attrgetter("correlation_id")
_acked_stream_of: Final[Callable[[Ack], str]] = attrgetter("stream")


class AckBatch(NamedTuple):
    """Acks that say OK, in the order in which they came, each with its message."""

    messages: Sequence[PendingPublish]
    acks: Sequence[Ack]
    ids: Sequence[str]
    """The correlation ids."""
    routes: Mapping[PartitionRoute, int]
    """Number of acks of each partition."""


def batch_of(messages: Sequence[PendingPublish], acks: Sequence[Ack]) -> AckBatch:
    """Return a batch of acks, which were matched to their messages one by one."""
    return AckBatch(messages, acks, list(map(_id_of, messages)), _routes_of(messages))


def match_acks(
    acks: Sequence[Ack], unsettled: Mapping[str, PendingPublish], session: object
) -> AckBatch | None:
    """Match acks to messages; return None where one does not belong to a message of the session.

    The second ack of a message does not, nor that of another stream on the same subject.
    """
    ids = list(map(_id_of, acks))
    try:
        messages = list(map(unsettled.__getitem__, ids))
    except KeyError:
        return None
    if set(map(_session_of, messages)) != {session} or len(set(ids)) != len(ids):
        return None
    routes = _routes_of(messages)
    if len(routes) == 1:
        [route] = routes
        same_streams = set(map(_acked_stream_of, acks)) == {route.stream}
    else:
        same_streams = list(map(_stream_of, messages)) == list(map(_acked_stream_of, acks))
    return AckBatch(messages, acks, ids, routes) if same_streams else None


def _routes_of(messages: Sequence[PendingPublish]) -> Mapping[PartitionRoute, int]:
    routes = set(map(_route_of, messages))
    if len(routes) == 1:
        return dict.fromkeys(routes, len(messages))
    return Counter(map(_route_of, messages))


def take_out(unsettled: dict[str, PendingPublish], ids: Sequence[str]) -> None:
    """Remove messages, all of which must be there."""
    deque(map(unsettled.__delitem__, ids), maxlen=0)


def size_of(messages: Sequence[PendingPublish | FlushMarker]) -> int:
    """Return the bytes of all frames."""
    return sum(map(len, map(_frame_of, messages)))


def frames_of(messages: Sequence[PendingPublish | FlushMarker]) -> list[bytes]:
    """Return all frames."""
    return list(map(_frame_of, messages))


def first_and_last_offsets(batch: AckBatch) -> Mapping[PartitionRoute, tuple[int, int]]:
    """Return the offsets of the first and the last ack of each partition."""
    messages, acks, routes = batch.messages, batch.acks, batch.routes
    if len(routes) == 1:
        [route] = routes
        return {route: (acks[0].offset, acks[-1].offset)}
    first = _first_offsets(messages, acks, len(routes))
    last = _first_offsets(reversed(messages), reversed(acks), len(routes))
    return {route: (first[route], last[route]) for route in routes}


def _first_offsets(
    messages: Iterable[PendingPublish], acks: Iterable[Ack], routes: int
) -> dict[PartitionRoute, int]:
    """Return the first offset of each partition; stop when so many partitions are found."""
    found: dict[PartitionRoute, int] = {}
    for route, ack in zip(map(_route_of, messages), acks, strict=True):
        if route not in found:
            found[route] = ack.offset
            if len(found) == routes:
                break
    return found


def stepped_back(route: PartitionRoute, batch: AckBatch) -> bool:
    """Return True if the log gave a message an offset that it had passed before the write.

    Acks alone may come out of order, where messages of both ack policies are in flight.
    """
    return any(
        ack.offset <= route.newest_offset and pending.written_at >= route.newest_at
        for pending, ack in zip(batch.messages, batch.acks, strict=True)
        if pending.route is route
    )


def count_that_fit(
    items: Sequence[PendingPublish | FlushMarker], enough: int, limit: int | None
) -> int:
    """Return how many items to take: until there are `enough` bytes, but within `limit`."""
    sizes = list(map(len, map(_frame_of, items)))
    size = sum(sizes)
    if size < enough and (limit is None or size <= limit):
        return len(items)
    ends = list(accumulate(sizes))
    count = min(bisect_left(ends, enough) + 1, len(items))
    return count if limit is None else min(count, bisect_right(ends, limit))


def are_usual(items: Sequence[PendingPublish | FlushMarker]) -> bool:
    """Return True if all are messages that the server acks and that nobody has cancelled."""
    acked = all(terms.acked for terms in set(map(_terms_of, items)))
    return acked and not any(map(_is_done, items))
