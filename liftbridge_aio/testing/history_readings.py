"""Who was given what, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from .history_report import OrderScope
from .history_sends import Sends

LaneName: TypeAlias = tuple[str, bytes | None]
"""The producer, and the key if that counts."""


def lane_of(sends: Sends, order: OrderScope) -> LaneName | None:
    """Among which messages this one has a promised place; None if it has none."""
    if order is OrderScope.NONE or not sends.ordered:
        return None
    if order is OrderScope.PARTITION:
        return sends.producer, None
    return None if sends.key is None else (sends.producer, sends.key)


class Lane:
    """First deliveries to one reader of messages whose order is promised, as they came."""

    __slots__ = ("positions", "sends")

    def __init__(self) -> None:
        self.sends: list[Sends] = []
        self.positions: list[int] = []

    def without_repeats(self, seen: Mapping[bytes, int]) -> Lane:
        """The deliveries of what came once, given how often everything came."""
        lane = Lane()
        for sends, position in zip(self.sends, self.positions, strict=True):
            if seen[sends.value] == 1:
                lane.sends.append(sends)
                lane.positions.append(position)
        return lane

    def ranks(self) -> list[int]:
        """In which order they were sent."""
        return [sends.number for sends in self.sends]


class Seat:
    """One reader at one partition."""

    __slots__ = ("lanes", "position", "reader", "reading")

    def __init__(self, reader: str, reading: Reading) -> None:
        self.reader = reader
        self.reading = reading
        self.position = 0  # of the next delivery
        self.lanes: dict[LaneName, Lane] = {}

    def enter(self, name: LaneName, sends: Sends) -> None:
        """Take a first delivery, at the position that the seat stands at."""
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane()
        lane.sends.append(sends)
        lane.positions.append(self.position)


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

    def furthest(self) -> dict[LaneName, int]:
        """By lane: the rank of the latest send that came; what was sent before it was passed."""
        furthest: dict[LaneName, int] = {}
        for seat in self.seats:
            for name, lane in seat.lanes.items():
                highest = max(sends.number for sends in lane.sends)
                furthest[name] = max(furthest.get(name, -1), highest)
        return furthest

    def passing(self, name: LaneName, rank: int) -> tuple[Seat, int, Sends] | None:
        """The first delivery in a lane of something sent after `rank`: seat, position, message."""
        for seat in self.seats:
            lane = seat.lanes.get(name)
            if lane is not None:
                for sends, position in zip(lane.sends, lane.positions, strict=True):
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
