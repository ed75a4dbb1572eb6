"""Find messages that a query has yet to read and that the log no longer has. Pure.

A position or range is compared with the present log. A loss is returned as a `Finding`: with a text
for the user, an error for a query that must not lose messages (`failOnDataLoss`), and the offset
where another query continues. Gaps that compaction leaves between stored messages are no loss.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.errors import (
    NEW_QUERY_HINT,
    CheckpointMismatch,
    DataLoss,
    SparkSourceError,
    StreamMissing,
)

from .offsets import OffsetRange, Offsets


@dataclass(frozen=True, slots=True)
class LogState:
    """The bounds of a partition's log at one moment."""

    earliest: int
    """Offset of the oldest stored message; `end` if there is none. 0 if it was not fetched: then
    removal by retention is not found."""
    end: int
    """The offset after the newest committed message."""
    stored_end: int | None = None
    """The offset after the newest stored message, committed or not. A new leader may not know yet
    that its newest messages are committed, so only a position beyond this shows a loss. None: the
    same as `end`."""

    @property
    def reach(self) -> int:
        """The offset from which no message is stored."""
        return self.end if self.stored_end is None else max(self.end, self.stored_end)


class Loss(enum.Enum):
    """The cause of a loss."""

    AGED_OUT = "retention removed them"
    SHORTER = "the log ends before them"
    RECREATED = "the stream was deleted and created again"
    PARTITIONS_CHANGED = "the stream was created again with other partitions"
    STREAM_GONE = "the stream no longer exists"
    NOT_SELECTED = "the options no longer name the stream"


