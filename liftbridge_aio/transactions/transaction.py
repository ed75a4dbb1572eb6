"""One transaction: messages of any partitions that become visible together, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter, ge, lt, methodcaller
from types import TracebackType
from typing import Any, Final, Protocol, Self

from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
from liftbridge_aio.errors import (
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PartitionReadonly,
    PermissionDenied,
    PublishOutcomeUnknown,
    UsageError,
)
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import Ack, Partitioner

from .core.transaction import PHASES, AckIntent, Phase, Place, ProducerIdentity, Step
from .core.uuid import Flags
from .errors import CommitInDoubt, ProducerFenced, TransactionAborted
from .positions import Readable, positions_of
from .sender import IdentityPool, Sender, take_back


class CommitStore(Protocol):
    """The protocol of a store of the commits of transactions; `Checkpoints` is one."""

    rollback: Child | None
    """Writes the rollbacks of the transaction that was aborted last."""

    def knows(self, identity: ProducerIdentity, place: Place) -> bool:
        """Return True if what is published there would be rolled back after a crash."""

    async def register(self, identity: ProducerIdentity, place: Place) -> None:
        """Store that a producer is about to publish to a partition."""

    async def commit(
        self,
        identity: ProducerIdentity,
        intents: Iterable[AckIntent],
        positions: Mapping[Place, Checkpoint],
    ) -> None:
        """Store a transaction: this is what commits it."""

    async def settle(self) -> None:
        """Store a transaction that may be stored or not."""


# A step of the interpreter for each message would take four times as long.
_is_done: Final[Callable[[AckFuture], bool]] = methodcaller("done")
_result_of: Final[Callable[[AckFuture], Ack]] = methodcaller("result")
_offset_of: Final[Callable[[Ack], int]] = attrgetter("offset")

_PERMANENT: Final = (InvalidRequest, NotFound, PartitionReadonly, PermissionDenied, UsageError)
"""Errors of messages that would come again if the block were repeated."""


class Rollback:
    """The rollback of an aborted transaction; awaiting it is optional.

    Cancelling abandons the wait.
    """

    def __init__(self, child: Child | None) -> None:
        """Use `Transaction.abort`."""
        self._child = child

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until the rollback is written, or has failed."""
        if self._child is not None:
            yield from self._child.wait().__await__()


class _Span:
    """The messages of a transaction in one partition."""

    __slots__ = ("begin", "last", "unsettled")

    def __init__(self) -> None:
        self.begin: int | None = None
        """The offset of the first message, once it is known."""
        self.last = -1
        """The offset of the newest one that is known."""
        self.unsettled: list[AckFuture] = []


