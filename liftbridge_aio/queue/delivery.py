"""`Delivery`: one attempt to process a message, to be acked, nacked or rejected."""

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
    """One partition of a queue, as its current owner has it.

    Attributes:
        place: the partition.
        window: its unsettled messages; None until the stored acks are loaded.
        tier: the due times, if it is a partition of a retry stream.
        is_paused: True while its reader is paused, because no more messages may be in flight, or
            none is due.
        drained: None until the partition is being released; set when there is nothing to wait for.
        giving_up: the number of messages that are being dead-lettered or moved.
        waits: False if the release does not wait for answers of this member, only for those of
            other members.
        leased: the number of messages leased to each other member, by its id.
        resumes_at: the time of the event loop until which its reader stays paused.
        saving: held while acks are stored, so that snapshots are stored in order.
        producers: the producers of its deliveries' transactions.
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
        """Set `drained` if the partition is being released, and there is nothing to wait for."""
        if self.drained is None or self.window is None or self.giving_up:
            return
        if self.producers.committing:
            return  # finished here, as the next owner may come late
        if not (self.window.in_flight if self.waits else self.leased):
            self.drained.set()


class Worker(Protocol):
    """The holder of a delivery: a task, or a loan to another member."""

    def cancel(self) -> object:
        """Stop, because `ack_wait` is over."""


class Answers(Protocol):
    """Applies the answers of deliveries: the dispatcher, or the lease of a remote owner."""

    @property
    def is_remote(self) -> bool:
        """True if another member owns the partition: `confirmed` waits for it."""

    def ack(self, delivery: Delivery) -> None:
        """Settle a delivery."""

    async def confirmed(self, delivery: Delivery, *, stored: bool) -> None:
        """Wait until the owner has the answer, or, with `stored`, until the ack is stored."""

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """Redeliver a message."""

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """Dead-letter a message."""

    def extend(self, delivery: Delivery) -> None:
        """Restart `ack_wait`."""

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """Return a transaction that acks a delivery."""

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Nack or reject a message whose handler raised an exception."""


class Delivery(Attempt):
    """A message of a queue, and the calls that answer it.

    As a context manager it is acked when the block ends, and nacked if the block raises. The
    exception is logged and not raised further; `Nack` and `Reject` choose another answer. A
    cancelled block leaves the delivery unanswered. An answer inside the block stands.

    Attributes:
        message: the message.
        attempt: 1 for the first delivery.
        deadline: the time of the event loop at which it is redelivered, unless it is answered or
            extended before.
        error: the error of the attempt before; None for the first one, and after a restart.
    """

    __slots__ = ("answers", "share", "worker")

    def __init__(self, message: Message, answers: Answers, share: PartitionShare) -> None:
        # Without super().__init__(), as each message has one of these.
        self.message = message
        self.attempt = 0
        self.state = _READY
        self.deadline = inf
        self.error = None
        self.answers = answers
        self.share = share
        self.worker: Worker | None = None
        """The task or loan that holds it, cancelled when `ack_wait` is over; None: no one yet."""

    def __repr__(self) -> str:
        """Show place, attempt and state, but not the value, which may be large or secret."""
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
        """The place where the message was published: `message` may be a copy in a retry stream."""
        return origin_of(self.message)

    @property
    def redelivered(self) -> bool:
        """True if this is not the first attempt."""
        return self.attempt > 1

    @property
    def settled(self) -> bool:
        """True once it was acked, nacked or rejected."""
        return self.state in SETTLED

    # Answers

    async def ack(self, *, sync: bool = False) -> None:
        """Settle the message: it is not redelivered.

        Acks are stored every `commit_interval`; the process loses the others if it crashes.
        Cancelling the wait of sync=True leaves the message acked.

        Args:
            sync: wait until the ack is stored.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; the message is redelivered.
            AnswerInDoubt: the message is leased, and its owner has not confirmed the answer.
            LiftbridgeError: with sync, the ack could not be stored; storing it is retried.
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
        """Redeliver the message after a delay, or dead-letter it after its last attempt.

        Returns at once, unless the message is leased; then cancelling leaves it answered.

        Args:
            delay: seconds before the next attempt; None: the delay of `retry`.
            error: the reason; `Delivery.error` of the next attempt.
            backoff: count a failure, which slows the queue down.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; the message is redelivered.
            AnswerInDoubt: the message is leased, and its owner has not confirmed the answer.
        """
        wait = None if delay is None else seconds(delay, "delay")
        self.answers.nack(self, wait, error, backoff=backoff)
        await self._confirmed()

    async def reject(self, reason: str = "") -> None:
        """Dead-letter the message without another attempt.

        Returns at once, unless the message is leased; then cancelling leaves it answered.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; the message is redelivered.
        """
        self.answers.reject(self, Reject(reason))
        await self._confirmed()

    async def extend(self) -> None:
        """Restart `ack_wait`, the time for an answer.

        Returns at once, unless the message is leased; then cancelling leaves it extended.

        Raises:
            AlreadySettled: it was answered before.
            LeaseExpired: too late; the message is redelivered.
        """
        self.answers.extend(self)
        await self._confirmed()

    async def _confirmed(self) -> None:
        """Wait for the owner of the partition, if another member is the owner."""
        if self.answers.is_remote:
            await self.answers.confirmed(self, stored=False)

    def transaction(self) -> DeliveryTransaction:
        """Return a transaction that publishes results and acks the delivery atomically.

            async with delivery.transaction() as transaction:
                await transaction.publish("invoices", invoice)

        Committed readings show its messages if and only if the delivery is acked, even if this
        process crashes. If the block raises, nothing is published, and the delivery stays
        unanswered.

        Raises:
            UsageError: the queue has neither a group nor a durable, so it stores no acks; or its
                members share messages (`nats`), and only owners store acks.
        """
        return self.answers.transaction(self)

    async def __aenter__(self) -> Self:
        """Return the delivery."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Ack the delivery, or nack it if the block raised."""
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
    """A delivery with a decoded value, from `TypedStream.queue`.

    A message whose value cannot be decoded is dead-lettered as soon as its handler, or its block,
    raises the error: another attempt would not help.
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
        """The decoded value, once it was used."""

    @property
    def value(self) -> T:  # type: ignore[override]
        """The decoded value; `message.value` is the encoded form.

        Raises:
            UndecodableMessage: the value cannot be decoded.
        """
        if self._value is _UNDECODED:
            self._value = self._decode(self.message)
        value: T = self._value
        return value
