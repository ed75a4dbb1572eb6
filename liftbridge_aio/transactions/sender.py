"""Sends messages and acks under producer ids, which are used again where that is safe."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._publish.publisher import Publisher
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.log_start import looks_compacted
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError, PublishOutcomeUnknown, UsageError
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import (
    TRANSACTION_HEADERS,
    UUID_HEADER,
    AckPolicy,
    OutgoingMessage,
    Partitioner,
    PublishOptions,
)
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import Duration
from liftbridge_aio.retry import Retry
from liftbridge_aio.wire.codec import encode_uuid_header

from .core.transaction import AckIntent, Place, ProducerIdentity
from .core.uuid import PRODUCER_BYTES, producer_id
from .core.visibility import AckEntry
from .errors import CommitInDoubt, CompactedStream
from .log_format import ACK_HEADERS, ack_values

logger = logging.getLogger("liftbridge_aio.transactions")

_MOST_IDLE: Final = 10_000
"""Producer ids kept for later: readers remember so many, see `ReadCommitted`."""


class PublishingClient(Protocol):
    """The parts of a connected client that a sender needs."""

    @property
    def network(self) -> Network:
        """Owns its tasks."""

    @property
    def publisher(self) -> Publisher:
        """Chooses partitions."""

    @property
    def submit(self) -> Callable[[OutgoingMessage], Awaitable[AckFuture]]:
        """Publishes a message."""

    @property
    def submit_now(self) -> Callable[..., AckFuture | None]:
        """Publishes a message where nothing has to be awaited; `Publisher.submit_now`."""


class IdentityPool:
    """Producer ids under which nothing is unsettled. The last one given back is the next one."""

    def __init__(self) -> None:
        self._idle: list[ProducerIdentity] = []

    def take(self) -> ProducerIdentity:
        """Return one that is idle, or a new one."""
        if not self._idle:
            producer = producer_id(secrets.token_bytes(PRODUCER_BYTES))
            return ProducerIdentity(producer, time.time_ns())
        identity = self._idle.pop()
        identity.update(time.time_ns())
        return identity

    def give_back(self, identity: ProducerIdentity) -> None:
        """Keep one of which all that was sent is known to be stored, or not to be."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(identity)


@dataclass(slots=True)
class WrittenAcks:
    """The outcome of acks that were written."""

    stored: int = 0
    sent_once: bool = True
    """False if one had to be sent again, so that a repeat of it may be stored later."""
    refusals: list[LiftbridgeError] = field(default_factory=list)
    """The error of those that are not stored."""
    unknown: list[LiftbridgeError] = field(default_factory=list)
    """The error of those of which it is unknown."""

    @property
    def nothing_stored(self) -> bool:
        """True if not one of them is stored, for sure."""
        return not self.stored and not self.unknown

    def check(self) -> None:
        """Raise an error unless all are stored.

        Raises:
            CommitInDoubt: some may not be.
        """
        failures = self.refusals + self.unknown
        if failures:
            count = self.stored + len(failures)
            raise CommitInDoubt(
                f"{len(failures)} of {count} acks are not known to be stored: {failures[0]}"
            ) from failures[0]


