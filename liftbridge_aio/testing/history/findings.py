"""Counts defects and describes the first of each kind with a timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .history import Event
from .readings import OrderedSequence, Reading, Seat, SequenceKey
from .report import Defect, DefectKind, show_value
from .sends import Ledger, Sends
from .timeline import PartitionTimeline, timelines


@dataclass(frozen=True, slots=True)
class _Finding:
    """A defect whose timeline has not been built yet."""

    kind: DefectKind
    partition: int
    value: bytes
    explanation: str
    reader: str | None = None
    position: int | None = None
    readers: frozenset[str] | None = None
    """The readers whose deliveries the timeline shows; None for all."""
    events: tuple[int, ...] = ()
    """Numbers of the events at the centre of the timeline."""
    deliveries: tuple[tuple[str, int], ...] = ()
    """More events at its centre, as pairs of reader and position."""


class Findings:
    """The number of defects, and descriptions of the first of each kind."""

    def __init__(self, examples: int) -> None:
        """Create an empty collection.

        Args:
            examples: the number of defects of each kind to describe.
        """
        self._examples = examples
        self._counts: dict[DefectKind, Counter[int]] = {kind: Counter() for kind in DefectKind}
        self._findings: dict[DefectKind, list[_Finding]] = {kind: [] for kind in DefectKind}

    def counts(self, partition: int) -> dict[str, int]:
        """The number of defects of each kind in a partition."""
        return {kind.value: counter[partition] for kind, counter in self._counts.items()}

    def partitions(self) -> set[int]:
        """The partitions that have defects."""
        return {partition for counter in self._counts.values() for partition in counter}

    def count(self, kind: DefectKind, partition: int, number: int = 1) -> bool:
        """Count defects and return True if one of them is to be described."""
        self._counts[kind][partition] += number
        return len(self._findings[kind]) < self._examples

    def describe_unfounded(self, number: int, event: Event, sends: Sends | None) -> None:
        """Describe an outcome that belongs to no send."""
        kind, _, producer, partition, value, _, _ = event
        if sends is None:
            reason = "it was never sent to this partition"
        else:
            reason = f"of the {sends.sent:,} sends of this value {producer} has none open"
        explanation = f"{producer} recorded {kind.value}, but {reason}"
        self._keep(_Finding(DefectKind.UNFOUNDED, partition, value, explanation, events=(number,)))

    def describe_invented(
        self, seat: Seat, value: bytes, key: bytes | None, ledger: Ledger
    ) -> None:
        """Describe the delivery at the seat's position, whose message was never sent like that."""
        sends = ledger.get(seat.reading.partition, {}).get(value)
        elsewhere = sorted(partition for partition in ledger if value in ledger[partition])
        if sends is not None and not sends.allowed:
            explanation = "delivered, though its publish was refused"
        elif sends is not None:
            explanation = f"delivered with the key {key!r}, sent with {sends.key!r}"
        elif elsewhere:
            explanation = f"delivered here, sent to partition {elsewhere[0]}"
        else:
            explanation = "delivered, never sent"
        self._keep_delivery(DefectKind.INVENTED, seat, value, explanation)

    def describe_repeated(self, seat: Seat, sends: Sends, count: int) -> None:
        """Describe the delivery at the seat's position, which is one too many."""
        explanation = f"delivery number {count:,} of a value that was sent {_times(sends.sent)}"
        if sends.refused:
            explanation += f" and refused {_times(sends.refused)}"
        self._keep_delivery(DefectKind.REPEATED, seat, sends.value, explanation)

    def describe_reordered(
        self, seat: Seat, sequence: OrderedSequence, place: int, other: int
    ) -> None:
        """Describe a delivery that is out of order, both given by their places in the sequence."""
        late = place > other
        position, other_position = sequence.positions[place], sequence.positions[other]
        explanation = (
            f"delivered {'after' if late else 'before'} {show_value(sequence.sends[other].value)} "
            f"(position {other_position:,}), which {sequence.sends[place].producer} sent "
            f"{'later' if late else 'earlier'}; both were acked"
        )
        self._keep(
            _Finding(
                DefectKind.REORDERED,
                seat.reading.partition,
                sequence.sends[place].value,
                explanation,
                seat.reader,
                position,
                frozenset({seat.reader}),
                deliveries=((seat.reader, position), (seat.reader, other_position)),
            )
        )

    def describe_lost(self, reading: Reading, sends: Sends, sequence: SequenceKey | None) -> None:
        """Describe an acked message that was not delivered.

        Args:
            reading: the reading in which it is missing.
            sends: the message.
            sequence: the key of its ordered sequence, if it has one.
        """
        count = reading.seen.get(sends.value, 0)
        explanation = f"acked {_times(sends.acked)}, delivered {_times(count)}"
        passing = None if sequence is None else reading.passing(sequence, sends.number)
        position = reading.delivered
        deliveries: tuple[tuple[str, int], ...] = ()
        if passing is not None:
            seat, position, later = passing
            deliveries = ((seat.reader, position),)
            explanation += (
                f"; {show_value(later.value)}, which {sends.producer} sent later, came at "
                f"position {position:,}"
            )
        if reading.finished:
            explanation += "; the partition was read to its end"
        self._keep(
            _Finding(
                DefectKind.LOST,
                reading.partition,
                sends.value,
                explanation,
                reading.name,
                position,
                reading.members,
                (sends.number,),
                deliveries,
            )
        )

    def _keep_delivery(self, kind: DefectKind, seat: Seat, value: bytes, explanation: str) -> None:
        self._keep(
            _Finding(
                kind,
                seat.reading.partition,
                value,
                explanation,
                seat.reader,
                seat.position,
                seat.reading.members,
                deliveries=((seat.reader, seat.position),),
            )
        )

    def _keep(self, finding: _Finding) -> None:
        self._findings[finding.kind].append(finding)

    def described(self, events: Sequence[Event], context: int) -> tuple[Defect, ...]:
        """Return the described defects with their timelines.

        Args:
            events: the history.
            context: the number of events to show before and after.
        """
        found = [finding for findings in self._findings.values() for finding in findings]
        of_partition = timelines(events, {finding.partition for finding in found})
        return tuple(_with_timeline(finding, of_partition, context) for finding in found)


def _with_timeline(
    finding: _Finding, of_partition: Mapping[int, PartitionTimeline], context: int
) -> Defect:
    timeline = of_partition[finding.partition]
    anchors = {*finding.events, *(timeline.delivery(*place) for place in finding.deliveries)}
    rows = timeline.around(anchors, finding.value, finding.readers, context)
    return Defect(
        finding.kind,
        finding.partition,
        finding.reader,
        finding.position,
        finding.value,
        finding.explanation,
        rows,
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
