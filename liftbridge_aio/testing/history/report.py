"""The report of a check: counts, findings and timelines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum, unique
from typing import Final

from liftbridge_aio._core.arguments import check_flags

from .history import OUTCOMES, Event, EventKind

_LONGEST_VALUE: Final = 40


@unique
class DefectKind(Enum):
    """The kind of a delivery defect."""

    LOST = "lost"
    """Acked, but not delivered to a reader that read past it or to the end."""
    REPEATED = "repeated"
    """Delivered to one reader, or one group, more often than it was sent."""
    REORDERED = "reordered"
    """Delivered to one reader in a different order than the producer sent it, both acked."""
    INVENTED = "invented"
    """Delivered, but never sent, sent elsewhere or with another key, or refused."""
    UNFOUNDED = "unfounded"
    """The outcome of a publish that was never sent, or that already had an outcome."""


@unique
class Guarantee(Enum):
    """The delivery guarantee of a log, which decides the defects that a check forbids.

    Every guarantee forbids reordered and invented messages.
    """

    AT_LEAST_ONCE = "at least once"
    """No acked message is lost. Repeats are counted and allowed: retried publishes cause them."""
    AT_MOST_ONCE = "at most once"
    """No message is repeated. Losses are counted and allowed."""
    EXACTLY_ONCE = "exactly once"
    """No acked message is lost and none is repeated. One of unknown outcome comes at most once."""

    @property
    def allowed(self) -> frozenset[DefectKind]:
        """The kinds that are counted but allowed."""
        return _ALLOWED[self]


_ALLOWED: Final = {
    Guarantee.AT_LEAST_ONCE: frozenset({DefectKind.REPEATED}),
    Guarantee.AT_MOST_ONCE: frozenset({DefectKind.LOST}),
    Guarantee.EXACTLY_ONCE: frozenset[DefectKind](),
}


@unique
class OrderScope(Enum):
    """The scope within which the messages of one producer must be in order."""

    PARTITION = "per producer and partition"
    KEY = "per producer, partition and key"
    """Messages without a key are not checked."""
    NONE = "none"
    """No order, as with queues that redeliver or with retried publishes."""


@dataclass(frozen=True, slots=True)
class HistoryCounts:
    """The counts of one partition or of all partitions.

    Defects are counted per reader (a group counts as one reader), so a message that two readers
    miss is counted as lost twice.
    """

    sent: int = 0
    acked: int = 0
    unknown: int = 0
    refused: int = 0
    unsettled: int = 0
    """Sends without an outcome; treated as unknown."""
    unknown_stored: int = 0
    """Unknown and unsettled sends that were delivered to a reader."""
    delivered: int = 0
    unread: int = 0
    """Acked messages that a reader has not reached, or of partitions without a reader.

    Counted per reader. They are not checked; record `finished` at the end of each reading.
    """
    lost: int = 0
    repeated: int = 0
    """Deliveries in excess of the number of sends."""
    reordered: int = 0
    """The smallest number of messages whose removal leaves the rest in order."""
    invented: int = 0
    """Deliveries of messages that were never sent like that."""
    unfounded: int = 0
    """Outcomes that belong to no send."""

    def of(self, kind: DefectKind) -> int:
        """Return the number of defects of a kind."""
        count: int = getattr(self, kind.value)
        return count

    def __add__(self, other: HistoryCounts) -> HistoryCounts:
        return HistoryCounts(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )

    def __str__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in shown if count)


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One event of a timeline."""

    event: Event
    position: int | None
    """For a delivery: the number of earlier deliveries of this partition to this reader."""
    concerned: bool
    """True if it is about the message with the defect."""
    after_gap: bool
    """True if events between the previous row and this one are omitted."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A delivery defect with a timeline of the surrounding events."""

    kind: DefectKind
    partition: int
    reader: str | None
    """The reader, or the group that missed the message; None if the defect is in no reading."""
    position: int | None
    """The number of messages of the partition that the reader received before the defect."""
    value: bytes
    explanation: str
    timeline: tuple[TimelineRow, ...]
    """The surrounding events of the partition, ordered by time."""

    def __str__(self) -> str:
        return "\n".join([self._headline(), *_side_by_side(self.timeline)])

    def _headline(self) -> str:
        place = f"partition {self.partition}"
        if self.reader is not None:
            place += f", reader {self.reader}"
        if self.position is not None:
            place += f", position {self.position:,}"
        return f"{self.kind.value.upper()} {show_value(self.value)} ({place}): {self.explanation}"


