"""The unsettled messages of one partition, and when each is delivered.

Messages arrive in the order of their offsets, with gaps where the log has them. Each is delivered
until it is settled: acked, or dead-lettered. A snapshot has the first unsettled offset and the
unsettled messages after it, so acks in any order survive.

Pure: time is an argument, and the caller carries out what is returned. Each attempt is an object of
its own, so a late answer finds that its attempt has ended.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, TypeVar

from liftbridge_aio.model import Message
from liftbridge_aio.queue.errors import RetryFailed

from .attempt import Attempt, AttemptState, refusal


class Order(enum.Enum):
    """Which messages of a partition wait for earlier ones."""

    NONE = "none"
    """No message waits; one that fails delays no other."""
    KEY = "key"
    """A message waits until all earlier messages with its key are settled; without key, as NONE."""
    PARTITION = "partition"
    """A message waits until all earlier messages of the partition are settled."""


_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up
_ACKED: Final = AttemptState.ACKED
_READY: Final = AttemptState.READY

AttemptT = TypeVar("AttemptT", bound=Attempt)


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The settings of a window; durations in seconds.

    Attributes:
        ack_wait: the time for an answer.
        max_attempts: attempts after which a message is dead-lettered; 0: no limit.
        max_window: offsets between the first unsettled message and the next one to be read.
        order: which messages wait for earlier ones.
        retry: the delay before the next attempt, by the number of the failed one and its error; may
            raise `RetryFailed`.
        move_from: the delay from which a message is moved to a retry stream instead.
        attempts_of: the attempts of a message before it was moved here; None: none were.
    """

    ack_wait: float = 30.0
    max_attempts: int = 5
    max_window: int = 100_000
    order: Order = Order.NONE
    retry: Callable[[int, BaseException | None], float] = lambda _attempt, _error: 0.0
    move_from: float = inf
    attempts_of: Callable[[Message], int] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The settled messages of a partition: all below `next_offset` except those in `unsettled`.

    In a committed reading, the position of a message is the offset of the ack that commits its
    transaction, and several messages may share it. Otherwise the position is the offset.

    Attributes:
        next_offset: the first position with messages that may be unread.
        unsettled: the attempts so far of each unsettled message, by offset.
        positions: the positions of unsettled messages, where they differ from the offsets.
        settled: offsets of settled messages at `next_offset`.
        leased: the number of messages leased to each other member; only shown, never applied.
    """

    next_offset: int
    unsettled: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    settled: frozenset[int] = frozenset()
    leased: Mapping[str, int] = field(default_factory=dict)

    @property
    def base(self) -> int:
        """The position of the first unsettled message."""
        places = (self.positions.get(offset, offset) for offset in self.unsettled)
        return min(places, default=self.next_offset)


class AckWindow(Generic[AttemptT]):
    """The unsettled messages of one partition.

    While `wants_more`, the caller passes the next message of the log to `take`. `take_redelivery`
    returns redeliveries. Both return an attempt that is in flight. The caller dead-letters, or
    moves, the messages in `given_up`, and calls `give_up` for each.

    Args:
        settings: the settings.
        make: makes an attempt.
        snapshot: the messages that former owners have settled; None: none are known.
        suspects: the number of messages to deliver one at a time. The former owner may have
            crashed, and one of them may be the cause. It ends early once they have taken ack_wait
            together.
    """

    def __init__(
        self,
        settings: WindowSettings,
        make: Callable[[Message], AttemptT],
        snapshot: Snapshot | None = None,
        suspects: int = 0,
    ) -> None:
        self._settings = settings
        self._attempts_of = settings.attempts_of
        self._make = make
        self._keyed = settings.order is not Order.NONE
        self._one_at_a_time = settings.order is Order.PARTITION
        # State
        self.capacity = 0
        """Messages that may be in flight; set by the owner's flow, 0 while it pauses."""
        self.suspects = suspects
        """Messages still to be delivered one at a time; one less with each delivery."""
        self.suspect: AttemptT | None = None
        """The last delivered suspect; its attempt counts even if the process ends during it."""
        self._suspects_until = inf
        """The deadline of the first suspect; the first delivery after it is the last suspect."""
        self.ready: deque[AttemptT] = deque()
        """Attempts to redeliver now: their delay is over, or the message before them is settled."""
        self.given_up: deque[AttemptT] = deque()
        """Attempts that the caller has yet to dead-letter or to move."""
        self.failure: RetryFailed | None = None
        """The first failure of `retry`; its message waits for ever, and the queue stops."""
        self.changes = 0
        """Changes since the last `snapshot`; 0: nothing to store."""
        self._unsettled: OrderedDict[int, AttemptT] = OrderedDict()
        """The current attempt of each unsettled message, by offset, in the order of the log."""
        self._in_flight: OrderedDict[int, AttemptT] = OrderedDict()
        """The attempts in flight, by offset, in the order of deadlines: all have one ack_wait."""
        self._delayed: list[tuple[float, int, AttemptT]] = []
        """A heap of attempts that wait for their next time, with due time and offset."""
        self._line: dict[bytes, deque[AttemptT] | None] = {}
        """The keys of unsettled messages, each with the attempts that wait for the first one."""
        self._known = dict(snapshot.unsettled) if snapshot is not None else {}
        """Unsettled messages of the stored snapshot that were not read yet, with their attempts."""
        self._known_below = snapshot.next_offset if snapshot is not None else 0
        """Below it, messages that are not in `_known` were settled by a former owner."""
        self._next: int | None = None if snapshot is None else snapshot.base
        """The offset after the last message that was read; None before the first one."""
        self._far = -1
        """The offset at which reading pauses, as last computed; it only moves up."""

    # Contents

    @property
    def in_flight(self) -> int:
        """The number of unanswered deliveries."""
        return len(self._in_flight)

    @property
    def unsettled(self) -> int:
        """The number of messages that were read and are not settled."""
        return len(self._unsettled)

    @property
    def span(self) -> int:
        """Offsets between the first unsettled message and the next one to be read."""
        base = self.base
        return 0 if base is None or self._next is None else self._next - base

    @property
    def base(self) -> int | None:
        """The first offset that is not settled; None before the first message."""
        return next(iter(self._unsettled), self._next)

    @property
    def oldest(self) -> AttemptT | None:
        """The attempt of the first unsettled message."""
        return next(iter(self._unsettled.values()), None)

    def attempts(self) -> list[AttemptT]:
        """Return the current attempt of each unsettled message, in the order of the log."""
        return list(self._unsettled.values())

    @property
    def _free(self) -> int:
        capacity = min(self.capacity, 1) if self.suspects else self.capacity
        return capacity - len(self._in_flight)

    @property
    def has_ready(self) -> bool:
        """True if there is a redelivery."""
        return bool(self.ready) and self._free > 0

    @property
    def wants_more(self) -> bool:
        """True if `take` may be called."""
        return not self.ready and len(self._in_flight) < self.capacity and self.may_take

    @property
    def may_take(self) -> bool:
        """True if `take` may be called, apart from `capacity`."""
        if (self.suspects and self._in_flight) or (self._one_at_a_time and self._unsettled):
            return False
        return self._next is None or self._next < self._far or self._is_short()

    def _is_short(self) -> bool:
        """Return True if the window is shorter than `max_window`."""
        base = self.base
        if base is None or self._next is None:
            return True
        self._far = base + self._settings.max_window
        return self._next < self._far

    def next_at(self) -> float:
        """Return when `tick` is due: at the first deadline or due time."""
        at = inf
        for attempt in self._in_flight.values():
            at = attempt.deadline
            break
        if self._delayed and self._delayed[0][0] < at:
            return self._delayed[0][0]
        return at

    # Deliveries

    def take(self, message: Message, now: float) -> AttemptT | None:
        """Take the next message of the log; return its attempt if it is delivered now."""
        offset = message.offset
        attempts = 0
        if offset < self._known_below:
            found = self._known.pop(offset, None)
            if found is None:
                self._next = max(offset + 1, self._next or 0)
                return None  # settled
            attempts = found
        elif self._next is not None and offset < self._next:
            return None  # a repeat: the reader was moved back
        self._next = offset + 1
        return self._begin(message, attempts, now)

    def _begin(self, message: Message, attempts: int, now: float) -> AttemptT | None:
        if self._attempts_of is not None:
            attempts = max(attempts, self._attempts_of(message))
        attempt = self._make(message)
        self._unsettled[message.offset] = attempt
        attempt.attempt = attempts
        if self._keyed and self._is_blocked(attempt):
            attempt.state = AttemptState.BLOCKED
            return None
        return self._deliver(attempt, now)

    def skip(self, message: Message) -> None:
        """Count the next message of the log as settled."""
        self._known.pop(message.offset, None)
        self._next = message.offset + 1
        self.changes += 1

    def take_redelivery(self, now: float) -> AttemptT | None:
        """Return the next redelivery, or a message that was blocked; None if there is none."""
        while self.ready and self._free > 0:
            attempt = self._deliver(self.ready.popleft(), now)
            if attempt is not None:
                return attempt
        return None

    def _deliver(self, attempt: AttemptT, now: float) -> AttemptT | None:
        settings = self._settings
        if 0 < settings.max_attempts <= attempt.attempt:
            attempt.state = AttemptState.GIVING_UP
            self.given_up.append(attempt)
            return None
        attempt.attempt += 1
        attempt.state = _IN_FLIGHT
        attempt.deadline = now + settings.ack_wait
        self._in_flight[attempt.message.offset] = attempt
        if self.suspects:
            self._suspects_until = min(self._suspects_until, attempt.deadline)
            self.suspects = self.suspects - 1 if now < self._suspects_until else 0
            self.suspect = attempt
        return attempt

    # Answers

    def ack(self, attempt: AttemptT, *, holds_key: bool = False) -> None:
        """Settle a message.

        Args:
            attempt: the attempt.
            holds_key: later messages that wait for this one wait until `release_key`.
        """
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        attempt.state = _ACKED
        offset = attempt.message.offset
        del self._in_flight[offset]
        del self._unsettled[offset]
        self.changes += 1
        if self._keyed and not holds_key:
            self._unblock(attempt)

    def release_key(self, attempt: AttemptT) -> None:
        """Unblock the messages that wait for one that was acked with `holds_key`."""
        if self._keyed:
            self._unblock(attempt)

    def nack(
        self, attempt: AttemptT, now: float, delay: float | None, error: BaseException | None
    ) -> None:
        """Redeliver a message after a delay, or dead-letter it after its last attempt.

        Args:
            attempt: the attempt that failed.
            now: the current time.
            delay: seconds before the next attempt; None: the delay of `retry`.
            error: the reason.
        """
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        self._fail(attempt, AttemptState.NACKED, now, delay, error)

    def reject(self, attempt: AttemptT, error: BaseException | None) -> None:
        """Dead-letter a message without another attempt."""
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        attempt.state = AttemptState.REJECTED
        del self._in_flight[attempt.offset]
        self._begin_to_give_up(self._successor(attempt, error))

    def extend(self, attempt: AttemptT, now: float) -> None:
        """Restart `ack_wait`."""
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        attempt.deadline = now + self._settings.ack_wait
        self._in_flight.move_to_end(attempt.offset)

    def retract(self, attempt: AttemptT, now: float, delay: float) -> None:
        """Undo a delivery that no worker holds; redeliver it after a delay, as the same attempt."""
        if attempt.state is not _IN_FLIGHT:
            return  # dropped since
        attempt.state = AttemptState.DROPPED
        del self._in_flight[attempt.offset]
        following = self._successor(attempt, attempt.error)
        following.attempt -= 1
        if attempt is self.suspect:
            self.suspects += 1
        self._delay(following, now + delay)

    def wait_here(self, attempt: AttemptT) -> None:
        """Delay a message in memory that could not be moved to a retry stream."""
        if attempt.state is AttemptState.GIVING_UP:
            self._delay(attempt, attempt.deadline)

    def give_up(self, attempt: AttemptT) -> None:
        """Settle a message that was dead-lettered or moved."""
        if attempt.state is not AttemptState.GIVING_UP:
            return  # dropped since
        attempt.state = AttemptState.GIVEN_UP
        del self._unsettled[attempt.offset]
        self.changes += 1
        if self._keyed:
            self._unblock(attempt)

    # Time

    def tick(self, now: float) -> list[AttemptT]:
        """Make due attempts ready, and return attempts that were not answered in time."""
        expired = []
        in_flight = self._in_flight
        while in_flight:
            attempt = next(iter(in_flight.values()))
            if attempt.deadline > now:
                break
            error = TimeoutError(f"not answered within {self._settings.ack_wait:g} s")
            self._fail(attempt, AttemptState.EXPIRED, now, None, error)
            expired.append(attempt)
        while self._delayed and self._delayed[0][0] <= now:
            attempt = heappop(self._delayed)[2]
            attempt.state = AttemptState.READY
            self.ready.append(attempt)
        return expired

    def _fail(
        self,
        attempt: AttemptT,
        state: AttemptState,
        now: float,
        delay: float | None,
        error: BaseException | None,
    ) -> None:
        settings = self._settings
        attempt.state = state
        del self._in_flight[attempt.offset]
        following = self._successor(attempt, error)
        if 0 < settings.max_attempts <= attempt.attempt:
            self._begin_to_give_up(following)
            return
        if delay is None:
            try:
                delay = settings.retry(attempt.attempt, error)
            except RetryFailed as failure:
                self.failure = self.failure or failure.at(*_place(attempt))
                self._delay(following, inf)
                return
        if delay >= settings.move_from:
            following.deadline = now + delay
            self._begin_to_give_up(following)
        elif delay > 0:
            self._delay(following, now + delay)
        else:
            self.ready.append(following)

    def _delay(self, attempt: AttemptT, until: float) -> None:
        attempt.state, attempt.deadline = AttemptState.DELAYED, until
        heappush(self._delayed, (until, attempt.offset, attempt))

    def _successor(self, attempt: AttemptT, error: BaseException | None) -> AttemptT:
        """Return a new attempt of the same message, in the same place of `_unsettled`."""
        following = self._make(attempt.message)
        following.attempt, following.error = attempt.attempt, error
        self._unsettled[attempt.offset] = following
        self.changes += 1
        return following

    def _begin_to_give_up(self, attempt: AttemptT) -> None:
        attempt.state = AttemptState.GIVING_UP
        self.given_up.append(attempt)

    # Keys

    def _key(self, attempt: AttemptT) -> bytes:
        return b"" if self._settings.order is Order.PARTITION else attempt.message.key

    def _is_blocked(self, attempt: AttemptT) -> bool:
        """Add a message to the line of its key; return True if others are before it."""
        key = self._key(attempt)
        if not key and self._settings.order is Order.KEY:
            return False
        if key not in self._line:
            self._line[key] = None
            return False
        waiting = self._line[key]
        if waiting is None:
            waiting = self._line[key] = deque()
        waiting.append(attempt)
        return True

    def _unblock(self, attempt: AttemptT) -> None:
        """Make the next message of a key ready, after the one before was settled."""
        key = self._key(attempt)
        if key not in self._line:
            return
        waiting = self._line[key]
        if not waiting:
            del self._line[key]
            return
        following = waiting.popleft()
        following.state = AttemptState.READY
        self.ready.append(following)

    # The end

    def snapshot(self, *, last: bool = False) -> Snapshot | None:
        """Return the settled messages; None before the first message.

        The attempts of messages in flight do not count, except a suspect's: it is alone in flight,
        so if the process ends, it is the cause.

        Args:
            last: the attempt of a suspect does not count either, as the process did not end.
        """
        self.changes = 0
        if self._next is None:
            return None
        unsettled = {
            offset: attempts
            for offset, attempts in self._known.items()
            if self._position_of(offset) >= self._next
        }
        for offset, attempt in self._unsettled.items():
            counts = attempt.state is not AttemptState.IN_FLIGHT or (
                attempt is self.suspect and not last
            )
            unsettled[offset] = attempt.attempt if counts else attempt.attempt - 1
        return self._snapshot(max(self._next, self._known_below), unsettled)

    def _position_of(self, offset: int) -> int:
        return offset

    def _snapshot(self, following: int, unsettled: dict[int, int]) -> Snapshot:
        return Snapshot(following, unsettled)

    def stop(self) -> None:
        """Deliver nothing more; attempts in flight can still be answered."""
        self.capacity = 0
        held = {*self._in_flight.values(), *self.given_up}
        for attempt in self._unsettled.values():
            if attempt not in held and attempt.state is not AttemptState.GIVING_UP:
                attempt.state = AttemptState.DROPPED
        self.ready.clear()
        self._delayed.clear()
        self._line.clear()

    def drop(self) -> None:
        """Drop all messages: the partition was released or lost."""
        self.stop()
        for attempt in self._unsettled.values():
            attempt.state = AttemptState.DROPPED
        self._unsettled.clear()
        self._in_flight.clear()
        self.given_up.clear()


def _place(attempt: Attempt) -> tuple[str, int, int]:
    message = attempt.message
    return message.stream, message.partition, message.offset
