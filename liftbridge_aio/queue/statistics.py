"""Counts of a queue, and sentences about what its messages wait for."""

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
    """Counts of one partition."""

    stream: str
    partition: int
    in_flight: int
    """Unanswered deliveries."""
    unsettled: int
    """Messages that were read and are neither acked nor dead-lettered."""
    span: int
    """Offsets from the first unsettled message to the next one to be read."""
    leased: int
    """Deliveries in flight that are leased to other members."""
    base: int | None
    """The first unsettled offset; None before the first message."""


class QueueStatistics(NamedTuple):
    """Counts since the queue was entered, of the partitions that this member owns.

    A message that is leased to another member counts at the owner of its partition.
    """

    delivered: int
    redelivered: int
    """Deliveries after the first attempt."""
    acked: int
    nacked: int
    expired: int
    """Deliveries that were not answered within ack_wait."""
    given_up: int
    dead_letters: int
    """Dead letters that were stored."""
    dead_letters_lost: int
    """Messages whose dead letter the servers have refused in every form; each is logged."""
    moved: int
    """Messages that were moved to retry streams."""
    late: int
    """Answers that were too late."""
    backoff_level: int
    """Failures without a later success; 0: full speed."""
    leased: int
    """Deliveries that this member has leased to others."""
    borrowed: int
    """Deliveries that others have leased to this member."""
    partitions: tuple[PartitionStatistics, ...]


def partition_statistics(
    shares: Mapping[StreamPartition, PartitionShare],
) -> tuple[PartitionStatistics, ...]:
    """Return the counts of each partition."""
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
    """Yield a sentence for each partition with unsettled messages, and one if reading pauses."""
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
            text += f"; the attempt before failed with {error_text(oldest.error)}"
        yield text
        if not window.wants_more:
            yield f"{where}: reading pauses: {_limit(window)}"


def explain_blocked(
    blocked: Mapping[StreamPartition, LiftbridgeError],
) -> Iterator[str]:
    """Yield a sentence for each blocked partition."""
    for (stream, partition), error in blocked.items():
        yield f"{stream}/{partition}: cannot be read: {error_text(error)}"


def explain_backoff(flow: ReadyFlow[StreamPartition], now: float) -> Iterator[str]:
    """Yield a sentence while failures slow the queue down."""
    failures = f"handlers failed (backoff level {flow.backoff_level})"
    match flow.phase:
        case Phase.WAITING:
            yield f"{failures}: deliveries pause for {flow.backoff_left(now):.1f} s more"
        case Phase.PROBING:
            yield f"{failures}: one message at a time is delivered, until one succeeds"
        case Phase.SEEKING:
            yield f"{failures}: the next message of any partition is the probe"
        case Phase.FLOWING:
            return


def doubts(shares: Mapping[StreamPartition, PartitionShare]) -> Iterator[str]:
    """Yield a sentence for each transaction whose commit is in doubt."""
    for (stream, partition), share in sorted(shares.items()):
        for transaction in share.producers.in_doubt:
            yield (
                f"{stream}/{partition}: the transaction of the message at offset"
                f" {transaction.delivery.offset} is in doubt: its commit is retried until its"
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
            done = "moved to a retry stream" if delivery.deadline < inf else "given up"
            return f"it is being {done} after attempt {delivery.attempt}"
        case _:
            return f"attempt {delivery.attempt + 1} is {delivery.state.value}"


def _limit(window: AckWindow[Delivery]) -> str:
    if window.suspects:
        return "after a crash, messages are delivered one at a time"
    if not window.capacity:
        return "handlers fail, or max_in_flight is 0"
    if window.in_flight >= window.capacity:
        return f"{window.in_flight} deliveries are in flight, the maximum"
    return f"{window.span} offsets after the first unsettled message are read, the maximum"
