"""A cluster as one member of a group sees it: brokers die and lag, members come and go."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio.errors import ServerError
from liftbridge_aio.groups.core.group_plan import Assignment
from liftbridge_aio.groups.core.steps import (
    Answer,
    Call,
    Done,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    Locate,
    Located,
    Refused,
    Report,
)
from liftbridge_aio.model import StreamPartition

CONSUMER_TIMEOUT = 2.0
COORDINATOR_TIMEOUT = 1.0
BROKERS = ("a", "b", "c")
PARTITIONS = 4


@dataclass
class View:
    """A broker's view of the group; without members, there is no group."""

    coordinator: str = ""
    epoch: int = 0
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The streams of each member; a deleted one is taken from all."""
    streams: Mapping[str, int] = field(default_factory=lambda: {"s": 0, "t": 0})
    """The creation times of the streams that exist."""

    def share(self, consumer: str) -> Assignment:
        """The partitions of a member."""
        return frozenset(
            StreamPartition(stream, number)
            for stream in self.streams
            for order in [sorted(each for each, its in self.members.items() if stream in its)]
            for number in range(PARTITIONS)
            if order and order[number % len(order)] == consumer
        )


@dataclass
class SimulatedGroup:
    """The group in the cluster's log, what each broker has seen of it, and when members expire."""

    now: float = 0.0
    log: list[View] = field(default_factory=lambda: [View()])
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 0))
    dead: set[str] = field(default_factory=set)
    lagging: set[str] = field(default_factory=set)
    expires: dict[str, float] = field(default_factory=dict)
    reports: dict[str, float] = field(default_factory=dict)
    index: int = 0
    fooled: bool = False
    """The last heartbeat was taken by a broker that had not seen all."""

    @property
    def group(self) -> View:
        """The group as it is."""
        return self.log[-1]

    def change(
        self, *, coordinator: str = "", members: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        """Write a change to the log."""
        group = copy.copy(self.group)
        created = not group.members
        if members is not None:
            group.members = members
        self.index += 1
        group.epoch = 0 if created else self.index
        group.coordinator = coordinator or group.coordinator
        if not group.members:
            group = View(streams=group.streams)
            self.expires.clear()
        self.reports.clear()
        self.append(group)

    def append(self, view: View) -> None:
        """Write to the log, which brokers see unless they are dead or lag."""
        self.log.append(view)
        for broker in BROKERS:
            if broker not in self.dead | self.lagging:
                self.catch_up(broker)

    def catch_up(self, broker: str) -> None:
        """A broker has seen all."""
        self.seen[broker] = len(self.log) - 1

    def view(self, broker: str) -> View:
        """Return the state of the group that a broker has seen."""
        return self.log[self.seen[broker]]

    def delete_stream(self) -> None:
        """The stream "t" is deleted, and leaves its group, whose epoch changes."""
        streams = {name: at for name, at in self.group.streams.items() if name != "t"}
        self.append(replace(self.group, streams=streams))
        if any("t" in its for its in self.group.members.values()):
            self.change(members={each: its - {"t"} for each, its in self.group.members.items()})

    def create_stream(self) -> None:
        """The stream "t" is created again, of which the group takes no notice."""
        self.index += 1
        self.append(replace(self.group, streams={**self.group.streams, "t": self.index}))

    def join(self, consumer: str, streams: frozenset[str] | None = None) -> None:
        """A member comes, with all streams that exist or with some."""
        if streams is None:
            streams = frozenset(self.group.streams)
        members = {**self.group.members, consumer: streams}
        living = [broker for broker in BROKERS if broker not in self.dead]
        first = not self.group.members
        self.change(coordinator=(living or BROKERS)[0] if first else "", members=members)
        self.expires[consumer] = self.now + CONSUMER_TIMEOUT

    def take_out(self, consumer: str) -> None:
        """A member goes."""
        self.expires.pop(consumer, None)
        left = {each: its for each, its in self.group.members.items() if each != consumer}
        self.change(members=left)

    def elect(self) -> None:
        """Another broker coordinates, and gives every member its time again."""
        living = [one for one in BROKERS if one not in self.dead | {self.group.coordinator}]
        if living and self.group.members:
            self.change(coordinator=living[0])
            self.expires = dict.fromkeys(self.group.members, self.now + CONSUMER_TIMEOUT)

    def pass_time(self, seconds: float, *, alive: frozenset[str]) -> None:
        """Let members expire; those that are `alive` are heard."""
        self.now += seconds
        if self.group.coordinator in self.dead:
            return
        for consumer in sorted(self.group.members):
            if consumer in alive:
                self.expires[consumer] = self.now + CONSUMER_TIMEOUT
            elif self.expires.get(consumer, 0.0) <= self.now:
                self.take_out(consumer)

    # Calls

    def answer(self, call: Call) -> Answer:
        """Carry out a call of the member."""
        living = [broker for broker in BROKERS if broker not in self.dead]
        if not living:
            return lost()
        match call:
            case Join():
                return self._join(call, self.view(living[0]).streams)
            case Leave():
                if call.consumer not in self.group.members:
                    return refused(GroupRefusal.NOT_A_MEMBER)
                self.take_out(call.consumer)
                return Done()
            case Fetch():
                return self._fetch(call)
            case Locate():
                return self._locate(call.coordinator if call.answers else living[0])
            case Report():
                return self._report(call)

    def _join(self, call: Join, known: Mapping[str, int]) -> Answer:
        if call.consumer in self.group.members:
            return refused(GroupRefusal.ALREADY_MEMBER)
        named = frozenset(known if call.again else ("s", "t"))
        if not named <= self.group.streams.keys():
            return refused(GroupRefusal.LOST if call.again else GroupRefusal.NO_STREAM)
        self.join(call.consumer, named)
        group = self.group
        created = {name: known.get(name, -1) for name in ("s", "t")}
        return Joined(
            group.coordinator, group.epoch, CONSUMER_TIMEOUT, COORDINATOR_TIMEOUT, created
        )

    def _locate(self, asked: str) -> Answer:
        if asked in self.dead:
            return lost()
        view = self.view(asked)
        if not view.members:
            return refused(GroupRefusal.NO_GROUP)
        return Located(view.coordinator, view.epoch, view.streams)

    def _fetch(self, call: Fetch) -> Answer:
        if call.coordinator in self.dead:
            return lost()
        view = self.view(call.coordinator)
        if not view.members:
            return refused(GroupRefusal.NO_GROUP)
        if view.coordinator != call.coordinator:
            return refused(GroupRefusal.NOT_COORDINATOR)
        if view.epoch != call.epoch:
            return refused(GroupRefusal.OTHER_EPOCH)
        if call.consumer not in view.members:
            return refused(GroupRefusal.NOT_A_MEMBER)
        self.fooled = view is not self.group
        if call.consumer in self.group.members:
            self.expires[call.consumer] = self.now + CONSUMER_TIMEOUT
        return Fetched(view.share(call.consumer))

    def _report(self, call: Report) -> Answer:
        group = self.group
        if not group.members:
            return refused(GroupRefusal.NO_GROUP)
        if (group.coordinator, group.epoch) != (call.coordinator, call.epoch):
            return refused(GroupRefusal.OTHER_EPOCH)
        if call.consumer not in group.members:
            return refused(GroupRefusal.NOT_A_MEMBER)
        # The other members of the model see what this one sees.
        self.elect()
        if self.group.coordinator == call.coordinator:
            return refused(GroupRefusal.NO_CANDIDATES)
        return Done()


def refused(why: GroupRefusal) -> Refused:
    """A call that a broker has refused."""
    return Refused(why, ServerError(why.value))


def lost() -> Refused:
    """A call that nobody has answered."""
    return Refused(GroupRefusal.LOST, ServerError("no answer"), unknown=True)
