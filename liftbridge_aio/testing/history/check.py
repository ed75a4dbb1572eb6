"""Checks a history for lost, repeated, reordered and invented messages. Pure.

Rules, applied to each reader (or group) and partition:

- A value must be delivered at least as often as it was acked, and at most as often as it was sent
  and not refused. If a value is sent twice, two deliveries are therefore no repeat. A single
  delivery of it cannot be attributed to one of the sends: if one was acked and the outcome of the
  other is unknown, it counts for the acked one. For the same reason values sent more than once are
  excluded from the order check.
- An acked message that was not delivered is lost if the reader has finished the partition or has
  received a later acked message of the same sequence. Otherwise it is unread. The check assumes
  that readers start at the beginning and that the log deletes nothing: messages removed by
  retention or compaction before they were read are reported as lost.
- Only acked messages are checked for order. A message with an unknown outcome may be stored late,
  when the bytes of a broken connection arrive after those of the next one. Only the first delivery
  of a message counts, so a range that is read again is a repeat and not a reordering. In a group,
  order is checked within each member's deliveries and not between members. Messages delivered to
  the group more than once are excluded, because the first delivery cannot be determined.
- A delivery is invented if its value was never sent to that partition, not with that key, or only
  in refused publishes. A message that was changed in transit is therefore two defects: one
  invented, one lost. If only some of several sends of a value were refused, surplus deliveries are
  repeats.

Memory and time are linear in the number of events; only sequences that are out of order are sorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from liftbridge_aio._core.arguments import check_integer

from .findings import Findings
from .history import Event, EventKind, History
from .order import displaced, out_of_order_with
from .readings import OrderedSequence, Reading, Readings, Seat, sequence_key
from .report import DefectKind, Guarantee, HistoryCounts, HistoryReport, OrderScope
from .sends import Ledger, Sends, enter_sends, settle_sends


def check_history(
    history: History,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    *,
    order: OrderScope = OrderScope.PARTITION,
    groups: Mapping[str, str] | None = None,
    examples: int = 3,
    context: int = 4,
) -> HistoryReport:
    """Check a history for delivery defects.

    Args:
        history: the events to check; not modified.
        guarantee: the delivery guarantee to check.
        order: the scope in which the messages of one producer must be in order.
        groups: the group of each reader that shares its partitions with others. Members of a group
            are checked together; every other reader must receive the whole log of its partitions.
        examples: the number of defects of each kind to describe; all are counted.
        context: the number of events to show before and after each defect.

    Raises:
        ValueError: a reader outside all groups has the name of a group.
    """
    check_integer(examples, "examples")
    check_integer(context, "context")
    check = _Check(history.events, order, groups or {}, examples)
    return HistoryReport(
        guarantee,
        order,
        check.counts(),
        check.findings.described(history.events, context),
        tuple(history.torn),
    )


class _Check:
    """A single check of one history."""

    def __init__(
        self,
        events: Sequence[Event],
        order: OrderScope,
        groups: Mapping[str, str],
        examples: int,
    ) -> None:
        self._order = order
        self._unread: Counter[int] = Counter()
        self._ledger: Ledger = enter_sends(events)
        self._readings = Readings(groups)
        self.findings = Findings(examples)
        self._judge_outcomes(events, settle_sends(self._ledger, events))
        self._judge_deliveries(events)
        for reading in self._readings:
            for seat in reading.seats:
                for sequence in seat.sequences.values():
                    self._check_order(seat, sequence)
            self._judge_losses(reading)
        self._find_partitions_without_readers()

    def _judge_outcomes(self, events: Sequence[Event], unfounded: Iterable[int]) -> None:
        for number in unfounded:
            event = events[number]
            if self.findings.count(DefectKind.UNFOUNDED, event.partition):
                sends = self._ledger.get(event.partition, {}).get(event.value)
                self.findings.describe_unfounded(number, event, sends)

    def _judge_deliveries(self, events: Sequence[Event]) -> None:
        delivered, finished = EventKind.DELIVERED, EventKind.FINISHED
        for kind, _, reader, partition, value, key, _ in events:
            if kind is delivered:
                seat = self._readings.seat(reader, partition)
                self._judge_delivery(seat, value, key)
                seat.position += 1
            elif kind is finished:
                self._readings.seat(reader, partition).reading.finished = True

    def _judge_delivery(self, seat: Seat, value: bytes, key: bytes | None) -> None:
        partition = seat.reading.partition
        sends = self._ledger.get(partition, {}).get(value)
        if sends is None or not sends.allowed or not (key is None or sends.had_key(key)):
            if self.findings.count(DefectKind.INVENTED, partition):
                self.findings.describe_invented(seat, value, key, self._ledger)
            return
        count = seat.reading.seen.get(value, 0) + 1
        seat.reading.seen[value] = count
        if count > sends.allowed and self.findings.count(DefectKind.REPEATED, partition):
            self.findings.describe_repeated(seat, sends, count)
        if count == 1 and (sequence := sequence_key(sends, self._order)) is not None:
            seat.enter(sequence, sends)

    def _check_order(self, seat: Seat, sequence: OrderedSequence) -> None:
        if len(seat.reading.seats) > 1:  # the first delivery cannot be determined
            sequence = sequence.without_repeats(seat.reading.seen)
        ranks = sequence.ranks()
        misplaced = displaced(ranks)
        for place in misplaced:
            if self.findings.count(DefectKind.REORDERED, seat.reading.partition):
                other = out_of_order_with(place, ranks, frozenset(misplaced))
                self.findings.describe_reordered(seat, sequence, place, other)

    def _judge_losses(self, reading: Reading) -> None:
        partition, seen = reading.partition, reading.seen
        furthest = reading.furthest()
        for value, sends in self._ledger.get(partition, {}).items():
            missing = sends.acked - seen.get(value, 0)
            if missing <= 0:
                continue
            sequence = sequence_key(sends, self._order)
            passed = sequence is not None and furthest.get(sequence, -1) > sends.number
            if not passed and not reading.finished:
                self._unread[partition] += missing
            elif self.findings.count(DefectKind.LOST, partition, missing):
                self.findings.describe_lost(reading, sends, sequence)

    def _find_partitions_without_readers(self) -> None:
        read = {reading.partition for reading in self._readings}
        for partition, of_value in self._ledger.items():
            if partition not in read:
                self._unread[partition] += sum(sends.acked for sends in of_value.values())

    def counts(self) -> tuple[tuple[int, HistoryCounts], ...]:
        """The counts of each partition."""
        readings: dict[int, list[Reading]] = {}
        for reading in self._readings:
            readings.setdefault(reading.partition, []).append(reading)
        partitions = self._ledger.keys() | readings.keys() | self.findings.partitions()
        return tuple(
            (partition, self._counts_of(partition, readings.get(partition, [])))
            for partition in sorted(partitions)
        )

    def _counts_of(self, partition: int, readings: Sequence[Reading]) -> HistoryCounts:
        all_sends = self._ledger.get(partition, {}).values()
        return HistoryCounts(
            sent=sum(sends.sent for sends in all_sends),
            acked=sum(sends.acked for sends in all_sends),
            unknown=sum(sends.unknown for sends in all_sends),
            refused=sum(sends.refused for sends in all_sends),
            unsettled=sum(sends.unsettled for sends in all_sends),
            unknown_stored=sum(_unknown_stored(sends, readings) for sends in all_sends),
            delivered=sum(reading.delivered for reading in readings),
            unread=self._unread[partition],
            **self.findings.counts(partition),
        )


def _unknown_stored(sends: Sends, readings: Iterable[Reading]) -> int:
    """Count the sends of unknown outcome that the deliveries show to be stored."""
    uncertain = sends.unknown + sends.unsettled
    if not uncertain:
        return 0
    most = max((reading.seen.get(sends.value, 0) for reading in readings), default=0)
    return max(0, min(uncertain, most - sends.acked))
