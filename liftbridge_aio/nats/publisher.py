"""Publishing straight over NATS: `NatsPublisher`, which sends envelopes and takes acks in."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_bytes,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio._core.message_check import checked_policy
from liftbridge_aio._core.names import subject_problem
from liftbridge_aio._runtime.event_loop import bound_to_process, forked, running_loop
from liftbridge_aio._runtime.nats_library import Msg, NatsConnection
from liftbridge_aio._runtime.nats_library import errors as nats_errors
from liftbridge_aio._runtime.nats_link import LinkState, NatsLink, check_connect_arguments
from liftbridge_aio.errors import (
    AckTimeout,
    ClientClosed,
    EncryptionFailed,
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    PublishError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishRefused,
    UsageError,
)
from liftbridge_aio.model import Ack, Acked, AckError, AckPolicy, StreamInfo
from liftbridge_aio.options import Duration, seconds, timer_seconds
from liftbridge_aio.wire.envelope import decode_ack, encode_message, is_envelope

from .core.destinations import Destination, check_subject, destination
from .errors import HINT_FOR_UNKNOWN, NobodyListens

logger = logging.getLogger("liftbridge_aio.nats")

_NO_RESPONDERS: Final = "503"
_CLOSE_TIMEOUT: Final = 5.0

_REFUSALS: Final[Mapping[AckError, type[LiftbridgeError]]] = {
    AckError.INCORRECT_OFFSET: IncorrectOffset,
    AckError.TOO_LARGE: MessageTooLarge,
    AckError.ENCRYPTION: EncryptionFailed,
}


class NatsPublisher:
    """Publishes to the NATS subjects of streams, without the Liftbridge API.

        async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
            ack = await publisher.publish("orders", b"3 rolls")

    The guide (`docs/nats.md`) compares it with `Client.publish`. The embedded broker has no NATS,
    so it cannot be reached this way. nats-py does the flow control: it buffers 2 MiB, also while it
    reconnects. A publisher belongs to the event loop in which it is opened.
    """

    def __init__(
        self,
        connection: NatsConnection | str | Iterable[str],
        *,
        ack_timeout: Duration = 5.0,
        connect_timeout: Duration = 5.0,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the arguments; nothing is opened yet.

        Args:
            connection: addresses (`nats://host:4222`) to connect to, one or several; or a connected
                `nats.aio.client.Client`, which is never closed here.
            ack_timeout: seconds from the call to the ack.
            connect_timeout: seconds to connect to NATS.
            connect: further arguments of nats-py's `connect`, such as `user`, `password` or `tls`;
                only with addresses. If one of them, or a `tls://` address, asks for TLS, nothing is
                sent to a server without it.

        Raises:
            InvalidRequest: the arguments contradict each other.
            WrongType: an argument has the wrong type.
        """
        if isinstance(connection, NatsConnection):
            if connect is not None:
                raise InvalidRequest("connect= is for addresses, and a connection was given")
            self._link = NatsLink(connection, {})
        else:
            text = "the first argument is a connection of nats-py or addresses of NATS servers"
            check_type(connection, Iterable, text)
            servers = [connection] if isinstance(connection, str) else list(connection)
            if not servers:
                raise InvalidRequest("give the address of a NATS server, or a connection")
            for server in servers:
                check_text(server, "the address of a NATS server")
            check_connect_arguments(servers, connect)
            self._link = NatsLink(servers, dict(connect or {}))
        self._ack_timeout = _positive(ack_timeout, "ack_timeout")
        self._connect_timeout = _positive(connect_timeout, "connect_timeout")
        self._loop: asyncio.AbstractEventLoop | None = None
        """Set by `open`, which runs once."""
        self._inbox = ""
        """The subject of which each message gets a child for its ack; set when it is connected."""
        self._count = 0
        """The messages so far; numbers their inboxes."""
        self._waiting: dict[str, _Publish] = {}
        """The publishes that wait for an ack, by inbox."""
        self._closed: str | None = None
        """The reason why it is closed; None until then."""

    def __repr__(self) -> str:
        """Return the state and the number of publishes that wait for an ack."""
        state = "closed" if self._closed else "open" if self._inbox else "new"
        return f"<NatsPublisher {state} in_flight={len(self._waiting)}>"

    async def __aenter__(self) -> Self:
        """Open; see `open`."""
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def open(self) -> None:
        """Connect, if a connection was not given, and subscribe to the ack inbox.

        Does nothing if it is open. Cancelling closes it.

        Raises:
            ConnectionFailed: no NATS server answered (`ConnectTimeout`: in time; `TLSFailed`: with
                the TLS asked for), or the connection that was given is closed.
            ClientClosed: it was closed before, or meanwhile.
            UsageError: another task is opening it, or no asyncio event loop is running.
        """
        loop = running_loop("a NatsPublisher")
        self._check_not_closed()
        if self._inbox:
            return
        if self._loop is not None:
            raise UsageError("another task is opening the publisher")
        self._loop = loop
        bound_to_process.add(self)
        try:
            await self._link.open(self._connect_timeout)
            inbox = self._link.connection.new_inbox()
            await self._link.listen(f"{inbox}.*", self._receive)
            self._check_not_closed()
            self._inbox = inbox
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close: publishes that wait for an ack fail with `PublishOutcomeUnknown`.

        nats-py sends what it has buffered, for 5 seconds at most. A connection that was given stays
        open. Idempotent. Cancelling takes effect after that.
        """
        if self._closed and self._closed == forked("the publisher"):
            return
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if self._loop.is_closed():
                return
            raise UsageError("a publisher is closed in the event loop in which it was opened")
        self._closed = "the publisher is closed"
        for publish in self._waiting.values():
            publish.settle(PublishOutcomeUnknown("the publisher was closed before the ack came"))
        await self._link.close(_CLOSE_TIMEOUT)

    def __del__(self) -> None:
        if getattr(self, "_inbox", "") and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def _abandon(self) -> None:
        """Refuse every use in a forked child, where the connection is the parent's."""
        self._closed = forked("the publisher")

    # Publishing

    async def publish(
        self,
        target: str | StreamInfo,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        ack_policy: Acked = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        stream: str | None = None,
    ) -> Ack:
        """Publish a message in an envelope and wait for its ack.

        Messages go out in the order of the calls. Cancelling abandons the wait; the message may be
        stored all the same.

        Args:
            target: a subject; or a stream from `Client.fetch_metadata`, whose partitions listen on
                `subject`, `subject.1`, `subject.2`, …
            value: the message.
            key: decides the partition unless `partition` does, and what compaction keeps.
            headers: anything but `subject` and `reply`, which the server writes itself.
            partition: of the stream; None: by key, or 0 without one.
            ack_policy: LEADER or ALL.
            ack_timeout: seconds to the ack; None is the publisher's.
            expected_offset: the offset that the message must get, on streams with optimistic
                concurrency control; None: any (-1 on the wire).
            correlation_id: comes back in the ack; None: made here.
            stream: for a subject, the stream whose ack counts. None: the first ack; if several
                streams have the subject, that may be the ack of any of them.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            NobodyListens: no partition listens on the subject; it is not stored.
            AckTimeout: no ack in time, the outcome is unknown. A read-only partition never answers.
            PublishOutcomeUnknown: the publisher was closed before the ack came.
            PublishNotSent: nats-py did not take it, because its buffer is full.
            IncorrectOffset: the expected offset was not the next one.
            ConnectionFailed: the NATS connection is closed.
            LiftbridgeError: the server refused it.
        """
        policy = checked_policy(ack_policy)
        if policy is AckPolicy.NONE:
            raise InvalidRequest("without an ack there is nothing to wait for: publish_unacked()")
        if expected_offset is not None:
            check_whole_number(expected_offset, "an expected offset", 0, INT64_MAX)
        check_text(correlation_id or "", "a correlation id")
        timeout = self._ack_timeout
        if ack_timeout is not None:
            timeout = timer_seconds(ack_timeout, "ack_timeout")
        place = destination(target, key=key, partition=partition, stream=stream)
        self._check_open()
        self._count += 1
        number = str(self._count)
        inbox = f"{self._inbox}.{number}"
        data = encode_message(
            value,
            key=key,
            headers=headers,
            ack_inbox=inbox,
            correlation_id=correlation_id or number,
            ack_policy=policy,
            expected_offset=expected_offset,
        )
        self._waiting[inbox] = publish = _Publish(place.subject, place.stream, self._loop)
        try:
            async with asyncio.timeout(timeout):
                # The ack inbox is the reply subject too: there NATS tells that nobody listens.
                await self._send(place, data, inbox)
                outcome = await publish.outcome
        except TimeoutError:
            outcome = AckTimeout(
                f"no ack from subject {place.subject!r} within {timeout:g} s: the leader may be"
                f" gone, or the partition read-only{self._excuse()}"
            )
        finally:
            del self._waiting[inbox]
        if isinstance(outcome, Ack):
            return outcome
        if isinstance(outcome, PublishError):
            outcome.correlation_id = correlation_id or number
        if isinstance(outcome, PublishOutcomeUnknown):
            outcome.hint = HINT_FOR_UNKNOWN
        raise outcome.at(place.stream, place.partition)

    async def publish_unacked(
        self,
        target: str | StreamInfo,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
    ) -> None:
        """Publish a message in an envelope that asks for no ack: the guide's policy NONE.

        Nobody tells whether it is stored. `flush` waits until the NATS server has it. Cancelling
        may leave it unsent or not. Arguments as in `publish`.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishNotSent: nats-py did not take it, because its buffer is full.
            PublishOutcomeUnknown: the server read nothing for `ack_timeout`.
            ConnectionFailed: the NATS connection is closed.
        """
        place = destination(target, key=key, partition=partition)
        self._check_open()
        data = encode_message(value, key=key, headers=headers, ack_policy=AckPolicy.NONE)
        await self._hand_over(place, data)

    async def publish_plain(self, subject: str, value: bytes, *, reply: str = "") -> None:
        """Publish a NATS message without an envelope, as programs do that know no Liftbridge.

        Streams store its bytes as the value, without key and headers. Nobody tells whether it is
        stored. Streams with optimistic concurrency control refuse it without a word unless they
        are empty. Cancelling may leave it unsent or not.

        Args:
            subject: all streams that have it store the message.
            value: anything but an envelope, which servers would unpack.
            reply: a NATS subject for replies; readers see it as `Message.reply_subject`.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishNotSent: nats-py did not take it, because its buffer is full.
            PublishOutcomeUnknown: the server read nothing for `ack_timeout`.
            ConnectionFailed: the NATS connection is closed.
        """
        check_text(subject, "a subject")
        check_subject(subject)
        check_bytes(value, "a value")
        check_text(reply, "a reply subject")
        problem = subject_problem(reply) if reply else None
        if problem is not None:
            raise InvalidRequest(f"{reply!r} is no subject for replies: {problem}")
        if is_envelope(value):
            raise InvalidRequest("servers unpack a value that begins like an envelope: publish()")
        self._check_open()
        await self._hand_over(Destination(subject, None, None), value, reply)

    async def flush(self) -> None:
        """Wait until the NATS server has everything that was published without an ack.

        Cancelling abandons the wait.

        Raises:
            AckTimeout: the NATS server did not confirm that within `ack_timeout`.
            ConnectionFailed: the NATS connection is closed.
            ClientClosed: the publisher is closed.
        """
        self._check_open()
        try:
            async with asyncio.timeout(self._ack_timeout):
                await self._link.prove()
        except (TimeoutError, nats_errors.Error) as error:
            unproven = AckTimeout(
                f"the NATS server did not confirm what was published without an ack{self._excuse()}"
            )
            unproven.hint = "flush again, or look for the messages before you publish them again"
            raise unproven from error

    async def _hand_over(self, place: Destination, data: bytes, reply: str = "") -> None:
        """Send what nobody acks, within the time of an ack."""
        try:
            async with asyncio.timeout(self._ack_timeout):
                await self._send(place, data, reply)
        except TimeoutError:
            unknown = PublishOutcomeUnknown(
                f"nats-py could not write within {self._ack_timeout:g} s{self._excuse()}"
            )
            unknown.hint = HINT_FOR_UNKNOWN
            raise unknown.at(place.stream, place.partition) from None

    async def _send(self, place: Destination, data: bytes, reply: str = "") -> None:
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        try:
            await self._link.connection.publish(place.subject, data, reply)
            if task and task.cancelling() > cancelled:  # which nats-py swallows while it flushes
                raise asyncio.CancelledError
        except nats_errors.Error as error:
            kind: type[LiftbridgeError] = PublishNotSent
            if isinstance(error, nats_errors.MaxPayloadError):
                kind = MessageTooLarge
            elif isinstance(error, nats_errors.BadSubjectError):
                kind = InvalidRequest
            text = f"nats-py refused the message of {len(data)} bytes: {error}{self._excuse()}"
            raise kind(text, stream=place.stream, partition=place.partition) from error

    async def _receive(self, arrived: Msg) -> None:
        """Settle the publish whose ack inbox got a message; others were given up."""
        publish = self._waiting.get(arrived.subject)
        if publish is None:
            return
        if arrived.headers is not None and arrived.headers.get("Status") == _NO_RESPONDERS:
            publish.settle(
                NobodyListens(
                    f"nobody listens on subject {publish.subject!r}: no stream has it, or its"
                    " partition is paused or without a leader"
                )
            )
            return
        try:
            ack = decode_ack(arrived.data)
        except MalformedData as error:
            logger.warning("a message to an ack inbox is no ack: %s", error)
            return
        if publish.stream is None or publish.stream == ack.stream:
            publish.settle(ack if ack.ack_error is AckError.OK else _refusal(ack))

    def _check_not_closed(self) -> None:
        if self._closed:
            raise _closed(self._closed)

    def _check_open(self) -> None:
        self._check_not_closed()
        if not self._inbox:
            raise _closed("the publisher is not open yet")
        self._link.check()

    def _excuse(self) -> str:
        """Return the probable cause of a failure, for the end of a text."""
        if self._link.state is LinkState.AWAY:
            return f"; {self._link.outage}"
        error = self._link.last_error
        return f"; NATS said: {error}" if error is not None else ""


class _Publish:
    """A publish that waits for its ack."""

    def __init__(
        self, subject: str, stream: str | None, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.subject = subject
        self.stream = stream
        """The stream whose ack counts; None: whichever comes first."""
        self.outcome: asyncio.Future[Ack | LiftbridgeError] = asyncio.Future(loop=loop)

    def settle(self, outcome: Ack | LiftbridgeError) -> None:
        """Set the outcome; only the first one counts."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def _refusal(ack: Ack) -> LiftbridgeError:
    text = f"the server refused the message: its ack says {ack.ack_error.name}"
    kind = _REFUSALS.get(ack.ack_error)
    if kind is not None:
        return kind(text, stream=ack.stream)
    refused = PublishRefused(text, stream=ack.stream)
    refused.code = ack.ack_error.name
    return refused


def _positive(timeout: Duration, name: str) -> float:
    if seconds(timeout, name) == 0:
        raise InvalidRequest(f"{name} must be longer than 0 seconds")
    return timer_seconds(timeout, name)


def _closed(text: str) -> ClientClosed:
    error = ClientClosed(text)
    error.hint = "use `async with NatsPublisher(...)`, or open() first; a closed one stays closed"
    return error
