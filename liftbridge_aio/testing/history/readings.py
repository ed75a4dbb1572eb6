"""The deliveries of a history by reader and partition, in delivery order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from .report import OrderScope
from .sends import Sends

SequenceKey: TypeAlias = tuple[str, bytes | None]
"""The producer, and the key if order is checked per key."""


def sequence_key(sends: Sends, order: OrderScope) -> SequenceKey | None:
    """Return the ordered sequence this message belongs to; None if it belongs to none."""
    if order is OrderScope.NONE or not sends.ordered:
        return None
    if order is OrderScope.PARTITION:
        return sends.producer, None
    return None if sends.key is None else (sends.producer, sends.key)


class OrderedSequence:
    """The first deliveries of an ordered sequence to one reader, in delivery order."""

    __slots__ = ("positions", "sends")

    def __init__(self) -> None:
        self.sends: list[Sends] = []
        self.positions: list[int] = []

    def without_repeats(self, seen: Mapping[bytes, int]) -> OrderedSequence:
        """Return the messages that were delivered exactly once, given the delivery counts."""
        sequence = OrderedSequence()
        for sends, position in zip(self.sends, self.positions, strict=True):
            if seen[sends.value] == 1:
                sequence.sends.append(sends)
                sequence.positions.append(position)
        return sequence

    def ranks(self) -> list[int]:
        """Return the numbers of the sends, which are their order."""
        return [sends.number for sends in self.sends]


class Seat:
    """The deliveries of one partition to one reader."""

    __slots__ = ("position", "reader", "reading", "sequences")

    def __init__(self, reader: str, reading: Reading) -> None:
        self.reader = reader
        self.reading = reading
        self.position = 0  # of the next delivery
        self.sequences: dict[SequenceKey, OrderedSequence] = {}

    def enter(self, name: SequenceKey, sends: Sends) -> None:
        """Record a first delivery at the current position."""
        sequence = self.sequences.get(name)
        if sequence is None:
            sequence = self.sequences[name] = OrderedSequence()
        sequence.sends.append(sends)
        sequence.positions.append(self.position)


class Reading:
    """The deliveries of one partition to one reader, or to all members of one group."""

    def __init__(self, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.seats: list[Seat] = []
        self.seen: dict[bytes, int] = {}  # deliveries of each value
        self.finished = False

    @property
    def members(self) -> frozenset[str]:
        """The names of its readers."""
        return frozenset(seat.reader for seat in self.seats)

    @property
    def delivered(self) -> int:
        """The number of delivered messages."""
        return sum(seat.position for seat in self.seats)

    def furthest(self) -> dict[SequenceKey, int]:
        """The rank of the latest delivered send of each sequence; earlier ones are passed."""
        furthest: dict[SequenceKey, int] = {}
        for seat in self.seats:
            for name, sequence in seat.sequences.items():
                highest = max(sends.number for sends in sequence.sends)
                furthest[name] = max(furthest.get(name, -1), highest)
        return furthest

    def passing(self, name: SequenceKey, rank: int) -> tuple[Seat, int, Sends] | None:
        """Return the first delivery of a send after `rank`: its seat, position and message."""
        for seat in self.seats:
            sequence = seat.sequences.get(name)
            if sequence is not None:
                for sends, position in zip(sequence.sends, sequence.positions, strict=True):
                    if sends.number > rank:
                        return seat, position, sends
        return None


class Readings:
    """All readings of a history."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        """Create empty readings.

        Args:
            groups: the group of each reader that is a member of one.
        """
        self._groups = groups
        self._group_names = frozenset(groups.values())
        self._seats: dict[tuple[str, int], Seat] = {}
        self._readings: dict[tuple[str, int], Reading] = {}

    def seat(self, reader: str, partition: int) -> Seat:
        """Return the seat of a reader at a partition, creating it if needed.

        Raises:
            ValueError: a reader outside all groups has the name of a group.
        """
        seat = self._seats.get((reader, partition))
        if seat is None:
            name = self._groups.get(reader)
            if name is None:
                name = reader
                if reader in self._group_names:
                    raise ValueError(f"{reader!r} is the name of both a reader and a group")
            reading = self._readings.get((name, partition))
            if reading is None:
                reading = self._readings[name, partition] = Reading(name, partition)
            seat = self._seats[reader, partition] = Seat(reader, reading)
            reading.seats.append(seat)
        return seat

    def __iter__(self) -> Iterator[Reading]:
        return iter(self._readings.values())