_ERRORS: Final[Mapping[Loss, type[SparkSourceError]]] = {
    Loss.AGED_OUT: DataLoss,
    Loss.SHORTER: DataLoss,
    Loss.RECREATED: DataLoss,
    Loss.PARTITIONS_CHANGED: CheckpointMismatch,
    Loss.STREAM_GONE: StreamMissing,
    Loss.NOT_SELECTED: CheckpointMismatch,
}
_STREAMING_HINTS: Final[Mapping[Loss, str]] = {
    Loss.AGED_OUT: "keep messages longer (retention), or read more often",
    Loss.SHORTER: NEW_QUERY_HINT,
    Loss.RECREATED: NEW_QUERY_HINT,
    Loss.PARTITIONS_CHANGED: NEW_QUERY_HINT,
    Loss.STREAM_GONE: f"create the stream again and {NEW_QUERY_HINT}",
    Loss.NOT_SELECTED: (
        "set checkpointLocation to a directory of this query's own, or let stream, subscribe, "
        "subscribePattern or assign name it again"
    ),
}
_BATCH_HINTS: Final[Mapping[Loss, str]] = {
    Loss.AGED_OUT: "set startingOffsets to earliest or to an offset that is stored",
    Loss.SHORTER: "set startingOffsets and endingOffsets to offsets that are stored",
    Loss.RECREATED: "run the query again",
    Loss.PARTITIONS_CHANGED: "run the query again",
    Loss.STREAM_GONE: "create it, or change stream, subscribe or assign",
    Loss.NOT_SELECTED: "change stream, subscribe or assign",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Messages that can no longer be read, and what to do about it. Pickles."""

    loss: Loss
    stream: str
    partition: int
    offset: int
    """The first lost offset."""
    resume_at: int | None
    """The offset at which a query that accepts the loss continues; None: not in this partition."""
    detail: str
    """The description of the loss for users."""

    @property
    def place(self) -> StreamPartition:
        """The partition it is about."""
        return StreamPartition(self.stream, self.partition)

    def error(self, *, streaming: bool) -> SparkSourceError:
        """Return the error for a query that must not lose messages."""
        error = _ERRORS[self.loss](
            self.detail, stream=self.stream, partition=self.partition, offset=self.offset
        )
        hint = (_STREAMING_HINTS if streaming else _BATCH_HINTS)[self.loss]
        error.hint = f"{hint}; with failOnDataLoss=false the query continues {self._onwards}"
        return error

    def warning(self) -> str:
        """Return the warning of a query that accepts the loss."""
        place = f"stream={self.stream!r}, partition={self.partition}, offset={self.offset}"
        accepted = f"failOnDataLoss=false, so the query continues {self._onwards}"
        return f"[{_ERRORS[self.loss].code}] {self.detail} [{place}]: {accepted}"

    @property
    def _onwards(self) -> str:
        return "without it" if self.resume_at is None else f"at offset {self.resume_at}"


def judge_position(
    place: StreamPartition, position: int, log: LogState, *, recreated: bool = False
) -> Finding | None:
    """Return the loss if a query continues at a position; None if there is none.

    Args:
        place: the partition.
        position: the next offset to read.
        log: its present log.
        recreated: the stream was created again since (`Offsets.recreated`).

    Returns:
        The loss. A query that accepts it continues at the earliest message of a stream that was
        created again or cleaned by retention; in a log that lost messages it continues at the end,
        as the messages to come are new, though their offsets are below the position.
    """
    if recreated:
        detail = (
            f"the stream was deleted and created again since it was read up to offset {position}"
        )
        return Finding(Loss.RECREATED, *place, position, log.earliest, detail)
    if position > log.reach:
        return _shorter(place, position, log.reach, log.reach, log)
    if position < log.earliest:
        return _aged_out(place, position, log.earliest)
    return None


def judge_range(wanted: OffsetRange, log: LogState, *, recreated: bool = False) -> Finding | None:
    """Return the loss within a range, or None. Arguments as for `judge_position`.

    Of a range that was read in part, pass the rest.

    Returns:
        The first loss. A query that accepts it reads what `readable` returns.
    """
    if wanted.count <= 0:
        return None
    if recreated:
        detail = (
            f"the stream was deleted and created again before its offsets {wanted.start} to "
            f"{wanted.last} were read"
        )
        return Finding(Loss.RECREATED, *wanted.place, wanted.start, wanted.end, detail)
    if wanted.end > log.reach:
        lost = max(wanted.start, log.reach)
        return _shorter(wanted.place, wanted.end, lost, wanted.end, log)
    if wanted.start < log.earliest:
        return _aged_out(wanted.place, wanted.start, min(log.earliest, wanted.end))
    return None


def readable(wanted: OffsetRange, log: LogState, *, recreated: bool = False) -> OffsetRange:
    """Return the part of a range that can still be read, which may be empty."""
    start = wanted.end if recreated else min(max(wanted.start, log.earliest), wanted.end)
    return replace(wanted, start=start, end=max(start, min(wanted.end, log.reach)))


def judge_gap(wanted: OffsetRange, expected: int, seen: int, earliest: int) -> Finding | None:
    """Return the loss in a gap between the offsets of a range; None if it was compacted.

    Compaction made the gap if older messages are still stored.

    Args:
        wanted: the range.
        expected: the next offset.
        seen: the offset that arrived instead, or the end of the range.
        earliest: the oldest stored offset, fetched after the gap was seen.
    """
    if seen <= expected or earliest <= expected:
        return None
    return _aged_out(wanted.place, expected, min(seen, wanted.end))


def judge_streams(
    positions: Offsets,
    counts: Mapping[str, int],
    selected: Collection[StreamPartition] | None = None,
) -> list[Finding]:
    """Return the partitions of a checkpoint that no longer exist or that options do not name.

    Args:
        positions: the positions of the query.
        counts: number of partitions of each existing stream.
        selected: the partitions that the options name; None: all.
    """
    findings: list[Finding] = []
    for stream in positions.streams:
        places = [place for place in positions if place.stream == stream]
        count = counts.get(stream)
        if count is None:
            first, loss = places[0], Loss.STREAM_GONE
            detail = "the stream, of which the query has read a part, no longer exists"
        elif places[-1].partition >= count:
            first, loss = places[-1], Loss.PARTITIONS_CHANGED
            detail = (
                f"the checkpoint has partition {first.partition}, but the stream now ends at "
                f"partition {count - 1}: it was deleted and created again"
            )
        else:
            findings.extend(_not_selected(positions, places, selected))
            continue
        findings.append(Finding(loss, *first, positions[first], None, detail))
    return findings


def _not_selected(
    positions: Offsets,
    places: Sequence[StreamPartition],
    selected: Collection[StreamPartition] | None,
) -> list[Finding]:
    unselected = [] if selected is None else [place for place in places if place not in selected]
    detail = "the checkpoint has offsets of a partition that the options do not name"
    return [
        Finding(Loss.NOT_SELECTED, *place, positions[place], None, detail)
        for place in unselected[:1]
    ]


def raise_or_warn(
    findings: Sequence[Finding], *, fail_on_data_loss: bool, streaming: bool
) -> list[str]:
    """Raise the first finding, or return the warnings if the query accepts losses.

    Raises:
        SparkSourceError: there is a finding and `fail_on_data_loss` is set.
    """
    if findings and fail_on_data_loss:
        raise findings[0].error(streaming=streaming)
    return [finding.warning() for finding in findings]


def _aged_out(place: StreamPartition, first: int, resume_at: int) -> Finding:
    detail = f"offsets {first} to {resume_at - 1} were removed from the log before they were read"
    return Finding(Loss.AGED_OUT, *place, first, resume_at, detail)


def _shorter(
    place: StreamPartition, wanted_end: int, first: int, resume_at: int, log: LogState
) -> Finding:
    detail = (
        f"offsets up to {wanted_end - 1} were expected, but the log ends before offset "
        f"{log.reach}: it lost messages, or the stream was deleted and created again"
    )
    return Finding(Loss.SHORTER, *place, first, resume_at, detail)
