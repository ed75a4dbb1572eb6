"""The batches of an idempotent producer: which to send, and what answers mean for them. Pure.

A batch keeps its sequence number within an epoch, so that a repeat is recognised. Batches are sent
at the same time, and may overtake each other: the server refuses one that comes too early as a gap,
and it is sent again once all before it are stored. One that is too large is replaced by its halves,
which moves the numbers of all after it, once none of them is on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import Final

from liftbridge_aio.errors import LiftbridgeError


class Phase(Enum):
    """The phase of a producer, by what it may send."""

    CLAIMING = "one batch, until the server accepts the epoch"
    OPEN = "as many batches as the window has room for"
    FENCED = "nothing until all answers are there, and then with a higher epoch"
    SPLIT = "nothing until all answers are there, and then the halves of a batch"
    FAILED = "nothing until it is restarted"


_SENDING: Final = frozenset({Phase.CLAIMING, Phase.OPEN})


class BatchState(Enum):
    """The state of a batch."""

    QUEUED = "not sent in this epoch"
    IN_FLIGHT = "sent, not answered"
    EARLY = "refused as a gap; to be sent again after those before it"
    STORED = "the server has it"
    SPLIT = "too large for the server; its halves have its place"
    FAILED = "the server refused it, or gave no answer"
    SKIPPED = "not stored, as one before it failed"


class Batch:
    """Messages that are appended in one request."""

    __slots__ = (
        "body",
        "closes",
        "epoch",
        "error",
        "items",
        "maybe_stored",
        "seq",
        "state",
        "was_first",
        "was_unsure",
    )

    def __init__(self, body: bytes, items: Sequence[bytes] = (), *, closes: bool = False) -> None:
        self.body: Final = body
        self.items: Final = items
        """The messages, by which it can be split; none if it cannot."""
        self.closes: Final = closes
        """It closes the stream; then the body may be empty."""
        self.state = BatchState.QUEUED
        self.epoch = 0
        self.seq = 0
        self.was_first = False
        """All batches before it were stored when it was sent."""
        self.maybe_stored = False
        """An attempt was sent whose outcome is unknown, so that the server may have stored it."""
        self.was_unsure = False
        """`maybe_stored` was true at any time: a copy of an attempt may still be on its way."""
        self.error: LiftbridgeError | None = None
        """The error of this batch, or of the one before it that failed."""

    def note_unsure(self) -> None:
        """Note that an attempt was sent whose outcome is unknown."""
        self.maybe_stored = self.was_unsure = True


class Window:
    """The unfinished batches of a producer, in order.

    Args:
        epoch: the first epoch.
        auto_claim: True to take the next epoch when another producer has this one.
        max_in_flight: the most batches that are sent at the same time.
    """

    def __init__(self, epoch: int, max_in_flight: int, *, auto_claim: bool) -> None:
        self.epoch = epoch
        self._known_epoch = epoch
        """The highest that the server is known to have."""
        self.next_seq = 0
        self.failure: LiftbridgeError | None = None
        """The error that ended the phase before FAILED."""
        self._auto_claim = auto_claim
        self._max_in_flight = max_in_flight
        self._phase = Phase.CLAIMING if auto_claim else Phase.OPEN
        self._before_split = self._phase
        """The phase to which SPLIT returns."""
        self._batches: deque[Batch] = deque()
        self._in_flight = 0

    @property
    def phase(self) -> Phase:
        """The phase, by what it may send."""
        return self._phase

    def __len__(self) -> int:
        """Return the number of unfinished batches."""
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        """Take a new batch. Not in phase FAILED."""
        self._batches.append(batch)

    def to_send(self) -> list[Batch]:
        """Return the batches that are to be sent now, and count them as in flight."""
        room = {Phase.CLAIMING: 1, Phase.OPEN: self._max_in_flight}.get(self._phase, 0)
        found: list[Batch] = []
        all_sent_now = True
        for batch in self._batches:
            if self._in_flight >= room:
                break
            if batch.state is BatchState.QUEUED:
                batch.epoch, batch.seq = self.epoch, self.next_seq
                self.next_seq += 1
            elif batch.state is BatchState.IN_FLIGHT or not all_sent_now:
                all_sent_now = False
                continue
            batch.state = BatchState.IN_FLIGHT
            batch.was_first = batch is self._batches[0]
            self._in_flight += 1
            found.append(batch)
        return found

    # Answers to batches in flight. Each returns the batches that are done now.

    def stored(self, batch: Batch, *, duplicate: bool = False) -> list[Batch]:
        """Note that the server has a batch.

        A duplicate of a batch that was sent once is another producer's batch: it uses the same
        epoch, as one of an earlier process does, and this batch is not stored. Then the next epoch
        is claimed if that is allowed.
        """
        if duplicate and self._auto_claim and not batch.maybe_stored and self._phase in _SENDING:
            text = f"another producer uses epoch {batch.epoch}, too"
            return self.refused_as_stale(batch, batch.epoch, LiftbridgeError(text))
        self._answered(batch, BatchState.STORED)
        self._batches.remove(batch)
        if self._phase is Phase.CLAIMING:
            self._phase = Phase.OPEN
        return [batch, *self._go_on()]

    def refused_as_gap(self, batch: Batch, error: LiftbridgeError) -> list[Batch]:
        """Note that the server lacked batches before this one when it answered."""
        if batch.was_first:
            return self.failed(batch, error)
        self._answered(batch, BatchState.EARLY)
        return self._give_up() if self._phase is Phase.FAILED else self._go_on()

    def refused_as_stale(
        self, batch: Batch, current: int | None, error: LiftbridgeError
    ) -> list[Batch]:
        """Note that the server knows a higher epoch than the batch's."""
        if current is not None:
            self._known_epoch = max(self._known_epoch, current)
        if not self._auto_claim or self._phase is Phase.FAILED or current is None:
            return self.failed(batch, error)
        self._answered(batch, BatchState.EARLY)
        self.failure = error
        self._phase = Phase.FENCED
        return self._go_on()

    def refused_as_too_large(
        self, batch: Batch, halves: Sequence[Batch], error: LiftbridgeError
    ) -> list[Batch]:
        """Note that the server takes smaller batches only. The halves get its place.

        It fails if a copy of it, or of one after it, may still be on its way: the server could
        take that copy for the batch that gets its number.
        """
        index = self._batches.index(batch)
        is_unsure = any(each.was_unsure for each in islice(self._batches, index, None))
        if self._phase is Phase.FAILED or not halves or is_unsure:
            return self.failed(batch, error)
        self._answered(batch, BatchState.SPLIT)
        for half in halves:
            half.epoch, half.seq = batch.epoch, batch.seq
        batches = list(self._batches)
        self._batches = deque([*batches[:index], *halves, *batches[index + 1 :]])
        if self._phase in _SENDING:
            self._before_split, self._phase, self.failure = self._phase, Phase.SPLIT, error
        return self._go_on()

    def failed(self, batch: Batch, error: LiftbridgeError) -> list[Batch]:
        """Note that a batch failed for good. What is not in flight fails with it."""
        self._answered(batch, BatchState.FAILED)
        if self._phase is not Phase.FAILED:
            self._phase, self.failure = Phase.FAILED, error
        batch.error = error
        self._batches.remove(batch)
        return [batch, *self._give_up()]

    def abandon(self, error: LiftbridgeError) -> list[Batch]:
        """Note that nothing will be sent any more, and return what is not in flight."""
        if self._phase is not Phase.FAILED:
            self._phase, self.failure = Phase.FAILED, error
        return self._give_up()

    def restart(self) -> None:
        """Begin the next epoch. Only when no batch is unfinished."""
        self.epoch = self._known_epoch = self._known_epoch + 1
        self.next_seq, self.failure = 0, None
        self._phase = Phase.CLAIMING if self._auto_claim else Phase.OPEN

    def _answered(self, batch: Batch, state: BatchState) -> None:
        batch.state = state
        self._in_flight -= 1

    def _go_on(self) -> list[Batch]:
        """Leave FENCED and SPLIT once all batches are answered."""
        if self._in_flight:
            return []
        if self._phase is Phase.SPLIT:
            return self._renumber()
        return self._claim() if self._phase is Phase.FENCED else []

    def _renumber(self) -> list[Batch]:
        """Give new numbers to what is left, which begins with a batch that had one."""
        if any(batch.was_unsure for batch in self._batches):
            self._phase = Phase.FAILED
            return self._give_up()
        for batch in self._batches:
            batch.state = BatchState.QUEUED
        self.next_seq, self.failure, self._phase = self._batches[0].seq, None, self._before_split
        return []

    def _claim(self) -> list[Batch]:
        """Begin the claimed epoch.

        A batch that may be stored under the old epoch could be stored a second time under the new
        one, so it fails, and those after it, too.
        """
        if any(batch.maybe_stored for batch in self._batches):
            self._phase = Phase.FAILED
            return self._give_up()
        for batch in self._batches:
            batch.state = BatchState.QUEUED
        self.epoch = self._known_epoch = self._known_epoch + 1
        self.next_seq, self.failure, self._phase = 0, None, Phase.CLAIMING
        return []

    def _give_up(self) -> list[Batch]:
        """Return the batches that are not in flight; they fail with what ended the phase."""
        done = [each for each in self._batches if each.state is not BatchState.IN_FLIGHT]
        for each in done:
            each.state, each.error = BatchState.SKIPPED, self.failure
        self._batches = deque(each for each in self._batches if each.state is BatchState.IN_FLIGHT)
        return done
