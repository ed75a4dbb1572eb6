"""The history of a group, from its members and its cursors, and the invariants of it.

Without I/O or a clock: times are Unix nanoseconds of the one machine on which all of it happens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """A partition of a stream."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class Handled:
    """A message was handed to the code of a member."""

    member: str
    place: Place
    offset: int
    value: str
    at: int


@dataclass(frozen=True, slots=True)
class Share:
    """The assignment of a member from a time on, and its epoch."""

    epoch: int
    places: frozenset[Place]
    at: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A position as it was stored: the last offset that was handled."""

    place: Place
    offset: int
    at: int


@dataclass(slots=True)
class Sent:
    """A call of a member to store a position."""

    member: str
    place: Place
    offset: int
    at: int
    until: int | None = None
    """When the server may have stored it at the latest; None while nothing has come back."""


@dataclass(frozen=True, slots=True)
class StepBack:
    """A position that is less than one stored before it."""

    highest: Commit
    then: Commit


@dataclass(slots=True)
class History:
    """All that happened in a group, in the order in which it was told."""

    handled: list[Handled] = field(default_factory=list)
    shares: dict[str, list[Share]] = field(default_factory=lambda: defaultdict(list))
    commits: list[Commit] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def share_of(self, member: str) -> Share | None:
        """Return the last known assignment of a member."""
        shares = self.shares.get(member)
        return shares[-1] if shares else None

    def committed(self) -> dict[Place, int]:
        """The position that each partition has now."""
        return {commit.place: commit.offset for commit in self.commits}

    def handled_offsets(self) -> dict[Place, set[int]]:
        """Return the offsets that any member handled."""
        found: dict[Place, set[int]] = defaultdict(set)
        for each in self.handled:
            found[each.place].add(each.offset)
        return found

    def skipped(self, ends: Mapping[Place, int]) -> dict[Place, list[int]]:
        """Offsets up to the end of each partition that nobody handled."""
        handled = self.handled_offsets()
        missing = {
            place: sorted(set(range(end + 1)) - handled.get(place, set()))
            for place, end in ends.items()
        }
        return {place: offsets for place, offsets in missing.items() if offsets}

    def committed_too_early(self) -> list[Commit]:
        """Positions that say more than had been handled when they were stored."""
        first: dict[Place, dict[int, int]] = defaultdict(dict)
        for each in self.handled:
            first[each.place].setdefault(each.offset, each.at)
        complete_at: dict[Place, list[int]] = {}
        for place, times in first.items():
            latest = 0
            complete_at[place] = []
            while (offset := len(complete_at[place])) in times:
                latest = max(latest, times[offset])
                complete_at[place].append(latest)
        return [
            commit
            for commit in self.commits
            if commit.offset >= len(complete_at.get(commit.place, ()))
            or complete_at[commit.place][commit.offset] > commit.at
        ]

    def contradictions(self) -> list[tuple[Handled, Handled]]:
        """Messages of one offset that were not the same."""
        first: dict[tuple[Place, int], Handled] = {}
        pairs = ((first.setdefault((each.place, each.offset), each), each) for each in self.handled)
        return [(one, other) for one, other in pairs if one.value != other.value]

    def steps_back(self) -> list[StepBack]:
        """Return the commits whose position is less than an earlier one."""
        highest: dict[Place, Commit] = {}
        found = []
        for commit in self.commits:
            before = highest.setdefault(commit.place, commit)
            if commit.offset < before.offset:
                found.append(StepBack(before, commit))
            else:
                highest[commit.place] = commit
        return found

    def sender(self, commit: Commit) -> str | None:
        """Return the member that stored a position; None if no recorded call matches."""
        for sent in self.sent:
            if (
                (sent.place, sent.offset) == (commit.place, commit.offset)
                and sent.at <= commit.at
                and (sent.until is None or commit.at <= sent.until)
            ):
                return sent.member
        return None

    def answered(self, member: str, place: Place, offset: int, until: int) -> None:
        """Take note that a call to store a position is over."""
        for sent in self.sent:
            if (sent.member, sent.place, sent.offset) == (member, place, offset):
                sent.until = sent.until or until

    def owner_at(self, place: Place, at: int, members: Iterable[str]) -> str | None:
        """Return the member, of those given, that was assigned the partition at that time."""
        for member in members:
            known = [share for share in self.shares.get(member, ()) if share.at <= at]
            if known and place in known[-1].places:
                return member
        return None

    def owned(self, members: Iterable[str], epoch: int) -> dict[Place, list[str]]:
        """Return the owners of each partition by that epoch or a later one."""
        owners: dict[Place, list[str]] = defaultdict(list)
        for member in members:
            share = self.share_of(member)
            if share is not None and share.epoch >= epoch:
                for place in share.places:
                    owners[place].append(member)
        return owners

    def served_at(self, place: Place, owner: str, last: int) -> int | None:
        """When the owner, knowing that it is, first handled a message with a number after `last`.

        Values are numbers in the order in which they were published.
        """
        share = self.share_of(owner)
        assert share is not None
        first = None
        for each in reversed(self.handled):
            if each.member == owner:
                if each.at < share.at:
                    break
                if each.place == place and int(each.value) > last:
                    first = each.at
        return first