class HistoryBroken(AssertionError):
    """Raised for a history with defects; its text is the report."""


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The result of checking a history."""

    guarantee: Guarantee
    order: OrderScope
    partitions: tuple[tuple[int, HistoryCounts], ...]
    """The counts of each partition by partition number."""
    findings: tuple[Defect, ...]
    """The first defects of each kind, forbidden or not; `total` has the counts of all."""
    torn: tuple[str, ...] = ()
    """Truncated last lines of files, see `read_history`."""

    @property
    def total(self) -> HistoryCounts:
        """The counts of all partitions."""
        return sum((counts for _, counts in self.partitions), HistoryCounts())

    @property
    def ok(self) -> bool:
        """True if the guarantee was not violated."""
        total = self.total
        return not any(total.of(kind) for kind in self._forbidden())

    @property
    def complete(self) -> bool:
        """True if each acked message was checked for every reader of its partition, and has one."""
        return not self.total.unread

    @property
    def defects(self) -> tuple[Defect, ...]:
        """The findings that the guarantee forbids."""
        return tuple(one for one in self.findings if one.kind not in self.guarantee.allowed)

    def _forbidden(self) -> list[DefectKind]:
        return [kind for kind in DefectKind if kind not in self.guarantee.allowed]

    def raise_for_defects(self, *, allow_unread: bool = False) -> None:
        """Raise if the guarantee was violated or not every message was checked.

        Args:
            allow_unread: True to allow acked messages that a reader has not reached.

        Raises:
            HistoryBroken: with the text of this report, whose length is bounded.
        """
        check_flags(allow_unread=allow_unread)
        if not self.ok or not (self.complete or allow_unread):
            raise HistoryBroken(str(self))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        total = self.total
        broken = [
            f"{total.of(kind):,} {kind.value}" for kind in self._forbidden() if total.of(kind)
        ]
        if broken:
            verdict = f"broken: {', '.join(broken)}"
        elif not self.complete:
            verdict = f"not checked: {total.unread:,} acked messages were not read"
        else:
            verdict = "holds"
        yield f"The history ({self.guarantee.value}; order: {self.order.value}) {verdict}"
        yield f"  {str(total) or 'nothing happened'}"
        for line in self.torn:
            yield f"  cut off: {line}"
        for defect in self.defects:
            yield ""
            yield str(defect)


def show_value(value: bytes) -> str:
    """Format a value, shortened if it is long."""
    if len(value) <= _LONGEST_VALUE:
        return repr(value)
    return f"{value[:_LONGEST_VALUE]!r}… of {len(value):,} bytes"


def _side_by_side(timeline: tuple[TimelineRow, ...]) -> Iterator[str]:
    """Format a timeline with columns for sends and outcomes and for deliveries."""
    lines = [("sent", "outcome", "delivered"), *map(_cells, timeline)]
    first, second = (max(len(line[column]) for line in lines) + 2 for column in (0, 1))
    for number, line in enumerate(lines):
        text = f"{line[0]:{first}}{line[1]:{second}}{line[2]}"
        if number == 0:
            yield f"    {'time':>14}  {text}"
            continue
        row = timeline[number - 1]
        if row.after_gap:
            yield f"    {'…':>14}"
        yield f"  {'>' if row.concerned else ' '} {row.event.time:14.6f}  {text}".rstrip()


def _cells(row: TimelineRow) -> tuple[str, str, str]:
    event, value = row.event, show_value(row.event.value)
    if event.kind is EventKind.SENT:
        return f"{event.actor}: {value}", "", ""
    if event.kind in OUTCOMES:
        return "", f"{event.kind.value} {value}", ""
    if event.kind is EventKind.FINISHED:
        return "", "", f"{event.actor}: finished"
    offset = "" if event.offset is None else f" (offset {event.offset:,})"
    return "", "", f"{event.actor}: {value} at {row.position:,}{offset}"
