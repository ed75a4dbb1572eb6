"""`Delivery`: a message that was handed out, to be acked, nacked or rejected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio.handlers import Reject
from liftbridge_aio.model import Message, StreamPartition
from liftbridge_aio.options import Duration, seconds

from .core.ack_window import AckWindow
from .core.attempt import SETTLED, Attempt, AttemptState
from .core.moved_message import Origin, origin_of
from .core.tier_clock import TierClock

if TYPE_CHECKING:
    from .transactions import DeliveryTransaction, PartitionProducers

_READY: Final = AttemptState.READY  # members are slow to look up
_IN_FLIGHT: Final = AttemptState.IN_FLIGHT
_UNDECODED: Final = object()

T = TypeVar("T")


class PartitionShare:
    """The part of a queue that is one partition.

    Attributes:
        place: the partition.
        window: its unsettled messages; None until the partition is claimed.
        tier: says when messages are due, if it is one of a retry stream.
        is_paused: True while its reader is held, because no more messages may be in flight.
        drained: set, once the partition is being released, when nothing is to be waited for.
        giving_up: messages that are being given up.
        waits: False if answers are not waited for while the partition is being released, but for
            those of other members.
        leased: the number of messages that each other member has, by its id.
        resumes_at: the time of the event loop before which its reader is held in any case.
        saving: the turn of a task that stores what is settled.
        producers: publish the transactions of its deliveries.
    """

    __slots__ = (
        "drained",
        "giving_up",
        "is_paused",
        "leased",
        "place",
        "producers",
        "resumes_at",
        "saving",
        "tier",
        "waits",
        "window",
    )

    def __init__(self, place: StreamPartition, producers: PartitionProducers) -> None:
        self.place = place
        self.producers = producers
        self.window: AckWindow[Delivery] | None = None
        self.tier: TierClock | None = None
        self.is_paused = True
        self.drained: asyncio.Event | None = None
        self.giving_up = 0
        self.leased: Counter[str] = Counter()
        self.waits = True
        self.resumes_at = 0.0
        self.saving = asyncio.Lock()

    def check_drained(self) -> None:
        """Set `drained` if the partition is being released and nothing is to be waited for."""
        if self.drained is None or self.window is None or self.giving_up:
            return
        if self.producers.committing:
            return  # the next owner would finish them, but nobody knows when there is one
        if not (self.window.in_flight if self.waits else self.leased):
            self.drained.set()


class Worker(Protocol):
    """The protocol of what works on a delivery: a task, or a lease of another member."""

    def cancel(self) -> object:
        """Give up, because the time for an answer is up."""


class Answers(Protocol):
    """The protocol of a receiver of the answers of deliveries."""

    @property
    def is_remote(self) -> bool:
        """True if another member takes them: `confirmed` waits for it."""

    def ack(self, delivery: Delivery) -> None:
        """Settle a delivery."""

    async def confirmed(self, delivery: Delivery, *, stored: bool) -> None:
        """Wait until the answer is taken, or, with `stored`, until the ack is stored."""

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """Hand a message out again."""

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """Give up a message."""

    def extend(self, delivery: Delivery) -> None:
        """Begin the time for an answer again."""

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """Return a transaction that acks a delivery."""

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Nack or reject a message whose handler raised an exception."""


