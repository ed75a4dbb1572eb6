"""Publishing straight over NATS: `NatsPublisher`, what users see of it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, overload

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_text,
    check_type,
    check_whole_number,
    names,
)
from liftbridge_aio._core.event_loop import bound_to_process, forked, running_loop
from liftbridge_aio._core.message_check import check_content, checked_policy
from liftbridge_aio._publish.window import Window
from liftbridge_aio.errors import ClientClosed, InvalidRequest, PublishManyFailed, UsageError
from liftbridge_aio.model import Ack, Acked, AckPolicy, Partitioner, StreamInfo
from liftbridge_aio.options import Duration, timer_seconds

from .core.destinations import destination
from .core.stream_acks import StreamAcks
from .in_flight import MessagesInFlight, NatsPublisherStatistics
from .library import NatsConnection
from .link import NatsLink, check_connect_arguments
from .options import NatsPublisherOptions
from .session import NatsSession


class NatsPublisher:
    """Publishes straight to the NATS subjects of streams, past the Liftbridge API.

        async with NatsPublisher("nats://127.0.0.1:4222") as publisher:
            ack = await publisher.publish("orders", b"3 rolls")

    The guide (`docs/nats.md`) says when that is the right way. Nothing looks after
    the message between here and the log: an ack is the only sign that it is stored. The embedded
    broker has no NATS and cannot be reached this way.

    Belongs to the event loop in which it is opened. Every error is a `LiftbridgeError`.
    """

    def __init__(
        self,
        connection: NatsConnection | str | Iterable[str],
        *,
        options: NatsPublisherOptions | None = None,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to publish over; nothing is opened yet.

        Args:
            connection: a connected `nats.aio.client.Client`, which stays yours and is never closed
                here; or one address or several (`nats://host:4222`), to which the publisher
                connects, and from which it disconnects when it is closed.
            options: how it behaves.
            connect: further arguments for nats-py's `connect`, such as `user`, `password`, `tls` or
                `reconnect_time_wait`; only with addresses. With `tls`, `tls_hostname` or
                `tls_handshake_first`, or a `tls://` address among them, nothing is sent to a
                server without TLS.

        Raises:
            InvalidRequest: these do not go together.
            WrongType: an argument has the wrong type.
        """
        if isinstance(connection, NatsConnection):
            if connect is not None:
                raise InvalidRequest("connect= is for addresses; this connection is there already")
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
        self.options = options if options is not None else NatsPublisherOptions()
        check_type(self.options, NatsPublisherOptions, "options is a NatsPublisherOptions")
        self._session: NatsSession | None = None
        self._opening = False
        self._closed = False
        self._forked = False
        """True in a forked child, where the connection is the parent's."""

    def __repr__(self) -> str:
        """Return the representation for debugging."""
        state = "closed" if self._closed else "new" if self._session is None else "open"
        return f"<NatsPublisher {state} in_flight={self.statistics().in_flight}>"

    # Life

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
        """Connect, if there is no connection yet, and begin to listen for acks.

        Does nothing if it is open. Cancelling closes it.

        Raises:
            ConnectionFailed: no NATS server answered (`ConnectTimeout`: in time; `TLSFailed`: with
                the TLS asked for), or the connection given is closed.
            ClientClosed: it was closed before, or meanwhile.
            UsageError: another task is opening it, or no asyncio event loop is running, as under
                trio.
        """
        running_loop("a NatsPublisher")
        if self._closed:
            raise _closed("the publisher is closed")
        if self._session is not None:
            return
        if self._opening:
            raise UsageError("another task is opening the publisher")
        self._opening = True
        try:
            await self._link.open(timer_seconds(self.options.connect_timeout))
            self._session = NatsSession(self._link, self.options)
            bound_to_process.add(self)
            await self._session.start()
            if self._closed:
                raise _closed("the publisher was closed while it was being opened")
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close: refuse new messages, wait for acks, and leave no task behind.

        Acks are awaited for close_timeout seconds; what is unsettled then fails with
        `PublishOutcomeUnknown`, or with `PublishNotSent` if NATS never had it. Raises nothing for
        them. A connection that was given stays open. May be called any number of times and from any
        task. Cancelling cuts the wait for acks short; the rest is done all the same.
        """
        session = self._session
        if self._forked:
            return
        if session is not None and session.loop is not asyncio.get_running_loop():
            if session.loop.is_closed():
                return
            raise UsageError("a publisher is closed in the event loop in which it was opened")
        self._closed = True
        if session is not None:
            await session.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def statistics(self) -> NatsPublisherStatistics:
        """Return a snapshot of the statistics."""
        if self._session is None:
            return MessagesInFlight(Window(1, 1)).statistics()
        return self._session.statistics()

    # Publishing

    @overload
    async def publish(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        partition: int | None = ...,
        partitioner: Partitioner | None = ...,
        ack_policy: Acked = ...,
        ack_timeout: Duration | None = ...,
        expected_offset: int | None = ...,
        correlation_id: str | None = ...,
        stream: str | None = ...,
    ) -> Ack: ...

    @overload
    async def publish(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        partition: int | None = ...,
        partitioner: Partitioner | None = ...,
        ack_policy: AckPolicy = ...,
        ack_timeout: Duration | None = ...,
        expected_offset: int | None = ...,
        correlation_id: str | None = ...,
        stream: str | None = ...,
    ) -> Ack | None: ...

    async def publish(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        stream: str | None = None,
    ) -> Ack | None:
        """Publish a message in an envelope and wait for its ack.

        Cancelling takes the message back if NATS does not have it yet; after that only the wait is
        abandoned.

        Args:
            target: a subject, taken as it is; or a stream as `Client.fetch_metadata` tells of it,
                whose partitions listen on `subject`, `subject.1`, `subject.2`, …
            value: the message.
            key: decides the partition if nothing else does, and what compaction keeps.
            headers: anything but `subject` and `reply`, which the server writes itself.
            partition: of the stream; beats every partitioner.
            partitioner: None: the publisher's, else by key, else partition 0.
            ack_policy: when the server confirms. With NONE this returns None once NATS has the
                message; refusals that come later are raised by `flush`.
            ack_timeout: seconds from then to the ack; None is the publisher's.
            expected_offset: the offset that the message must get, on streams with optimistic
                concurrency control; None: any (-1 on the wire).
            correlation_id: comes back in the ack; None: made here. One that was used among the
                last 16,384 is refused: the acks of that message may still come.
            stream: for a subject, the stream whose ack counts. None: the first ack does, also if it
                says no; with several streams on the subject it may be anybody's.

        Returns:
            The ack; None with ack policy NONE.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            NobodyListens: no partition listens on the subject; it is certainly not stored.
            AckTimeout: no ack in time: stored or not, nobody knows. A read-only partition never
                answers.
            PublishOutcomeUnknown: the NATS connection was closed before the ack.
            PublishTimeout: no room in the window, or no NATS, for publish_timeout.
            IncorrectOffset: the expected offset was not the next one.
            ConnectionFailed: the NATS connection is closed.
            LiftbridgeError: the server refused it.
        """
        ack: Ack | None = await (
            await self.submit(
                target,
                value,
                key,
                headers,
                partition,
                partitioner,
                ack_policy,
                ack_timeout,
                expected_offset,
                correlation_id,
                stream,
            )
        )
        return ack

    @overload
    async def submit(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        partition: int | None = ...,
        partitioner: Partitioner | None = ...,
        ack_policy: Acked = ...,
        ack_timeout: Duration | None = ...,
        expected_offset: int | None = ...,
        correlation_id: str | None = ...,
        stream: str | None = ...,
    ) -> asyncio.Future[Ack]: ...

    @overload
    async def submit(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        partition: int | None = ...,
        partitioner: Partitioner | None = ...,
        ack_policy: AckPolicy = ...,
        ack_timeout: Duration | None = ...,
        expected_offset: int | None = ...,
        correlation_id: str | None = ...,
        stream: str | None = ...,
    ) -> asyncio.Future[Ack | None]: ...

    async def submit(
        self,
        target: str | StreamInfo,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        stream: str | None = None,
    ) -> asyncio.Future[Any]:
        """Publish a message and return the future of its ack, once there is room in the window.

        Messages go out in the order of these calls. Arguments and errors are those of `publish`;
        what goes wrong before the message is registered is raised here, the rest by the future.
        Cancelling this call leaves nothing behind; cancelling the future takes the message back if
        NATS does not have it yet.
        """
        session = self._living
        chosen = partitioner if partitioner is not None else self.options.partitioner
        check_content(value, key, headers)
        place = destination(
            target, value, key=key, partition=partition, partitioner=chosen, stream=stream
        )
        message = session.messages.envelope(
            place, value, key, headers, ack_policy, ack_timeout, expected_offset, correlation_id
        )
        await session.register(message)
        return message

    async def publish_to_all(
        self,
        subject: str,
        value: bytes,
        streams: Iterable[str] | int,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
    ) -> list[Ack]:
        """Publish a message to a subject of several streams and wait for the acks of all.

        Cancelling does what it does to `publish`.

        Args:
            subject: all of the streams have it.
            value: the message.
            streams: whose acks are waited for; or how many there must be, whoever sends them.
            key: its key.
            headers: anything but `subject` and `reply`.
            ack_policy: LEADER or ALL.
            ack_timeout: seconds for all acks together; None is the publisher's.

        Returns:
            The acks, in the order of `streams`; with a number, in the order in which they came.

        Raises:
            PublishManyFailed: not every stream has said yes; its `outcomes` has the ack or the
                error of each, in the same order, and its cause is the first error.
            NobodyListens: no stream at all has the subject.
            LiftbridgeError: as for `publish`.
        """
        session = self._living
        check_content(value, key, headers)
        wanted = _wanted_streams(streams)
        if checked_policy(ack_policy) is AckPolicy.NONE:
            raise InvalidRequest("acks are waited for, so they must be asked for")
        place = destination(subject, value)
        message = session.messages.envelope(place, value, key, headers, ack_policy, ack_timeout)
        message.several = acks = StreamAcks(wanted)
        await session.register(message)
        await message
        outcomes = acks.outcomes()
        stored = [outcome for outcome in outcomes if isinstance(outcome, Ack)]
        failed = [outcome for outcome in outcomes if not isinstance(outcome, Ack)]
        if failed:
            text = f"{len(failed)} of {len(outcomes)} streams have not stored the message"
            error = PublishManyFailed(text)
            error.outcomes = outcomes
            raise error from failed[0]
        return stored

    async def publish_plain(self, subject: str, value: bytes, *, reply: str = "") -> None:
        """Publish a plain NATS message, as programs do that know nothing of Liftbridge.

        Streams store its bytes as the value, without key, correlation id or headers of its own.
        **Nothing is acked**: this returns once NATS has the message, and `flush` once the NATS
        server has; whether anybody stored it, nobody says. Streams with optimistic concurrency
        control refuse it in silence, unless they are empty.

        Cancelling takes the message back if NATS does not have it yet.

        Args:
            subject: all streams that have it store the message.
            value: anything but an envelope, which servers would unpack.
            reply: a NATS subject for replies; readers see it as `Message.reply_subject`.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishTimeout: no room in the window, or no NATS, for publish_timeout.
            ConnectionFailed: the NATS connection is closed.
        """
        session = self._living
        message = session.messages.plain(subject, value, reply)
        await session.register(message)
        await message

    def _abandon(self) -> None:
        """Refuse every use in a forked child."""
        self._closed = self._forked = True

    @property
    def _living(self) -> NatsSession:
        if self._forked:
            raise _closed(forked("the publisher"))
        if self._closed:
            raise _closed("the publisher is closed")
        if self._session is None:
            raise _closed("the publisher is not open yet")
        self._session.check()
        return self._session

    async def flush(self) -> None:
        """Wait until every publish so far is settled, and until the NATS server has the rest.

        The rest is what nobody acks: plain messages, and those with ack policy NONE. That the NATS
        server has them does not say that anybody stored them. Cancelling abandons the wait.

        Raises:
            LiftbridgeError: the first failure since the last flush that nobody has retrieved yet,
                refusals of messages with ack policy NONE among them.
            AckTimeout: the NATS server did not say within ack_timeout that it has the rest.
            ClientClosed: the publisher is closed.
        """
        if self._closed or self._session is None:
            raise _closed("the publisher is closed, or not open yet")
        await self._session.flush()


def _wanted_streams(streams: Iterable[str] | int) -> tuple[str, ...] | int:
    if isinstance(streams, int):
        check_whole_number(streams, "a number of streams", 1, INT64_MAX)
        return streams
    wanted = tuple(names(streams, "a stream name"))
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidRequest("streams are at least one name, each of them once")
    return wanted


def _closed(text: str) -> ClientClosed:
    error = ClientClosed(text)
    error.hint = "use `async with NatsPublisher(...)`, or open() first; a closed one stays closed"
    return error
