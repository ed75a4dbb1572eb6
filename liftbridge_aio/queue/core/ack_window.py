"""The unsettled messages of one partition: what to hand out, when again, and what is committed.

Messages come in the order of their offsets, with gaps where the log has them. Each is handed out
until it is settled: acked, or given up. What is below all unsettled messages is committed; the
snapshot also has what is unsettled above that, so that acks in any order survive.

Pure: the time is an argument, and the caller does what is returned. An attempt is one object, so
an answer that comes too late finds that its attempt has ended.
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
    """The order of a partition's messages that a queue keeps."""

    NONE = "none"
    """Messages are handed out as they come; one that fails delays no other."""
    KEY = "key"
    """Of one key, none is handed out while an earlier one is unsettled; without a key as NONE."""
    PARTITION = "partition"
    """None is handed out while an earlier one of the partition is unsettled."""


_IN_FLIGHT: Final = AttemptState.IN_FLIGHT  # members are slow to look up
_ACKED: Final = AttemptState.ACKED
_READY: Final = AttemptState.READY

AttemptT = TypeVar("AttemptT", bound=Attempt)


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The settings of a window; durations in seconds.

    Attributes:
        ack_wait: the time for an answer.
        max_attempts: attempts after which a message is given up; 0: no limit.
        max_window: offsets between the first unsettled message and the next one to be read.
        order: which messages wait for others.
        retry: the delay before the next attempt, by the number of the failed one and its error; may
            raise `RetryFailed`.
        move_from: a message that is to wait for this long, or longer, is given up here: it is moved
            to where it can wait.
        attempts_of: returns the attempts of a message that was moved; None: there are none.
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
    """The settled messages of a partition: all below `next_offset`, but for those in `unsettled`.

    If it is read committed, a message of a transaction stands at the offset of the ack that commits
    it, its position, and several may stand there.

    Attributes:
        next_offset: the first position of which not everything is known.
        unsettled: offsets of messages that are not settled, and their attempts so far.
        positions: the positions of those where they are not the same.
        settled: offsets of messages at `next_offset` that are settled.
        leased: the number of messages that other members had, by the member; to be shown only.
    """

    next_offset: int
    unsettled: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    settled: frozenset[int] = frozenset()
    leased: Mapping[str, int] = field(default_factory=dict)

    @property
    def base(self) -> int:
        """The first position that is not settled."""
        places = (self.positions.get(offset, offset) for offset in self.unsettled)
        return min(places, default=self.next_offset)