class Delivery(Attempt):
    """A message of a queue, and the calls that answer it.

    Used as a context manager it is acked when the block is left, and nacked if the block raises an
    exception, which is logged and goes no further; `Nack` and `Reject` say what else to do. A block
    that is cancelled leaves it unanswered. What was answered in the block stays as it is.

    Attributes:
        message: the message.
        attempt: 1 when it is delivered for the first time.
        deadline: the time of the event loop at which it is delivered again, unless it is answered
            or extended before.
        error: why the attempt before this one failed; None at the first one, and after a restart.
    """

    __slots__ = ("answers", "share", "worker")

    def __init__(self, message: Message, answers: Answers, share: PartitionShare) -> None:
        # All in one place, as there is one of these for each message.
        self.message = message
        self.attempt = 0
        self.state = _READY
        self.deadline = inf
        self.error = None
        self.answers = answers
        self.share = share
        self.worker: Worker | None = None
        """The worker that handles it, cancelled when the time for an answer is up."""

    def __repr__(self) -> str:
        """Show where the message is, the attempt, and its state; a value may be large or secret."""
        message = self.message
        return (
            f"<Delivery {message.stream}/{message.partition}@{message.offset}"
            f" attempt {self.attempt} {self.state.value}>"
        )

    # The message

    @property
    def value(self) -> bytes:
        """The value of the message."""
        return self.message.value

    @property
    def key(self) -> bytes:
        """The key of the message; empty if it has none."""
        return self.message.key

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers of the message."""
        return self.message.headers

    @property
    def stream(self) -> str:
        """The stream of the message."""
        return self.message.stream

    @property
    def partition(self) -> int:
        """The partition of the message."""
        return self.message.partition

    @property
    def origin(self) -> Origin:
        """The place where the message was published: `message` may be a copy that has waited."""
        return origin_of(self.message)

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before."""
        return self.attempt > 1

    @property
    def settled(self) -> bool:
        """True once it was acked, nacked or rejected."""
        return self.state in SETTLED

    # Answers

    async def ack(self, *, sync: bool = False) -> None:
        """Settle the message: it is not delivered again.

        Acks are stored every `commit_interval`; those that are not when the process ends are
        forgotten. Cancelling the wait of sync=True leaves it acked.

        Args:
            sync: wait until the ack is stored.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; it is delivered again.
            AnswerInDoubt: it is leased, and the owner of its partition has not confirmed that.
            LiftbridgeError: with sync, the ack could not be stored; it is tried again.
        """
        answers = self.answers
        answers.ack(self)
        if sync or answers.is_remote:
            await answers.confirmed(self, stored=sync)

    async def nack(
        self,
        delay: Duration | None = None,
        *,
        error: BaseException | None = None,
        backoff: bool = True,
    ) -> None:
        """Have the message delivered again, or given up if this was its last attempt.

        Waits for nothing, unless it is leased: then cancelling leaves it answered.

        Args:
            delay: seconds before the next attempt; None: as `retry` of the queue says.
            error: why; `Delivery.error` of the next attempt.
            backoff: count it as a failure, after which the queue slows down.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; it is delivered again.
            AnswerInDoubt: it is leased, and the owner of its partition has not confirmed that.
        """
        wait = None if delay is None else seconds(delay, "delay")
        self.answers.nack(self, wait, error, backoff=backoff)
        await self._confirmed()

    async def reject(self, reason: str = "") -> None:
        """Give up the message without another attempt: it becomes a dead letter.

        Waits for nothing, unless it is leased: then cancelling leaves it answered.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; it is delivered again.
        """
        self.answers.reject(self, Reject(reason))
        await self._confirmed()

    async def extend(self) -> None:
        """Begin the time for an answer, `ack_wait`, again.

        Waits for nothing, unless it is leased: then cancelling leaves it answered.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; it is delivered again.
        """
        self.answers.extend(self)
        await self._confirmed()

    async def _confirmed(self) -> None:
        """Wait for the owner of the partition, if that is another member."""
        if self.answers.is_remote:
            await self.answers.confirmed(self, stored=False)

    def transaction(self) -> DeliveryTransaction:
        """Return a transaction that publishes results and acks the delivery, in one.

            async with delivery.transaction() as transaction:
                await transaction.publish("invoices", invoice)

        Committed readings show its messages if the delivery is acked, and only then, whatever
        happens to this process. If the block raises, nothing is published, and the delivery is not
        answered.

        Raises:
            UsageError: the queue stores no acks, as it has neither a group nor a durable; or its
                members share their partitions (`nats`), and only owners store acks.
        """
        return self.answers.transaction(self)

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Ack it, or nack it if the block raised an exception."""
        if exc is None:
            if self.state is _IN_FLIGHT:
                self.answers.ack(self)
            return False
        try:
            failure = failure_of(exc, "the block")
        except BaseException:  # noqa: BLE001 - it passes, and the delivery stays unanswered
            return False
        self.answers.failed(self, failure)
        return True


class ValueDelivery(Delivery, Generic[T]):
    """A delivery whose value is decoded, of a queue of `TypedStream.queue`.

    A message whose value cannot be decoded is given up as soon as its handler, or its block, has
    raised the error: no other attempt would help.
    """

    __slots__ = ("_decode", "_value")

    def __init__(
        self,
        message: Message,
        answers: Answers,
        share: PartitionShare,
        decode: Callable[[Message], T],
    ) -> None:
        super().__init__(message, answers, share)
        self._decode = decode
        self._value: Any = _UNDECODED

    @property
    def value(self) -> T:  # type: ignore[override]
        """The decoded value; `message.value` is the encoded form.

        Raises:
            UndecodableMessage: it cannot be decoded.
        """
        if self._value is _UNDECODED:
            self._value = self._decode(self.message)
        value: T = self._value
        return value
