"""Timelines: the events of a partition around a defect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from .history import READINGS, Event, EventKind
from .report import TimelineRow

_MOST_OF_ONE_VALUE = 6  # limits the rows about the message itself, which may be very many


class PartitionTimeline:
    """The events of one partition ordered by time, from which excerpts are taken."""

    def __init__(self, events: Sequence[Event], numbers: Iterable[int]) -> None:
        """Sort the events.

        Args:
            events: the history.
            numbers: the numbers of the partition's events, in ascending order.
        """
        self._events = events
        self._positions: dict[int, int] = {}
        given: Counter[str] = Counter()
        self._by_value: dict[bytes, list[int]] = {}
        numbers = list(numbers)
        for number in numbers:
            event = events[number]
            if event.kind is EventKind.DELIVERED:
                self._positions[number] = given[event.actor]
                given[event.actor] += 1
            if event.kind is not EventKind.FINISHED:
                self._by_value.setdefault(event.value, []).append(number)
        self._order = sorted(numbers, key=lambda number: events[number].time)
        self._place = {number: place for place, number in enumerate(self._order)}

    def delivery(self, reader: str, position: int) -> int:
        """Return the number of the event of a reader's delivery at `position`."""
        return next(
            number
            for number, found in self._positions.items()
            if found == position and self._events[number].actor == reader
        )

    def around(
        self,
        anchors: Collection[int],
        value: bytes,
        readers: frozenset[str] | None,
        context: int,
    ) -> tuple[TimelineRow, ...]:
        """Return the rows around some events and all rows about one message.

        Args:
            anchors: numbers of the events.
            value: the value of the message.
            readers: the readers whose deliveries to show; None for all.
            context: the number of events to show before and after each anchor.
        """

        def shown(number: int) -> bool:
            event = self._events[number]
            return event.kind not in READINGS or readers is None or event.actor in readers

        concerned = [number for number in self._by_value.get(value, ()) if shown(number)]
        chosen = {self._place[number] for number in concerned[:_MOST_OF_ONE_VALUE]}
        for number in anchors:
            chosen.add(self._place[number])
            for step in (-1, 1):
                place, left = self._place[number] + step, context
                while left and 0 <= place < len(self._order):
                    if shown(self._order[place]):
                        chosen.add(place)
                        left -= 1
                    place += step
        rows = []
        previous: int | None = None
        for place in sorted(chosen):
            number = self._order[place]
            gap = previous is not None and any(
                shown(between) for between in self._order[previous + 1 : place]
            )
            event = self._events[number]
            about = event.kind is not EventKind.FINISHED and event.value == value
            rows.append(TimelineRow(event, self._positions.get(number), about, gap))
            previous = place
        return tuple(rows)


def timelines(
    events: Sequence[Event], partitions: Collection[int]
) -> Mapping[int, PartitionTimeline]:
    """Create the timelines of some partitions."""
    numbers: dict[int, list[int]] = {partition: [] for partition in partitions}
    for number, event in enumerate(events):
        if event.partition in numbers:
            numbers[event.partition].append(number)
    return {
        partition: PartitionTimeline(events, of_partition)
        for partition, of_partition in numbers.items()
    }
