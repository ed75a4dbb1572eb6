"""The answers of a server to appends of idempotent producers, as a table. Pure.

Section 5.2.1 of the protocol.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Epoch(Enum):
    """The epoch of a request, compared with the one that the server knows."""

    UNKNOWN = "the server knows no epoch of this producer"
    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


class Sequence(Enum):
    """Its sequence number, compared with the last accepted one of the epoch."""

    FIRST = "0"
    REPEATED = "not above the last one"
    NEXT = "the next one"
    BEYOND = "above the next one"


class Verdict(Enum):
    """The outcome of the append; the value is the HTTP status."""

    ACCEPTED = 200
    DUPLICATE = 204
    BAD_START = 400
    """A new epoch starts with 0."""
    STALE_EPOCH = 403
    SEQUENCE_GAP = 409


class ProducerState(NamedTuple):
    """The state of a producer of a stream, as a server keeps it."""

    epoch: int
    last_seq: int


class Decision(NamedTuple):
    """A verdict, and the numbers that the response has."""

    verdict: Verdict
    state: ProducerState | None
    """The state to keep if the append succeeds as a whole; after a refusal the one kept already."""
    expected_seq: int | None = None
    """The next number, for a gap."""


_TABLE: Final[dict[tuple[Epoch, Sequence | None], Verdict]] = {
    (Epoch.UNKNOWN, Sequence.FIRST): Verdict.ACCEPTED,
    (Epoch.UNKNOWN, Sequence.BEYOND): Verdict.SEQUENCE_GAP,
    (Epoch.OLDER, None): Verdict.STALE_EPOCH,
    (Epoch.NEWER, Sequence.FIRST): Verdict.ACCEPTED,
    (Epoch.NEWER, Sequence.BEYOND): Verdict.BAD_START,
    (Epoch.SAME, Sequence.REPEATED): Verdict.DUPLICATE,
    (Epoch.SAME, Sequence.NEXT): Verdict.ACCEPTED,
    (Epoch.SAME, Sequence.BEYOND): Verdict.SEQUENCE_GAP,
}


def judge(state: ProducerState | None, epoch: int, seq: int) -> Decision:
    """Return what becomes of an append.

    Args:
        state: of the producer; None if the server has none.
        epoch: of the request, 0 to 2**53 - 1.
        seq: of the request, likewise.
    """
    found = _epoch(state, epoch)
    verdict = _TABLE[found, _sequence(state, found, seq)]
    if verdict is Verdict.ACCEPTED:
        return Decision(verdict, ProducerState(epoch, seq))
    expected = None
    if verdict is Verdict.SEQUENCE_GAP:
        expected = 0 if state is None else state.last_seq + 1
    return Decision(verdict, state, expected)


def _epoch(state: ProducerState | None, epoch: int) -> Epoch:
    if state is None:
        return Epoch.UNKNOWN
    if epoch == state.epoch:
        return Epoch.SAME
    return Epoch.OLDER if epoch < state.epoch else Epoch.NEWER


def _sequence(state: ProducerState | None, epoch: Epoch, seq: int) -> Sequence | None:
    if epoch is Epoch.OLDER:
        return None
    if state is None or epoch is Epoch.NEWER:
        return Sequence.BEYOND if seq else Sequence.FIRST
    if seq <= state.last_seq:
        return Sequence.REPEATED
    return Sequence.NEXT if seq == state.last_seq + 1 else Sequence.BEYOND
