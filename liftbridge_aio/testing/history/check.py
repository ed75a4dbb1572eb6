"""Judges a history: what was lost, repeated, reordered or invented. Pure.

How it counts, for each reader, or each group, and each partition:

- A value may come as often as it was sent there and not refused, and must come as often as it was
  acked. So if one value is sent twice, two deliveries are no repeat, and of one delivery nobody
  can tell which send it stems from: with one ack and one unknown outcome it counts for the acked.
  Sends of equal values take no part in the check of order for the same reason.
- An acked message that did not come is lost if the reader has finished the partition, or was given
  a later acked message of the same order. Otherwise nothing is known yet: it is unread. Readers are
  taken to begin at the beginning, and the log to keep what it has: what retention or compaction
  removed before it was read shows as lost.
- Order is judged among acked messages alone. What has an unknown outcome may be stored late, when
  the bytes of a broken connection arrive after those of the next one. Only the first delivery of a
  message has a place in the order, so reading a piece again is a repeat and no more. In a group
  each member's deliveries are in order, without those that came twice to the group, since nobody
  can tell which was first; between members there is no order.
- What comes with a value that was never sent to that partition, or not with that key, or only in
  publishes that were refused, is invented. A message that was changed on its way is thus two
  defects: one invented, one lost. Of equal values, some refused, what comes too often is repeated.

Memory and time grow with the number of events; only what is out of order is sorted.
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
    """Judge a history.

    Args:
        history: what happened; it is left as it is.
        guarantee: what the log promises.
        order: among which messages of a producer order is promised.
        groups: the group of each reader that shares its partitions with others. Members of a group
            are judged together; every other reader must see the whole log of its partitions.
        examples: how many defects of each kind to describe; all are counted.
        context: how many events to show before and after them.

    Raises:
        ValueError: a reader that is in no group has the name of one.
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
    """One run over one history."""

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
        if len(seat.reading.seats) > 1:  # which member was first, nobody can tell
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
        """How much there was in each partition."""
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
    """How many sends of unknown outcome must have been stored, as what came tells."""
    uncertain = sends.unknown + sends.unsettled
    if not uncertain:
        return 0
    most = max((reading.seen.get(sends.value, 0) for reading in readings), default=0)
    return max(0, min(uncertain, most - sends.acked))
