"""The progress of a subscription, so that it can go on in another session."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from .start import StartAt

_MARGIN: Final = 5 * 10**9
"""Nanoseconds by which the clocks of client and server may differ: a start is an age on the wire,
and so much more is asked for."""


class Progress:
    """Messages that were received and are not acked, and where a new session starts.

    A session that is lost takes all subscriptions but durables with it, and a server that was
    started without what it had in memory has lost its channels too: sequences begin anew. So the
    start is the time of the oldest message that is not acked, which is right in every case. What
    the server then sends once more, though it was acked, is recognised and acked again.

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
        self._acked_before: tuple[int, int] | None = None
        """Everything before this message was acked in sessions before."""
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

    def next_start(self, waiting: Container[int], now: int, elapsed: int) -> StartAt:
        """Return where to start in a new session, and forget what the old one has not acked.

        Args:
            waiting: sequences that were received and that users have not got.
            now: Unix nanoseconds.
            elapsed: nanoseconds since the subscription was opened.
        """
        unacked, self.unacked = self.unacked, {}
        last = self._last_sequence, self._last_timestamp
        self._last_timestamp = self._last_sequence = 0
        for place in unacked.items():
            if place[0] not in waiting:
                self._carried.setdefault(place, False)
        reached = [] if self._acked_before is None else [self._acked_before]
        if last[0]:
            reached.append((last[0] + 1, last[1]))
        if unacked:
            before = min(unacked.items(), key=_by_time)
        elif reached:
            before = max(reached, key=_by_time)
        else:
            return self._start.after(elapsed)
        self._acked_before = before
        if not self._shared:
            self._carried = {k: v for k, v in self._carried.items() if k[1] >= before[1]}
        return StartAt.age(now - before[1] + _MARGIN)


def _by_time(place: tuple[int, int]) -> tuple[int, int]:
    return place[::-1]
