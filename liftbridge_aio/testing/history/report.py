"""What a check of a history found, in numbers and in words."""

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
    """What may go wrong with messages."""

    LOST = "lost"
    """Acked, and not delivered to a reader that read past its place or to the end."""
    REPEATED = "repeated"
    """Delivered to one reader, or one group, more often than it was sent."""
    REORDERED = "reordered"
    """Delivered to one reader in another order than the producer sent it, both acked."""
    INVENTED = "invented"
    """Delivered and never sent so: not at all, elsewhere, with another key, or refused."""
    UNFOUNDED = "unfounded"
    """The outcome of a publish that was never sent, or that had an outcome before."""


@unique
class Guarantee(Enum):
    """What a log promises about messages that were acked, and what a check therefore forbids.

    The order of what it does deliver, and that nothing is invented, every guarantee includes.
    """

    AT_LEAST_ONCE = "at least once"
    """Nothing acked is lost. Repeats are counted and allowed: publishing with retries has them."""
    AT_MOST_ONCE = "at most once"
    """Nothing is repeated. Losses are counted and allowed."""
    EXACTLY_ONCE = "exactly once"
    """Nothing acked is lost, nothing is repeated. Of unknown outcome means: comes once or not."""

    @property
    def allowed(self) -> frozenset[DefectKind]:
        """What is counted, and no defect."""
        return _ALLOWED[self]


_ALLOWED: Final = {
    Guarantee.AT_LEAST_ONCE: frozenset({DefectKind.REPEATED}),
    Guarantee.AT_MOST_ONCE: frozenset({DefectKind.LOST}),
    Guarantee.EXACTLY_ONCE: frozenset[DefectKind](),
}


@unique
class OrderScope(Enum):
    """Among which messages of one producer order is promised."""

    PARTITION = "per producer and partition"
    KEY = "per producer, partition and key"
    """Messages without a key have no order."""
    NONE = "none"
    """As queues with redelivery have it, or publishing with retries."""


@dataclass(frozen=True, slots=True)
class HistoryCounts:
    """How much there was, in one partition or in all.

    Defects are counted per reader (a group counts as one), so a message that two readers miss is
    lost twice.
    """

    sent: int = 0
    acked: int = 0
    unknown: int = 0
    refused: int = 0
    unsettled: int = 0
    """Sends without an outcome; judged as unknown ones."""
    unknown_stored: int = 0
    """How many of the unknown and unsettled ones some reader was given."""
    delivered: int = 0
    unread: int = 0
    """Acked messages that a reader was not given and has not read past, or that nobody reads.

    It counts reader by reader. Nothing is said about these: end the readings with `finished`.
    """
    lost: int = 0
    repeated: int = 0
    """Deliveries beyond the number of sends."""
    reordered: int = 0
    """The fewest messages without which the rest is in order."""
    invented: int = 0
    """Deliveries."""
    unfounded: int = 0
    """Outcomes."""

    def of(self, kind: DefectKind) -> int:
        """How many there are of a kind."""
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
    """For a delivery: how many this reader was given before it from this partition."""
    concerned: bool
    """True if it concerns the message with the defect."""
    after_gap: bool
    """True if events between it and the row before are left out."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that went wrong, and what happened around it."""

    kind: DefectKind
    partition: int
    reader: str | None
    """The reader, or the group if it was missed by one; None if no reading is concerned."""
    position: int | None
    """How many messages of the partition the reader was given before it, or before it is missed."""
    value: bytes
    explanation: str
    timeline: tuple[TimelineRow, ...]
    """What happened in the partition around it, in the order of time."""

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
    """A history shows defects; its text tells them."""


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The verdict on a history."""

    guarantee: Guarantee
    order: OrderScope
    partitions: tuple[tuple[int, HistoryCounts], ...]
    """The counts of each partition, by its number."""
    findings: tuple[Defect, ...]
    """A few of each kind, forbidden or not; `total` says how many there are."""
    torn: tuple[str, ...] = ()
    """Lines of files that were cut off, see `read_history`."""

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
        """Those findings that the guarantee forbids."""
        return tuple(one for one in self.findings if one.kind not in self.guarantee.allowed)

    def _forbidden(self) -> list[DefectKind]:
        return [kind for kind in DefectKind if kind not in self.guarantee.allowed]

    def raise_for_defects(self, *, allow_unread: bool = False) -> None:
        """Fail a test if the guarantee was broken, or if not everything was judged.

        Args:
            allow_unread: whether acked messages may be left that a reader has not come to.

        Raises:
            HistoryBroken: with the text of this report. It stays short, however much is broken.
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
            verdict = f"not judged: {total.unread:,} acked messages were not read"
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
    """Show a value in few characters."""
    if len(value) <= _LONGEST_VALUE:
        return repr(value)
    return f"{value[:_LONGEST_VALUE]!r}… of {len(value):,} bytes"


def _side_by_side(timeline: tuple[TimelineRow, ...]) -> Iterator[str]:
    """Sends, outcomes and deliveries in columns of their own."""
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
