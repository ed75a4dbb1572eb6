"""A group at work: numbered messages are published to all its partitions, and all is watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from liftbridge_aio import Client, StreamOptions
from support.cluster.nodes import BOUND, CURSORS, soon
from support.groups.group_history import History, Place, StepBack
from support.groups.group_members import Group, Member, running
from support.groups.group_publishing import Publishing, publishing

SURROUNDINGS: Final = 10_000_000_000
"""Nanoseconds before and after what went wrong that are told about it."""
LOOK_INTERVAL: Final = 0.05
"""Seconds from one look at a condition to the next."""


@dataclass(slots=True)
class Scene:
    """The operations of a test on a group.

    Attributes:
        group: The group.
        members: Those that take part; take out who is killed.
        places: Every partition that the group reads.
        publishing: What is published.
    """

    group: Group
    members: list[Member]
    places: frozenset[Place]
    publishing: Publishing

    @property
    def history(self) -> History:
        """All that happened."""
        return self.group.history

    @property
    def epoch(self) -> int:
        """The newest epoch that any member knows."""
        shares = (member.share for member in self.members)
        return max((share.epoch for share in shares if share is not None), default=-1)

    async def until(self, what: str, condition: Callable[[], bool], within: float = BOUND) -> float:
        """Wait until it holds; the seconds that took.

        Raises:
            AssertionError: It did not come true in time; the text says how things stand.
        """
        began = time.monotonic()
        while not condition():
            waited = time.monotonic() - began
            assert waited < within, f"not {what} within {within:.1f} s\n{self.describe()}"
            await asyncio.sleep(LOOK_INTERVAL)
        return time.monotonic() - began

    async def settled(self, after: int = -1, within: float = BOUND) -> float:
        """Wait until all members agree on an epoch after this one and on who has what."""
        return await self.until("settled", lambda: self.is_settled(after), within)

    def is_settled(self, after: int = -1) -> bool:
        """Return True if each partition has one owner of one later epoch, and nobody is idle."""
        shares = [member.share for member in self.members]
        if any(share is None or not share.places or share.epoch <= after for share in shares):
            return False
        epochs = {share.epoch for share in shares if share is not None}
        owners = self.history.owned(self._names(), after + 1)
        return len(epochs) == 1 and self._are_single(owners)

    async def served(self, within: float = BOUND) -> None:
        """Wait until each partition's owner has handled a message that is new now."""
        last = self.publishing.sent

        def all_are() -> bool:
            return all(self.served_since(place, last) is not None for place in self.places)

        await self.until("served", all_are, within)

    def served_since(self, place: Place, last: int) -> int | None:
        """When the owner first handled a message with a higher number than `last`."""
        owners = self.history.owned(self._names(), self.epoch).get(place, ())
        times = [self.history.served_at(place, owner, last) for owner in owners]
        return min((at for at in times if at is not None), default=None)

    async def in_sync(self, client: Client) -> None:
        """Wait until every node has every partition, and the positions, in time.

        Where replicas come and go, Liftbridge 1.9.0 may let one lead that lacks what was read.
        """

        async def all_are() -> bool:
            names = (*self.group.streams, CURSORS)
            streams = (await client.fetch_metadata(names)).streams
            return all(
                len(partition.isr) == len(self.group.addresses)
                for name in names
                for partition in streams[name].partitions.values()
            )

        await soon(all_are)

    async def drained(self, within: float = BOUND) -> None:
        """Publish no more; wait until everything was handled, and stored as handled."""
        self.publishing.stop()
        await self.until("all handled", lambda: not self.history.skipped(self.ends), within)
        await self.until("all committed", self.is_committed, within)

    def is_committed(self) -> bool:
        """Return True if the group has committed the ends of all partitions."""
        committed = self.history.committed()
        return all(committed.get(place, -1) >= end for place, end in self.ends.items())

    @property
    def ends(self) -> dict[Place, int]:
        """The last offset of each partition that was published and acked."""
        return self.publishing.ends

    def check(self) -> None:
        """Nothing was skipped, no position says more than is true, and messages are the same."""
        assert set(self.ends) == self.places
        assert self.history.skipped(self.ends) == {}
        early = self.history.committed_too_early()
        assert not early, f"{early[:3]}\n{self.describe()}"
        contradictions = self.history.contradictions()
        assert not contradictions, contradictions[:3]
        values = {(each.place, each.offset): each.value for each in self.history.handled}
        assert {of: values[of] for of in self.publishing.acked} == self.publishing.acked

    def check_commits(self) -> None:
        """No position was ever less than one before, and nothing went wrong for a member."""
        assert self.history.steps_back() == [], self.describe()
        assert {member.name: member.failures for member in self.members if member.failures} == {}

    def describe(self) -> str:
        """Describe the state of the group for a test that fails."""
        skipped = {place: offsets[:5] for place, offsets in self.history.skipped(self.ends).items()}
        lines = [f"{member.name}: {member.share} {member.failures}" for member in self.members]
        behind = {
            place: (self.history.committed().get(place), end) for place, end in self.ends.items()
        }
        lines += [f"skipped: {skipped}", f"committed, end: {behind}"]
        lines += [f"{step}\n{self._around(step)}" for step in self.history.steps_back()]
        return "\n".join(lines)

    def _around(self, step: StepBack) -> str:
        """Describe the commits and assignments around the time of a step back."""
        place, at = step.then.place, step.then.at
        events = [
            (commit.at, f"{self.history.sender(commit)} stored {commit.offset}")
            for commit in self.history.commits
            if commit.place == place
        ]
        events += [
            (share.at, f"{name} has it: {place in share.places}, epoch {share.epoch}")
            for name, shares in self.history.shares.items()
            for share in shares
        ]
        near = sorted(event for event in events if abs(event[0] - at) < SURROUNDINGS)
        return "\n".join(f"  {(when - at) / 1e9:+.3f} {text}" for when, text in near)

    def _names(self) -> list[str]:
        return [member.name for member in self.members]

    def _are_single(self, owners: dict[Place, list[str]]) -> bool:
        return set(owners) == self.places and all(len(each) == 1 for each in owners.values())


@asynccontextmanager
async def at_work(
    client: Client, group: Group, members: Iterable[Member], *, partitions: int
) -> AsyncIterator[Scene]:
    """Make the streams of a group, and let its members handle what is published to them.

    Args:
        client: Publishes and watches.
        group: Its streams do not exist yet.
        members: The first of them makes the group.
        partitions: How many each stream has, with replicas on all brokers. What is handed out is
            on two of them at least, so that it is not lost when one dies.
    """
    await _create(client, group.streams, partitions)
    places = frozenset(
        Place(each, number) for each in group.streams for number in range(partitions)
    )
    members = list(members)
    async with group.watched(client), publishing(client, places) as published, running(members):
        yield Scene(group, members, places, published)


async def _create(client: Client, streams: Sequence[str], partitions: int) -> None:
    options = StreamOptions(min_isr=2)
    for stream in streams:
        await client.create_stream(
            stream, partitions=partitions, replication_factor=-1, options=options
        )