class AckWindow(Generic[AttemptT]):
    """The unsettled messages of one partition.

    `take` takes the next message of the log, while `wants_more`. `take_again` returns what is to be
    handed out again. Both return an attempt that is in flight; `given_up` has messages to be given
    up, each to be followed by `give_up`.

    Args:
        settings: of the window.
        make: makes an attempt.
        snapshot: what a former owner has settled; None: nothing is known.
        suspects: number of messages to hand out one at a time, because the former owner ended
            without a last snapshot, and one of them may have ended it; fewer if they take longer
            than ack_wait together.
    """

    def __init__(
        self,
        settings: WindowSettings,
        make: Callable[[Message], AttemptT],
        snapshot: Snapshot | None = None,
        suspects: int = 0,
    ) -> None:
        self.capacity = 0
        """Messages that may be in flight."""
        self.suspects = suspects
        self.suspect: AttemptT | None = None
        """The last one of the suspects that was handed out."""
        self._suspects_until = inf
        """The time after which there is only one more suspect."""
        self.ready: deque[AttemptT] = deque()
        """Attempts to be handed out again."""
        self.given_up: deque[AttemptT] = deque()
        self.failure: RetryFailed | None = None
        """The first failure of `retry`, whose message waits for ever; the queue is to stop."""
        self.changes = 0
        """Changes since the last `snapshot`."""
        self._settings = settings
        self._attempts_of = settings.attempts_of
        self._make = make
        self._unsettled: OrderedDict[int, AttemptT] = OrderedDict()
        """By offset, in the order of the log."""
        self._in_flight: OrderedDict[int, AttemptT] = OrderedDict()
        """By offset, in the order of deadlines."""
        self._delayed: list[tuple[float, int, AttemptT]] = []
        self._line: dict[bytes, deque[AttemptT] | None] = {}
        """The keys of unsettled messages, and what waits for these."""
        self._keyed = settings.order is not Order.NONE
        self._one_at_a_time = settings.order is Order.PARTITION
        self._known = dict(snapshot.unsettled) if snapshot is not None else {}
        self._known_below = snapshot.next_offset if snapshot is not None else 0
        self._next: int | None = None if snapshot is None else snapshot.base
        self._far = -1
        """An offset up to which the window is not too long."""

    # What it holds

    @property
    def in_flight(self) -> int:
        """Messages that are handed out and not answered."""
        return len(self._in_flight)

    @property
    def unsettled(self) -> int:
        """Messages that were read and are not settled."""
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
        """True if `take_again` returns something."""
        return bool(self.ready) and self._free > 0

    @property
    def wants_more(self) -> bool:
        """True if `take` may be called."""
        return not self.ready and len(self._in_flight) < self.capacity and self.may_take

    @property
    def may_take(self) -> bool:
        """True if nothing but `capacity` keeps `take` from being called."""
        if (self.suspects and self._in_flight) or (self._one_at_a_time and self._unsettled):
            return False
        return self._next is None or self._next < self._far or self._is_short()

    def _is_short(self) -> bool:
        """Return True if the window may become longer."""
        base = self.base
        if base is None or self._next is None:
            return True
        self._far = base + self._settings.max_window
        return self._next < self._far

    def next_at(self) -> float:
        """Return the time at which `tick` has something to do."""
        at = inf
        for attempt in self._in_flight.values():
            at = attempt.deadline
            break
        if self._delayed and self._delayed[0][0] < at:
            return self._delayed[0][0]
        return at

    # Handing out

    def take(self, message: Message, now: float) -> AttemptT | None:
        """Take the next message of the log; return its attempt if it is to be handed out now."""
        offset = message.offset
        attempts = 0
        if offset < self._known_below:
            found = self._known.pop(offset, None)
            if found is None:
                self._next = max(offset + 1, self._next or 0)
                return None  # settled
            attempts = found
        elif self._next is not None and offset < self._next:
            return None  # read before
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
        return self._hand_out(attempt, now)

    def skip(self, message: Message) -> None:
        """Count the next message of the log as settled."""
        self._known.pop(message.offset, None)
        self._next = message.offset + 1
        self.changes += 1

    def take_again(self, now: float) -> AttemptT | None:
        """Return what is to be handed out again, or was blocked; None if there is nothing."""
        while self.ready and self._free > 0:
            attempt = self._hand_out(self.ready.popleft(), now)
            if attempt is not None:
                return attempt
        return None

    def _hand_out(self, attempt: AttemptT, now: float) -> AttemptT | None:
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
            holds_key: later messages of its key, or of the partition, wait until `release_key`.

        Raises:
            AlreadySettled: the attempt was answered before.
            LeaseExpired: the attempt has ended.
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
        """Let later messages follow one that was acked and held its key."""
        if self._keyed:
            self._unblock(attempt)

    def nack(
        self, attempt: AttemptT, now: float, delay: float | None, error: BaseException | None
    ) -> None:
        """Hand a message out again, or give it up after its last attempt.

        Args:
            attempt: the attempt that failed.
            now: the current time.
            delay: seconds before the next attempt; None: as the settings say.
            error: why it failed.

        Raises:
            AlreadySettled: the attempt was answered before.
            LeaseExpired: the attempt has ended.
        """
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        self._fail(attempt, AttemptState.NACKED, now, delay, error)

    def reject(self, attempt: AttemptT, error: BaseException | None) -> None:
        """Give up a message without another attempt.

        Raises:
            AlreadySettled: the attempt was answered before.
            LeaseExpired: the attempt has ended.
        """
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        attempt.state = AttemptState.REJECTED
        del self._in_flight[attempt.offset]
        self._begin_to_give_up(self._successor(attempt, error))

    def extend(self, attempt: AttemptT, now: float) -> None:
        """Begin the time for an answer again.

        Raises:
            AlreadySettled: the attempt was answered before.
            LeaseExpired: the attempt has ended.
        """
        if attempt.state is not _IN_FLIGHT:
            raise refusal(attempt)
        attempt.deadline = now + self._settings.ack_wait
        self._in_flight.move_to_end(attempt.offset)

    def take_back(self, attempt: AttemptT, now: float, delay: float) -> None:
        """Undo that a message was handed out, as nobody works on it; it is due after a delay."""
        if attempt.state is not _IN_FLIGHT:
            return  # dropped meanwhile
        attempt.state = AttemptState.DROPPED
        del self._in_flight[attempt.offset]
        following = self._successor(attempt, attempt.error)
        following.attempt -= 1
        if attempt is self.suspect:
            self.suspects += 1
        self._delay(following, now + delay)

    def wait_here(self, attempt: AttemptT) -> None:
        """Keep a message until it is due that was to be moved, and cannot be."""
        if attempt.state is AttemptState.GIVING_UP:
            self._delay(attempt, attempt.deadline)

    def give_up(self, attempt: AttemptT) -> None:
        """Settle a message that was given up, once that is done."""
        if attempt.state is not AttemptState.GIVING_UP:
            return  # dropped meanwhile
        attempt.state = AttemptState.GIVEN_UP
        del self._unsettled[attempt.offset]
        self.changes += 1
        if self._keyed:
            self._unblock(attempt)

    # Time

    def tick(self, now: float) -> list[AttemptT]:
        """Do what is due; return attempts that were not answered in time."""
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
        """Return a new attempt of the same message, which takes its place in the log's order."""
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
        """Put a message in the line of its key; return True if it is not the first one."""
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
        """Let the next message of a key follow the one that was settled."""
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
        """Return what is settled; None before the first message.

        Of what is in flight only a suspect counts as attempted: if the process ends, it was alone.

        Args:
            last: a suspect does not count either, as the process did not end.
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
        """Hand out nothing more; attempts in flight can still be answered."""
        self.capacity = 0
        held = {*self._in_flight.values(), *self.given_up}
        for attempt in self._unsettled.values():
            if attempt not in held and attempt.state is not AttemptState.GIVING_UP:
                attempt.state = AttemptState.DROPPED
        self.ready.clear()
        self._delayed.clear()
        self._line.clear()

    def drop(self) -> None:
        """Forget all messages: the partition is another member's."""
        self.stop()
        for attempt in self._unsettled.values():
            attempt.state = AttemptState.DROPPED
        self._unsettled.clear()
        self._in_flight.clear()
        self.given_up.clear()


def _place(attempt: Attempt) -> tuple[str, int, int]:
    message = attempt.message
    return message.stream, message.partition, message.offset
