"""One transaction: messages of any partitions that become visible together, or never."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self, cast

from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import Ack, Partitioner

from .core.transaction import PHASES, AckIntent, Phase, Place, Step
from .core.uuid import Flags
from .errors import TransactionAborted
from .sender import IdentityPool, Sender, forget


class _Span:
    """The messages of a transaction in one partition."""

    __slots__ = ("begin", "last", "unsettled")

    def __init__(self) -> None:
        self.begin: int | None = None
        """The offset of the first message, once it is known."""
        self.last = -1
        """The offset of the newest one that is known."""
        self.unsettled: deque[AckFuture] = deque()


class Transaction:
    """Publishes messages that committed readings show all or not at all, of each partition.

    Made by `Producer.transaction`. Leaving its `async with` commits it, leaving it by an exception
    aborts it. In each partition the messages become visible at once and in order, at the place of
    the commit; partitions follow one another. If the process dies while it is committed, some
    partitions may show it and others not.
    """

    def __init__(self, sender: Sender, identities: IdentityPool) -> None:
        """Use `Producer.transaction`."""
        self._sender = sender
        self._identities = identities
        self._identity = identities.take()
        self._phase = Phase.OPEN
        self._spans: dict[Place, _Span] = {}
        self._sending = asyncio.Lock()
        """Held while a message waits for its partition or for room: none may overtake it."""
        self._intents: list[AckIntent] | None = None

    def __repr__(self) -> str:
        """Show the producer id, the phase, and how many partitions take part."""
        producer = self._identity.id.hex()
        return f"<Transaction {producer} {self._phase.value} partitions={len(self._spans)}>"

    @property
    def phase(self) -> Phase:
        """What has become of it."""
        return self._phase

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
            CommitInDoubt: it may be visible in some partitions; see `resume`.
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
            TransactionAborted: an earlier message was not stored.
            UsageError: the transaction is over.
            LiftbridgeError: as for `Client.publish`; the message is left out.
        """
        sender, identity = self._sender, self._identity
        self._check(headers)
        if not self._sending.locked():
            chosen = sender.partition_now(stream, key, partition, partitioner)
            if chosen is not None:
                uuid = identity.next_uuid(Flags.CONTINUE)
                future = sender.send_now(stream, value, key, headers, chosen, uuid)
                if future is not None:
                    self._note((stream, chosen), future)
                    return
        async with self._sending:
            chosen = await sender.partition_of(stream, value, key, partition, partitioner)
            self._check(headers)
            uuid = identity.next_uuid(Flags.CONTINUE)
            future = await sender.send(stream, value, key, headers, chosen, uuid)
            if self._phase is not Phase.OPEN:
                future.cancel()
                future.add_done_callback(forget)
            self._check(headers)
            self._note((stream, chosen), future)

    def _check(self, headers: Mapping[str, bytes] | None = None) -> None:
        self._sender.check(headers)
        if self._phase is not Phase.OPEN:
            text = f"the transaction is over: it is {self._phase.value}"
            raise UsageError(text)
        if self._intents is not None:
            raise UsageError("the transaction takes no more messages: its acks are built")

    def _note(self, place: Place, future: AckFuture) -> None:
        span = self._spans.get(place)
        if span is None:
            span = self._spans[place] = _Span()
        unsettled = span.unsettled
        unsettled.append(future)
        while unsettled[0].done():
            self._settle(place, span)
            if not unsettled:
                return

    def _settle(self, place: Place, span: _Span) -> None:
        """Take in what became of the oldest unsettled message of a partition."""
        future = span.unsettled.popleft()
        try:
            ack = cast("Ack", future.result())
        except (LiftbridgeError, asyncio.CancelledError) as error:
            self.abort()
            said = error.message if isinstance(error, LiftbridgeError) else "it was cancelled"
            text = f"a message was not stored, so the transaction was aborted: {said}"
            raise TransactionAborted(text, stream=place[0], partition=place[1]) from error
        if ack.offset <= span.last:
            self.abort()
            text = (
                f"the transaction was aborted, as a message was stored at offset {ack.offset},"
                f" and the one before it at {span.last}"
            )
            raise TransactionAborted(text, stream=place[0], partition=place[1])
        span.last = ack.offset
        if span.begin is None:
            span.begin = ack.offset

    async def flush(self) -> None:
        """Wait until every message so far is stored. Cancelling abandons the wait.

        Raises:
            TransactionAborted: one was not stored; nothing will be visible.
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

        Cancelling while messages are not stored aborts it; after that it leaves the commit in
        doubt, see `resume`.

        Raises:
            TransactionAborted: a message was not stored; nothing is visible.
            CommitInDoubt: it may be visible in some partitions; see `resume`.
            UsageError: the transaction is over.
        """
        if self._intents is None:
            try:
                await self.flush()
            except asyncio.CancelledError:
                self.abort()
                raise
        await self._write_acks(self.build_ack_intents())

    async def resume(self) -> None:
        """Write the acks of a commit in doubt again. Cancelling leaves it in doubt.

        Does nothing if it is committed.

        Raises:
            CommitInDoubt: it is still in doubt.
            UsageError: the transaction was not committed.
        """
        if self._phase is Phase.COMMITTED:
            return
        if self._intents is None or self._phase is not Phase.IN_DOUBT:
            text = f"only a commit in doubt is resumed: the transaction is {self._phase.value}"
            raise UsageError(text)
        await self._write_acks(self._intents)

    async def _write_acks(self, intents: list[AckIntent]) -> None:
        first = self._phase is Phase.OPEN
        self._step(Step.COMMIT)
        try:
            written = await self._sender.write_acks(intents)
        except asyncio.CancelledError:
            self._step(Step.FAIL)
            raise
        if first and intents and written.nothing_stored:
            self._step(Step.REFUSE)
            self._roll_back()
            [error, *_] = written.refusals
            text = f"the commit was refused, so the transaction was aborted: {error.message}"
            raise TransactionAborted(
                text, stream=error.stream, partition=error.partition
            ) from error
        self._step(Step.FAIL if written.refusals or written.unknown else Step.SUCCEED)
        written.check()
        if first and written.sent_once:  # a late repeat would roll back what comes then
            self._identities.give_back(self._identity)

    def abort(self) -> None:
        """Take back what is not written, and let nobody see the rest. Waits for nothing.

        Does nothing if it was aborted.

        Raises:
            UsageError: it was committed, or its commit has begun.
        """
        if self._phase is Phase.ABORTED:
            return
        self._step(Step.ABORT)
        for span in self._spans.values():
            for future in span.unsettled:
                future.cancel()
                future.add_done_callback(forget)
        self._roll_back()

    def _roll_back(self) -> None:
        begins = {place: span.begin for place, span in self._spans.items()}
        self._sender.write_rollbacks(self._identity.roll_back(begins))

    def _step(self, step: Step) -> None:
        following = PHASES.get((self._phase, step))
        if following is None:
            text = f"cannot {step.name.lower()} a transaction that is {self._phase.value}"
            raise UsageError(text)
        self._phase = following
