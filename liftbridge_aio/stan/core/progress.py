"""The progress of a subscription, so that it can go on in another session."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from .start import StartAt


class Place(NamedTuple):
    """A message of a channel: servers keep its timestamp, so the two together name its log."""

    sequence: int
    timestamp: int


class Progress:
    """Messages that were received and are not acked, and where a new session starts.

    A session that is lost takes all subscriptions but durables with it. The new one starts at the
    sequence of the oldest message that is not acked, or behind the newest one: no clock is asked. A
    server that was started without what it had in memory has lost its channels too, and sequences
    begin anew. So a message of the session before, `known`, is looked for first: where another one
    has its sequence, or none comes, the channel is read from its beginning. What the server then
    sends once more, though it was acked, is recognised and acked again.

    Args:
        start: where the subscription started.
        shared: True in a queue group, where messages before the start may be new to this member.
    """

    def __init__(self, start: StartAt, *, shared: bool) -> None:
        self.unacked: dict[int, int] = {}
        """Timestamps of the messages that were received and are not acked, by sequence."""
        self._start = start
        self._shared = shared
        self._last_timestamp = self._last_sequence = 0
        """Of the newest message of this session; 0 before there is one."""
        self._acked_before: Place | None = None
        """Everything before this sequence was acked in sessions before."""
        self._known: Place | None = None
        """A message that was received in a session before: the one there, or the one before it."""
        self._carried: dict[tuple[int, int], bool] = {}
        """Messages that users got in a session before: True once they are acked."""

    def received(self, sequence: int, timestamp: int) -> bool:
        """Take in a message; return False if it is only to be acked, as it was acked before."""
        newest = self._last_timestamp
        if timestamp > newest or (timestamp == newest and sequence > self._last_sequence):
            self._last_timestamp, self._last_sequence = timestamp, sequence
        if self._carried and self._carried.get((sequence, timestamp)):
            return False
        before = self._acked_before
        if before and not self._shared and sequence < before[0] and timestamp <= before[1]:
            return False
        self.unacked[sequence] = timestamp
        return True

    def acked(self, sequence: int, timestamp: int) -> bool:
        """Note that a user acked a message; return True if the server is to be told now.

        An ack of a message of a session before is kept until the message comes again.
        """
        if self._carried and (sequence, timestamp) in self._carried:
            self._carried[sequence, timestamp] = True
        if self.unacked.get(sequence) != timestamp:
            return False
        del self.unacked[sequence]
        return True

    def end_session(self, waiting: Container[int]) -> Place | None:
        """Forget what the session has not acked, and return the message that the log is known by.

        None if nothing was ever received.

        Args:
            waiting: sequences that were received and that users have not got.
        """
        unacked, self.unacked = self.unacked, {}
        newest = Place(self._last_sequence, self._last_timestamp)
        self._last_timestamp = self._last_sequence = 0
        for place in unacked.items():
            if place[0] not in waiting:
                self._carried.setdefault(place, False)
        if unacked:
            self._known = self._acked_before = Place(*min(unacked.items(), key=_by_time))
        elif newest.sequence:
            behind = Place(newest.sequence + 1, newest.timestamp)
            if self._acked_before is None or _by_time(behind) > _by_time(self._acked_before):
                self._known, self._acked_before = newest, behind
        before = self._acked_before
        if before is not None and not self._shared:
            self._carried = {k: v for k, v in self._carried.items() if k[1] >= before.timestamp}
        return self._known

    def next_start(self, found: Place | None, elapsed: int) -> StartAt:
        """Return where to start in a new session.

        Args:
            found: the first message of the log from the sequence of the known one on; None: none
                has come.
            elapsed: nanoseconds since the subscription was opened.
        """
        known, before = self._known, self._acked_before
        if known is None or before is None:
            return self._start.after(elapsed)
        if found is None:  # the log is another and shorter one, or empty, or the server is slow
            return StartAt.earliest()
        if found == known or found.sequence > known.sequence:  # or the known one has expired
            return StartAt.sequence(before.sequence)
        self._known = self._acked_before = None
        self._carried.clear()
        self._start = StartAt.earliest()
        return self._start


def _by_time(place: tuple[int, int]) -> tuple[int, int]:
    return place[::-1]
