"""What is asked of many publishes or acks at once, without a step of the interpreter for each.

Pure. Publishing is as fast as its slowest loop over messages, and most of these loops can run in C.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, methodcaller
from typing import Final

from liftbridge_aio.model import Ack

from .pending_publish import PendingPublish, PublishLane, PublishTerms
from .publish_proof import Barrier

_frame_of: Final[Callable[[PendingPublish | Barrier], bytes]] = attrgetter("frame")
_terms_of: Final[Callable[[PendingPublish | Barrier], PublishTerms]] = attrgetter("terms")
_is_done: Final[Callable[[PendingPublish | Barrier], bool]] = methodcaller("done")
_session_of: Final[Callable[[PendingPublish], object]] = attrgetter("session")
_stream_of: Final[Callable[[PendingPublish], str]] = attrgetter("lane.stream")
_lane_of: Final[Callable[[PendingPublish], PublishLane]] = attrgetter("lane")
_id_of: Final[Callable[[Ack | PendingPublish], str]] = attrgetter("correlation_id")
_stored_in: Final[Callable[[Ack], str]] = attrgetter("stream")


def size_of(messages: Sequence[PendingPublish | Barrier]) -> int:
    """Bytes of all frames."""
    return sum(map(len, map(_frame_of, messages)))


def lanes_of(messages: Sequence[PendingPublish]) -> Mapping[PublishLane, int]:
    """How many there are of each lane."""
    return Counter(map(_lane_of, messages))


def count_that_fit(
    items: Sequence[PendingPublish | Barrier], enough: int, limit: int | None
) -> int:
    """How many items to take from the front: until there are `enough` bytes, but within `limit`."""
    ends = list(accumulate(map(len, map(_frame_of, items))))
    count = min(bisect_left(ends, enough) + 1, len(items))
    return count if limit is None else min(count, bisect_right(ends, limit))


def are_usual(items: Sequence[PendingPublish | Barrier]) -> bool:
    """Tell whether all are messages that the server acks and that nobody has given up."""
    acked = all(terms.acked for terms in set(map(_terms_of, items)))
    return acked and not any(map(_is_done, items))


def messages_of(
    acks: Sequence[Ack], unsettled: Mapping[str, PendingPublish], session: object
) -> list[PendingPublish] | None:
    """Find the message of each ack; None where an ack is not the one of a message of the session.

    A second ack (W9) is not, nor one of another stream that listens to the same subject (W12).
    """
    ids = list(map(_id_of, acks))
    try:
        messages = list(map(unsettled.__getitem__, ids))
    except KeyError:
        return None
    theirs = (
        set(map(_session_of, messages)) == {session}
        and list(map(_stream_of, messages)) == list(map(_stored_in, acks))
        and len(set(ids)) == len(ids)
    )
    return messages if theirs else None


def take_out(unsettled: dict[str, PendingPublish], messages: Sequence[PendingPublish]) -> None:
    """Take messages out, all of which must be in."""
    for _ in map(unsettled.__delitem__, map(_id_of, messages)):
        pass
