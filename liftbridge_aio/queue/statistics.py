"""Figures of a queue, and what its messages wait for, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

from liftbridge_aio._core.ready_flow import Phase, ReadyFlow
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import StreamPartition

from .core.ack_window import AckWindow
from .core.attempt import AttemptState
from .delivery import Delivery, PartitionShare
from .errors import error_text


class PartitionStatistics(NamedTuple):
    """A partition of a queue."""

    stream: str
    partition: int
    in_flight: int
    """Deliveries that are not answered yet."""
    unsettled: int
    """Messages that were read and are not settled."""
    span: int
    """Offsets from the first unsettled message to the next one to be read."""
    leased: int
    """Deliveries in flight that other members have."""
    base: int | None
    """The first offset that is not settled; None before the first message."""


class QueueStatistics(NamedTuple):
    """Counts of a queue since it was entered: of the partitions that this member owns.

    What the owner of a partition leases to other members counts there.
    """

    delivered: int
    redelivered: int
    """Deliveries that were not the first attempt."""
    acked: int
    nacked: int
    expired: int
    """Deliveries that were not answered within ack_wait."""
    given_up: int
    dead_letters: int
    """Messages that were given up and stored as dead letters."""
    dead_letters_lost: int
    """Messages that were given up, and whose dead letter the servers do not take; logged."""
    moved: int
    """Messages that were moved to retry streams."""
    late: int
    """Answers that came too late."""
    backoff_level: int
    """Failures that later successes have not made up for; 0: full speed."""
    leased: int
    """Deliveries that other members were given."""
    borrowed: int
    """Deliveries of partitions of other members, given to this one."""
    partitions: tuple[PartitionStatistics, ...]


def partition_statistics(
    shares: Mapping[StreamPartition, PartitionShare],
) -> tuple[PartitionStatistics, ...]:
    """Return the figures of each partition."""
    return tuple(
        PartitionStatistics(
            *place,
            window.in_flight,
            window.unsettled,
            window.span,
            share.leased.total(),
            window.base,
        )
        for place, share in sorted(shares.items())
        if (window := share.window) is not None
    )


def explanations(
    windows: Mapping[StreamPartition, AckWindow[Delivery]], now: float
) -> Iterator[str]:
    """Yield a sentence for each partition with unsettled messages, and one if reading waits."""
    for (stream, partition), window in sorted(windows.items()):
        oldest = window.oldest
        if oldest is None:
            continue
        where = f"{stream}/{partition}"
        text = (
            f"{where}: {window.unsettled} unsettled, the first at offset {oldest.offset}:"
            f" {_state(oldest, now)}"
        )
        if oldest.error is not None:
            text += f"; the attempt before it failed with {error_text(oldest.error)}"
        yield text
        if not window.wants_more:
            yield f"{where}: nothing more is read: {_limit(window)}"


def explain_blocked(
    blocked: Mapping[StreamPartition, LiftbridgeError],
) -> Iterator[str]:
    """Yield a sentence for each partition that cannot be read."""
    for (stream, partition), error in blocked.items():
        yield f"{stream}/{partition}: it cannot be read: {error_text(error)}"


def explain_backoff(flow: ReadyFlow[StreamPartition], now: float) -> Iterator[str]:
    """Yield a sentence while failures slow a queue down."""
    failures = f"handlers failed (backoff level {flow.backoff_level})"
    match flow.phase:
        case Phase.WAITING:
            yield f"{failures}: nothing is delivered for {flow.backoff_left(now):.1f} s more"
        case Phase.PROBING:
            yield f"{failures}: one message at a time is delivered, until one succeeds"
        case Phase.SEEKING:
            yield f"{failures}: one message is delivered once a partition can be read"
        case Phase.FLOWING:
            return


def doubts(shares: Mapping[StreamPartition, PartitionShare]) -> Iterator[str]:
    """Yield a sentence for each transaction whose commit is in doubt."""
    for (stream, partition), share in sorted(shares.items()):
        for transaction in share.producers.in_doubt:
            yield (
                f"{stream}/{partition}: the transaction of the message at offset"
                f" {transaction.delivery.offset} is in doubt: its commit is repeated until its"
                " results are visible"
            )


def _state(delivery: Delivery, now: float) -> str:
    left = max(delivery.deadline - now, 0.0)
    match delivery.state:
        case AttemptState.IN_FLIGHT:
            return f"attempt {delivery.attempt} is in flight, for {left:.1f} s more"
        case AttemptState.DELAYED:
            return f"attempt {delivery.attempt + 1} is due in {left:.1f} s"
        case AttemptState.GIVING_UP:
            done = "moved" if delivery.deadline < inf else "given up"
            return f"it is being {done} after attempt {delivery.attempt}"
        case _:
            return f"attempt {delivery.attempt + 1} is {delivery.state.value}"


def _limit(window: AckWindow[Delivery]) -> str:
    if window.suspects:
        return "after a crash, messages are handed out one at a time"
    if not window.capacity:
        return "it pauses, because handlers fail or max_in_flight is 0"
    if window.in_flight >= window.capacity:
        return f"{window.in_flight} deliveries are in flight, and no more may be"
    return f"{window.span} offsets lie between its first unsettled message and the next one"
