"""The deliveries of a history by reader and partition, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from .report import OrderScope
from .sends import Sends

SequenceKey: TypeAlias = tuple[str, bytes | None]
"""The producer, and the key if order is promised by key."""


def sequence_key(sends: Sends, order: OrderScope) -> SequenceKey | None:
    """Return the sequence in which this message has a promised place; None if it has none."""
    if order is OrderScope.NONE or not sends.ordered:
        return None
    if order is OrderScope.PARTITION:
        return sends.producer, None
    return None if sends.key is None else (sends.producer, sends.key)


class OrderedSequence:
    """First deliveries to one reader of messages whose order is promised, as delivered."""

    __slots__ = ("positions", "sends")

    def __init__(self) -> None:
        self.sends: list[Sends] = []
        self.positions: list[int] = []

    def without_repeats(self, seen: Mapping[bytes, int]) -> OrderedSequence:
        """Return only messages that were delivered once, given the count of deliveries."""
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
    """One reader at one partition."""

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
    """One partition as one reader saw it, or one group whose members share what there is."""

    def __init__(self, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.seats: list[Seat] = []
        self.seen: dict[bytes, int] = {}  # how often each value came
        self.finished = False

    @property
    def members(self) -> frozenset[str]:
        """The readers it consists of."""
        return frozenset(seat.reader for seat in self.seats)

    @property
    def delivered(self) -> int:
        """How many messages came."""
        return sum(seat.position for seat in self.seats)

    def furthest(self) -> dict[SequenceKey, int]:
        """By sequence, the rank of the latest send delivered: earlier sends were passed."""
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
        """Say which readers share what they read.

        Args:
            groups: the group of each reader that is a member of one.
        """
        self._groups = groups
        self._group_names = frozenset(groups.values())
        self._seats: dict[tuple[str, int], Seat] = {}
        self._readings: dict[tuple[str, int], Reading] = {}

    def seat(self, reader: str, partition: int) -> Seat:
        """The place of a reader at a partition.

        Raises:
            ValueError: a reader outside the groups is called as one of them.
        """
        seat = self._seats.get((reader, partition))
        if seat is None:
            name = self._groups.get(reader)
            if name is None:
                name = reader
                if reader in self._group_names:
                    text = f"{reader!r} is a reader and a group"
                    raise ValueError(text)
            reading = self._readings.get((name, partition))
            if reading is None:
                reading = self._readings[name, partition] = Reading(name, partition)
            seat = self._seats[reader, partition] = Seat(reader, reading)
            reading.seats.append(seat)
        return seat

    def __iter__(self) -> Iterator[Reading]:
        return iter(self._readings.values())
