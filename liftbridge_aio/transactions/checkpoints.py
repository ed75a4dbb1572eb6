"""Keeps the checkpoints of producers in streams: what survives a crash, and fences the dead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self

from liftbridge_aio._core.arguments import check_text, check_whole_number
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.retry import Retry

from .claimed_log import ALL_SERVERS, ClaimedLog, LogClient
from .core.transaction import AckIntent, Place, ProducerIdentity
from .producer_checkpoint import ProducerCheckpoint, decode

if TYPE_CHECKING:
    from .positions import SubscriptionPositions

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class CheckpointStream:
    """Stores the checkpoints of producers, each in a stream of its own.

    The stream of a producer is created when it is entered for the first time. Only the end of it
    is read, however long it is. Each transaction adds one record, of some sixty bytes for each
    partition that is read or written; nothing is deleted. A stream that exists is taken as it is,
    if it has optimistic concurrency control: retention may delete all but the newest record.

    Args:
        prefix: begins the names of the streams: `prefix.name`.
        replication_factor: number of servers that store each; -1: all of them.

    Raises:
        InvalidRequest: an argument makes no sense.
    """

    def __init__(self, prefix: str, *, replication_factor: int = ALL_SERVERS) -> None:
        check_text(prefix, "the prefix of streams")
        if not _PREFIX.fullmatch(prefix):
            raise InvalidRequest(
                f"a prefix has letters, digits, '_', '-' and single dots between: not {prefix!r}"
            )
        if replication_factor != ALL_SERVERS:
            check_whole_number(replication_factor, "replication_factor", 1, 2**31 - 1)
        self.prefix = prefix
        self.replication_factor = replication_factor

    def __repr__(self) -> str:
        """Show the prefix."""
        return f"CheckpointStream({self.prefix!r})"

    def stream_of(self, name: str) -> str:
        """Return the name of the stream with the checkpoints of a producer.

        Raises:
            InvalidRequest: it cannot be the name of a producer.
        """
        check_text(name, "the name of a producer")
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"the name of a producer has letters, digits, '_' and '-': not {name!r}"
            )
        return f"{self.prefix}.{name}"


class Checkpoints:
    """The checkpoints of one open producer."""

    def __init__(self, log: ClaimedLog, inherited: ProducerCheckpoint) -> None:
        """Use `open`."""
        self.inherited: Final = inherited
        """The checkpoint that the producer before has left."""
        self.positions: dict[Place, Checkpoint] = dict(inherited.positions)
        """Positions of partitions, up to the last transaction that is stored."""
        self.readers: dict[Place, SubscriptionPositions] = {}
        """The reader of each partition now."""
        self.rollback: Child | None = None
        """Writes the rollbacks of the transaction that was aborted last."""
        self._log = log
        self._producer = b""
        """The producer id of the newest checkpoint."""
        self._places: dict[Place, None] = {}
        """The partitions that the newest checkpoint has acks for."""
        self._committing: Mapping[Place, Checkpoint] = {}
        """The positions of a transaction that may be stored."""

    @classmethod
    async def open(
        cls, client: LogClient, store: CheckpointStream, name: str, retry: Retry
    ) -> Self:
        """Fence off the producer before, and read what it has left. Cancelling may fence it.

        Raises:
            NewerFormat: a later version of this package wrote it.
            LiftbridgeError: the store could not be claimed or read.
        """
        stream, factor = store.stream_of(name), store.replication_factor
        log = await ClaimedLog.open(client, stream, replication_factor=factor, retry=retry)
        last = await log.last()
        return cls(log, ProducerCheckpoint() if last is None else decode(last.value))

    def inherit(self, places: Iterable[Place]) -> None:
        """Keep these partitions of the producer before: later checkpoints have acks for them."""
        self._places.update(dict.fromkeys(places))

    def check(self) -> None:
        """Raise an error if another producer is known to have taken over.

        Raises:
            ProducerFenced: one has.
        """
        self._log.check()

    def knows(self, identity: ProducerIdentity, place: Place) -> bool:
        """Return True if the next producer would roll back what is published there."""
        return identity.id == self._producer and place in self._places

    async def register(self, identity: ProducerIdentity, place: Place) -> None:
        """Store that the producer is about to publish to a partition.

        Raises:
            ProducerFenced: another producer of the name has taken over.
            PublishOutcomeUnknown: it may be stored or not.
            LiftbridgeError: it is not stored.
        """
        if self.rollback is not None:  # afterwards nobody knows what must be rolled back
            await self.rollback.wait()
            self.rollback = None
        places = self._places | {place: None}
        await self._log.append(self._record(identity, places, (), self.positions))
        self._producer, self._places = identity.id, places

    async def commit(
        self,
        identity: ProducerIdentity,
        intents: Iterable[AckIntent],
        positions: Mapping[Place, Checkpoint],
    ) -> None:
        """Store a transaction: this is what commits it.

        Cancelling leaves the outcome unknown, see `settle`.

        Raises:
            ProducerFenced: another producer of the name has taken over; it is not stored.
            PublishOutcomeUnknown: it may be stored or not; see `settle`.
            LiftbridgeError: it is not stored.
        """
        self._committing = positions
        record = self._record(identity, self._places, intents, self.positions | dict(positions))
        await self._log.append(record)
        self._committed()
        self._producer = identity.id

    async def settle(self) -> None:
        """Store a transaction that may be stored or not; errors are those of `commit`."""
        await self._log.settle()
        self._committed()

    def _committed(self) -> None:
        self.positions.update(self._committing)
        self._committing = {}

    def _record(
        self,
        identity: ProducerIdentity,
        places: Iterable[Place],
        intents: Iterable[AckIntent],
        positions: Mapping[Place, Checkpoint],
    ) -> bytes:
        """Return the record of a checkpoint.

        Its acks are final: they are written when this producer is fenced. Where `intents` has none,
        everything behind the last commit is rolled back.
        """
        acks = {
            (intent.stream, intent.partition): intent
            for intent in identity.roll_back(dict.fromkeys(places))
        }
        for stream, partition, entry in intents:
            acks[stream, partition] = AckIntent(stream, partition, entry._replace(final=True))
        return ProducerCheckpoint(
            identity.id, identity.clock, positions, tuple(acks.values())
        ).encode()