class Sender:
    """Sends the messages of a `Producer` and its transactions."""

    def __init__(self, client: PublishingClient, policy: AckPolicy, retry: Retry) -> None:
        """Check the arguments; see `Client.producer`."""
        check_type(policy, AckPolicy, "ack_policy is an AckPolicy")
        check_type(retry, Retry, "retry is a Retry")
        if policy is AckPolicy.NONE:
            raise InvalidRequest(
                "a producer must know what is stored: use AckPolicy.ALL, which is the default"
            )
        self._client = client
        self._submit_now = client.submit_now
        self._policy = policy
        self._retry = retry
        self.supervisor = client.network.supervisor
        self.closed = False
        self._checked: set[str] = set()
        """Streams whose oldest messages do not look compacted."""

    def check(self, headers: Mapping[str, bytes] | None = None) -> None:
        """Refuse to send when closed, and headers that are not the user's to write.

        Raises:
            UsageError: it is closed.
            InvalidRequest: headers of transactions are given.
        """
        if self.closed:
            raise UsageError("the producer is closed")
        if headers and not TRANSACTION_HEADERS.isdisjoint(headers):
            names = ", ".join(sorted(TRANSACTION_HEADERS.intersection(headers)))
            raise InvalidRequest(
                f"the headers of transactions are the producer's own, not yours: {names}"
            )

    def partition_now(
        self,
        stream: str,
        key: bytes | None,
        partition: int | None,
        partitioner: Partitioner | None,
    ) -> int | None:
        """Return the partition of a message; None where something must be asked for it."""
        if partitioner is not None or stream not in self._checked:
            return None
        return self._client.publisher.partition_now(stream, key, partition)

    async def partition_of(
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        partition: int | None,
        partitioner: Partitioner | None,
        timeout: Duration | None = None,
    ) -> int:
        """Return the partition of a message. Cancelling abandons the calls that may be needed.

        Raises:
            CompactedStream: the stream is compacted, as far as its oldest messages show.
            LiftbridgeError: as for `Client.publish`.
        """
        message = OutgoingMessage(
            stream, value, key, partition=partition, partitioner=partitioner, timeout=timeout
        )
        chosen = await self._client.publisher.partition_of(message)
        if stream not in self._checked:
            if await looks_compacted(self._client.network, stream, chosen):
                raise CompactedStream(
                    "the stream is compacted, which could take what a transaction has committed",
                    stream=stream,
                    partition=chosen,
                )
            self._checked.add(stream)
        return chosen

    def send_now(
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int,
        uuid: bytes,
    ) -> AckFuture | None:
        """Send a message; return None if something has to be awaited for that."""
        options: PublishOptions = {"partition": partition, "ack_policy": self._policy}
        return self._submit_now(stream, value, key, headers, options, encode_uuid_header(uuid))

    async def send(
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int,
        uuid: bytes,
        timeout: Duration | None = None,
        *,
        again: bool = False,
    ) -> AckFuture:
        """Send a message, once there is room for it. Cancelling leaves nothing behind.

        Args:
            stream: where to.
            value: the message.
            key: see `Client.publish`.
            headers: those of the user.
            partition: where to.
            uuid: its place among the messages of its producer.
            timeout: seconds for each time that it is sent.
            again: send it again while its outcome is unknown.
        """
        message = OutgoingMessage(
            *(stream, value, key, headers, partition),
            ack_policy=self._policy,
            own_headers={UUID_HEADER: uuid},
            retry=self._retry if again else None,
            timeout=timeout,
        )
        return await self._client.submit(message)

    async def write_acks(self, intents: Iterable[AckIntent]) -> WrittenAcks:
        """Write acks and wait for the outcome of each. Cancelling abandons the wait."""
        entries: dict[Place, list[AckEntry]] = {}
        for stream, partition, entry in intents:
            entries.setdefault((stream, partition), []).append(entry)
        written = WrittenAcks()
        acks = [(place, value) for place, each in entries.items() for value in ack_values(each)]
        await asyncio.gather(*(self._write_ack(*place, value, written) for place, value in acks))
        return written

    async def _write_ack(
        self, stream: str, partition: int, value: bytes, written: WrittenAcks
    ) -> None:
        message = OutgoingMessage(
            *(stream, value, None, None, partition),
            ack_policy=self._policy,
            quiet=True,
            own_headers=ACK_HEADERS,
        )
        try:
            attempt = await self._client.submit(message)
            attempt.add_done_callback(_look_at_error)  # should the wait be cancelled
            # A cancellation must not take it back: others may be stored.
            await asyncio.wait([attempt])
            attempt.result()
        except PublishOutcomeUnknown:
            written.sent_once = False
        except LiftbridgeError as error:
            written.refusals.append(error)
            return
        else:
            written.stored += 1
            return
        message.retry = self._retry
        try:
            await (await self._client.submit(message))
        except LiftbridgeError as error:
            written.unknown.append(error)
        else:
            written.stored += 1

    def write_rollbacks(self, intents: Iterable[AckIntent]) -> Child | None:
        """Begin to write acks on which nothing depends; return who does, unless closed."""

        async def write() -> None:
            written = await self.write_acks(intents)
            for error in written.refusals + written.unknown:
                logger.debug("a rollback was not written: %s", error)

        try:
            return self.supervisor.spawn(write, name="rollback")
        except LiftbridgeError as error:
            logger.debug("a rollback was not written: %s", error)
            return None


def take_back(future: AckFuture) -> None:
    """Cancel a message that is not settled, and see to it that nobody reports its error."""
    if future.cancel():
        future.add_done_callback(_look_at_error)
    else:
        _look_at_error(future)


def _look_at_error(future: AckFuture) -> None:
    if not future.cancelled():
        future.exception()