class Transaction:
    """Publishes messages that committed readings show all or not at all, of each partition.

    Made by `Producer.transaction`. Leaving its `async with` commits it, leaving it by an exception
    aborts it. In each partition the messages become visible at once and in order, at the place of
    the commit; partitions follow one another. If the process dies while it is committed, some
    partitions may show it and others not, unless the producer has a store: then the next producer
    of its name writes the rest.
    """

    def __init__(
        self,
        sender: Sender,
        identities: IdentityPool,
        checkpoints: CommitStore | None = None,
        subscriptions: Sequence[Readable] = (),
    ) -> None:
        """Use `Producer.transaction`."""
        self._checkpoints = checkpoints
        self._readings = [
            (subscription, positions_of(subscription, checkpoints))
            for subscription in subscriptions
        ]
        self._sender = sender
        self._identities = identities
        self._identity = identities.take()
        self._phase = Phase.OPEN
        self._spans: dict[Place, _Span] = {}
        self._sending = asyncio.Lock()
        """Held while a message waits for its partition or for room: none may overtake it."""
        self._intents: list[AckIntent] | None = None
        self._positions: dict[Place, Checkpoint] = {}
        """Positions of subscriptions when it was about to be committed."""
        self._stored = checkpoints is None
        """True if its checkpoint is stored, or it has none."""
        self._rollback: Child | None = None
        """Writes its rollbacks, once it is aborted."""

    def __repr__(self) -> str:
        """Show the producer id, the phase, and how many partitions take part."""
        producer = self._identity.id.hex()
        return f"<Transaction {producer} {self._phase.value} partitions={len(self._spans)}>"

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return self._phase

    @property
    def has_messages(self) -> bool:
        """True once something was published in it."""
        return bool(self._spans)

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit; after an exception, abort. Does nothing if either was done.

        Cancelling is that of `commit`.

        Raises:
            TransactionAborted: a message was not stored; nothing is visible.
            LiftbridgeError: the same, and it would happen again: a stream is missing, say.
            CommitInDoubt: it may be visible in some partitions; see `resume`.
            ProducerFenced: another producer of the name has taken over; nothing is visible.
        """
        if exc is not None:
            if self._phase is Phase.OPEN:
                self.abort()
        elif self._phase is Phase.OPEN:
            await self.commit()

    async def publish(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Publish a message, and return once there is room for it in the window.

        `commit` waits until it is stored. Messages of one partition are shown in the order of these
        calls. Cancelling leaves the message out.

        Args:
            stream: where to; not to a compacted stream.
            value: the message.
            key: as for `Client.publish`.
            headers: as for `Client.publish`; not those of transactions.
            partition: as for `Client.publish`.
            partitioner: as for `Client.publish`.

        Raises:
            InvalidRequest: it cannot be sent like this; it is left out.
            TransactionAborted: an earlier message was not stored, which may go well next time.
            ProducerFenced: another producer of the name has taken over; nothing will be visible.
            UsageError: the transaction is over.
            LiftbridgeError: as for `Client.publish`, or the store could not be written; the message
                is left out.
        """
        sender, identity = self._sender, self._identity
        if self._phase is not Phase.OPEN or headers or self._intents is not None or sender.closed:
            self._check(headers)
        if not self._sending.locked():
            chosen = partition
            if partition is None or partitioner is not None:
                chosen = sender.partition_now(stream, key, partition, partitioner)
            # The store knows what it must of a partition that takes part already.
            span = None if chosen is None else self._spans.get((stream, chosen))
            if chosen is not None and span is not None:
                uuid = identity.next_uuid(Flags.CONTINUE)
                future = sender.send_now(stream, value, key, headers, chosen, uuid)
                if future is not None:
                    unsettled = span.unsettled
                    unsettled.append(future)
                    if unsettled[0].done():
                        self._settle((stream, chosen), span)
                    return
        async with self._sending:
            chosen = await sender.partition_of(stream, value, key, partition, partitioner)
            self._check(headers)
            if not self._is_registered((stream, chosen)):
                await self._register((stream, chosen))
                self._check(headers)
            uuid = identity.next_uuid(Flags.CONTINUE)
            future = await sender.send(stream, value, key, headers, chosen, uuid)
            if self._phase is not Phase.OPEN:
                take_back(future)
            self._check(headers)
            self._note((stream, chosen), future)

    def _is_registered(self, place: Place) -> bool:
        """Return True if the store knows all it must know before a message is sent there."""
        checkpoints = self._checkpoints
        return (
            checkpoints is None or place in self._spans or checkpoints.knows(self._identity, place)
        )

    async def _register(self, place: Place) -> None:
        if self._checkpoints is not None:
            try:
                await self._checkpoints.register(self._identity, place)
            except ProducerFenced:
                self._end_fenced()
                raise

    def _check(self, headers: Mapping[str, bytes] | None = None) -> None:
        self._sender.check(headers)
        if self._phase is not Phase.OPEN:
            raise UsageError(f"the transaction is over: it is {self._phase.value}")
        if self._intents is not None:
            raise UsageError("the transaction takes no more messages: its acks are built")

    def _note(self, place: Place, future: AckFuture) -> None:
        span = self._spans.get(place)
        if span is None:
            span = self._spans[place] = _Span()
        span.unsettled.append(future)

    def _settle(self, place: Place, span: _Span) -> None:
        """Take in what became of the oldest messages of a partition, up to one in flight."""
        settled = list(takewhile(_is_done, span.unsettled))
        offsets: list[int] = []
        failure: BaseException | None = None
        try:
            offsets.extend(map(_offset_of, map(_result_of, settled)))
        except (LiftbridgeError, asyncio.CancelledError) as error:
            failure = error  # `offsets` has those before it
        del span.unsettled[: len(offsets) + (failure is not None)]  # `abort` looks at the rest
        if offsets:
            if span.begin is None:
                span.begin = offsets[0]
            earlier = [span.last, *offsets]
            if not all(map(lt, earlier, offsets)):
                self.abort()
                before, offset = next(
                    pair for pair in zip(earlier, offsets, strict=False) if ge(*pair)
                )
                raise TransactionAborted(
                    f"the transaction was aborted, as a message was stored at offset {offset},"
                    f" and the one before it at {before}",
                    stream=place[0],
                    partition=place[1],
                )
            span.last = offsets[-1]
        if failure is None:
            return
        self.abort()
        if isinstance(failure, _PERMANENT):
            failure.add_note("the transaction was aborted")
            raise failure
        said = failure.message if isinstance(failure, LiftbridgeError) else "it was cancelled"
        raise TransactionAborted(
            f"a message was not stored, so the transaction was aborted: {said}",
            stream=place[0],
            partition=place[1],
        ) from failure

    async def flush(self) -> None:
        """Wait until every message so far is stored. Cancelling abandons the wait.

        Raises:
            TransactionAborted: one was not stored; nothing will be visible.
            LiftbridgeError: the same, and it would happen again: the stream is missing, say.
            UsageError: the transaction is over.
        """
        self._check()
        async with self._sending:
            for place, span in self._spans.items():
                while span.unsettled:
                    if not span.unsettled[0].done():
                        await asyncio.wait([span.unsettled[0]])
                        self._check()
                    self._settle(place, span)

    def build_ack_intents(self) -> list[AckIntent]:
        """Return the acks that commit it, for those who keep them in a store of their own.

        Call `flush` first, store what this returns, then `commit`; after a crash give it to
        `Producer.append_intents`. The transaction takes no more messages.

        Raises:
            UsageError: messages are not stored yet, or the transaction is over.
        """
        if self._intents is None:
            self._check()
            begins = {}
            for place, span in self._spans.items():
                if span.unsettled or span.begin is None:
                    raise UsageError("flush() the transaction before its acks are built")
                begins[place] = span.begin
            self._intents = self._identity.commit(begins)
        return self._intents

    async def commit(self) -> None:
        """Wait until every message is stored, then make them visible.

        With a store, a checkpoint is written between the two: from then on the transaction is
        committed, whatever happens to this process. The positions of its subscriptions are those at
        the time of this call. Cancelling while messages are not stored aborts it; after that it
        leaves the commit in doubt, see `resume`.

        Raises:
            TransactionAborted: a message, or the checkpoint, was not stored; nothing is visible.
            LiftbridgeError: the same, and it would happen again: a stream is missing, say.
            CommitInDoubt: it may be visible in some partitions; see `resume`.
            ProducerFenced: another producer of the name has taken over; nothing is visible.
            UsageError: the transaction is over.
        """
        for _, positions in self._readings:
            self._positions |= positions.read()
        if self._intents is None:
            try:
                await self.flush()
            except asyncio.CancelledError:
                self.abort()
                raise
        intents = self.build_ack_intents()
        if not self._stored:
            await self._store(intents)
        await self._write_acks(intents)

    async def resume(self) -> None:
        """Continue a commit in doubt. Cancelling leaves it in doubt.

        Does nothing if it is committed.

        Raises:
            CommitInDoubt: it is still in doubt.
            TransactionAborted: its checkpoint was not stored after all; nothing is visible.
            ProducerFenced: another producer of the name has taken over before the checkpoint was
                stored; nothing is visible.
            UsageError: the transaction was not committed.
        """
        if self._phase is Phase.COMMITTED:
            return
        if self._intents is None or self._phase is not Phase.IN_DOUBT:
            raise UsageError(
                f"only a commit in doubt is resumed: the transaction is {self._phase.value}"
            )
        if not self._stored:
            await self._store(self._intents, again=True)
        await self._write_acks(self._intents)

    async def _store(self, intents: list[AckIntent], *, again: bool = False) -> None:
        """Write the checkpoint, if there is anything to be stored."""
        checkpoints = self._checkpoints
        if checkpoints is None or not (intents or self._positions):
            return
        self._step(Step.STORE)
        try:
            if again:
                await checkpoints.settle()
            else:
                await checkpoints.commit(self._identity, intents, self._positions)
        except ProducerFenced:
            self._end_fenced()
            raise
        except PublishOutcomeUnknown as error:
            self._step(Step.FAIL)
            raise CommitInDoubt(
                f"it is unknown if the transaction is committed: {error.message}",
                stream=error.stream,
                partition=error.partition,
            ) from error
        except LiftbridgeError as error:
            self._step(Step.REFUSE)
            self._roll_back()
            raise TransactionAborted(
                f"the checkpoint was refused, so the transaction was aborted: {error.message}",
                stream=error.stream,
                partition=error.partition,
            ) from error
        except asyncio.CancelledError:
            self._step(Step.FAIL)
            raise
        self._stored = True

    def _end_fenced(self) -> None:
        """Abort without rollbacks: those are up to the producer that has taken over."""
        self._step(Step.ABORT if self._phase is Phase.OPEN else Step.REFUSE)
        self._take_back()

    async def _write_acks(self, intents: list[AckIntent]) -> None:
        first = self._phase is not Phase.IN_DOUBT
        self._step(Step.COMMIT)
        try:
            written = await self._sender.write_acks(intents)
        except asyncio.CancelledError:
            self._step(Step.FAIL)
            raise
        if first and intents and written.nothing_stored and self._checkpoints is None:
            self._step(Step.REFUSE)
            self._roll_back()
            [error, *_] = written.refusals
            raise TransactionAborted(
                f"the commit was refused, so the transaction was aborted: {error.message}",
                stream=error.stream,
                partition=error.partition,
            ) from error
        self._step(Step.FAIL if written.refusals or written.unknown else Step.SUCCEED)
        written.check()
        if first and written.sent_once:  # a late repeat would roll back what comes then
            self._identities.give_back(self._identity)

    def abort(self) -> Rollback:
        """Take back what is not written, and let nobody see the rest.

        It takes effect at once. Awaiting what it returns waits until the rollback is written, or
        has failed: nothing depends on it, as readings show nothing in either case.

        Its subscriptions continue where the last transaction has committed. Does nothing if it was
        aborted.

        Raises:
            UsageError: it was committed, or its commit has begun.
        """
        if self._phase is not Phase.ABORTED:
            self._step(Step.ABORT)
            self._take_back()
            self._roll_back()
        return Rollback(self._rollback)

    def _take_back(self) -> None:
        for span in self._spans.values():
            for future in span.unsettled:
                take_back(future)

    def _roll_back(self) -> None:
        begins = {place: span.begin for place, span in self._spans.items()}
        rollback = self._sender.write_rollbacks(self._identity.roll_back(begins))
        self._rollback = rollback
        if self._checkpoints is not None:
            self._checkpoints.rollback = rollback
        for subscription, positions in self._readings:
            positions.rewind(subscription)

    def _step(self, step: Step) -> None:
        following = PHASES.get((self._phase, step))
        if following is None:
            raise UsageError(
                f"cannot {step.name.lower()} a transaction that is {self._phase.value}"
            )
        self._phase = following
