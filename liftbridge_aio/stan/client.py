"""The client of NATS Streaming, as users see it."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from liftbridge_aio._core.arguments import (
    check_bytes,
    check_callable,
    check_text,
    check_type,
    names,
)
from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS
from liftbridge_aio._runtime.event_loop import bound_to_process, forked, running_loop
from liftbridge_aio._runtime.nats_library import NatsConnection
from liftbridge_aio._runtime.nats_link import check_connect_arguments
from liftbridge_aio.errors import ClientClosed, InvalidRequest, LiftbridgeError, UsageError
from liftbridge_aio.options import Duration, timer_seconds

from .core.names import client_id_problem, reply_problem
from .core.start import StartAt
from .core.states import ClientState
from .events import Event
from .link import StreamingLink
from .options import ClientOptions, SubscriptionPlan, check_channel, whole_seconds
from .publisher import Publish, PublishCounts
from .runtime import ClientRuntime
from .subscription import Subscription

logger = logging.getLogger("liftbridge_aio.stan")

_MOST_CHANNELS: Final = 1024
"""Names of channels that are remembered as checked."""


class ClientStatistics(NamedTuple):
    """Figures of a client."""

    state: ClientState
    subscriptions: int
    """Open subscriptions; each has statistics of its own."""
    publishes: PublishCounts


class Client:
    """A client of a NATS Streaming server: publishes to channels and subscribes to them.

        async with stan.Client(
            "nats://127.0.0.1:4222", cluster="test-cluster", client_id="worker-1"
        ) as client:
            await client.publish("orders", b"3 rolls")
            async with client.subscribe("orders", durable="billing") as orders:
                async for message in orders:
                    print(message.data)

    A session that the server does not know any more is replaced by another one, with its
    subscriptions, unless `ClientOptions.recover` is off. Belongs to the event loop in which it is
    connected. Every error is a `LiftbridgeError`.
    """

    def __init__(
        self,
        connection: NatsConnection | str | Iterable[str],
        *,
        cluster: str,
        client_id: str,
        options: ClientOptions | None = None,
        connect: Mapping[str, Any] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        """Keep what to use; nothing is opened yet.

        Args:
            connection: one address of NATS or several (`nats://host:4222`), to which the client
                connects, and from which it disconnects when it is closed; or a connected
                `nats.aio.client.Client`, which stays yours and is never closed here.
            cluster: the id of the streaming cluster, `test-cluster` unless the server is told
                otherwise.
            client_id: a name that no other client of the cluster uses at the same time. Durables
                belong to it.
            options: how it behaves.
            connect: further arguments for nats-py's `connect`, such as `user`, `password`,
                `user_credentials`, `tls` or `reconnect_time_wait`; only with addresses. The `name`
                of the connection is the client id unless it is given here.
            on_event: called with each event (`stan.Lost`, `stan.Recovered` and others), in the
                event loop; it must not block. What it raises is logged.

        Raises:
            InvalidRequest: an argument is invalid, or they do not go together.
            WrongType: an argument has the wrong type.
        """
        for value, name in ((cluster, "cluster"), (client_id, "client_id")):
            check_text(value, name)
            problem = client_id_problem(value)
            if problem:
                raise InvalidRequest(f"{name} is {value!r}: {problem}")
        if isinstance(connection, NatsConnection):
            if connect is not None:
                raise InvalidRequest("connect= goes with addresses, not with a connection")
            target: NatsConnection | list[str] = connection
        else:
            addresses = [connection] if isinstance(connection, str) else connection
            target = names(addresses, "an address")
            if not target:
                raise InvalidRequest("at least one address is needed")
            check_connect_arguments(target, connect)
        if options is not None:
            check_type(options, ClientOptions, "options are stan.ClientOptions")
        if on_event is not None:
            check_callable(on_event, "on_event")
        self.cluster = cluster
        self.client_id = client_id
        self.options = options or ClientOptions()
        self._on_event = on_event
        arguments = {"name": client_id, **(connect or {})}
        self._link = StreamingLink(target, arguments, self._not_permitted)
        self._runtime: ClientRuntime | None = None
        self._forked = False
        """True in a forked child, where the session is the parent's."""
        self._channels: set[str] = set()
        """Channels that were checked."""
        self._connecting = False
        self._closed = False

    def __repr__(self) -> str:
        """Return id, cluster and state."""
        return f"<stan.Client {self.client_id!r} of {self.cluster!r} {self.state.value}>"

    @property
    def state(self) -> ClientState:
        """The state."""
        if self._runtime is None:
            return ClientState.CLOSED if self._closed else ClientState.NEW
        return self._runtime.state

    def statistics(self) -> ClientStatistics:
        """Return a snapshot of the statistics."""
        runtime = self._runtime
        if runtime is None:
            return ClientStatistics(self.state, 0, PublishCounts.empty())
        publishes = runtime.publisher.statistics()
        return ClientStatistics(runtime.state, len(runtime.subscriptions), publishes)

    # Life

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`. An exception of the block is not replaced by one of closing."""
        try:
            await self.aclose()
        except LiftbridgeError as error:
            if exc is None:
                raise
            logger.warning("while closing %r: %s", self, error)

    async def connect(self) -> None:
        """Connect to NATS, if there is no connection yet, and open a session at the server.

        Does nothing if it is connected. Cancelling closes it.

        Raises:
            NoStreamingServer: NATS answers, and no streaming server of the cluster does.
            ClientIdTaken: another client with this id is connected, and answers the server.
            StreamingError: the server refused it for another reason.
            RequestNotPermitted: NATS does not let this user send the request.
            ConnectionFailed: no NATS server answered (`ConnectTimeout`: in time; `TLSFailed`: with
                the TLS asked for), or the connection that was given is not open.
            ClientClosed: it was closed before, or meanwhile.
            UsageError: another task is connecting it, or no asyncio event loop is running.
        """
        running_loop("a stan.Client")
        if self._closed:
            raise _closed("the client is closed")
        if self._connecting:
            raise UsageError("another task is connecting the client")
        if self._runtime is not None:
            return
        self._connecting = True
        try:
            await self._link.open(timer_seconds(self.options.connect_timeout))
            runtime = ClientRuntime(
                self._link, self.cluster, self.client_id, self.options, self._tell
            )
            self._runtime = runtime
            bound_to_process.add(self)
            await runtime.start()
            if self._closed:
                raise _closed("the client was closed while it was being connected")
        except BaseException:
            self._connecting = False
            await self.aclose()
            raise
        self._connecting = False

    async def aclose(self) -> None:
        """Close: refuse new publishes, wait for acks, leave the server, and end all tasks.

        Acks are awaited for close_timeout seconds; what is unsettled then fails with
        `PublishOutcomeUnknown`, or with `PublishNotSent` if it was never sent. Subscriptions end;
        durables stay at the server. A connection that was given stays open. May be called any
        number of times and from any task; the first call raises. Cancelling cuts the wait for acks
        short; the rest is done all the same.

        Raises:
            CloseTimeout: the server did not confirm it; everything is released here all the same.
            StreamingError: the server refused it; same.
            UsageError: another event loop is running than the one in which it was connected.
        """
        runtime = self._runtime
        if self._forked:
            return
        if runtime is not None and runtime.loop is not asyncio.get_running_loop():
            if runtime.loop.is_closed():
                return
            raise UsageError("a client is closed in the event loop in which it was connected")
        self._closed = True
        if runtime is not None:
            await runtime.close()

    def __del__(self) -> None:
        if getattr(self, "_runtime", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def _abandon(self) -> None:
        """Refuse every use in a forked child."""
        self._closed = self._forked = True

    @property
    def _living(self) -> ClientRuntime:
        if self._forked:
            raise _closed(forked("the client"))
        if self._closed or self._runtime is None:
            raise _closed("the client is closed" if self._closed else "the client is not connected")
        return self._runtime

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            try:
                self._on_event(event)
            except CALLBACK_ERRORS:
                logger.exception("on_event failed for %r", event)

    def _not_permitted(self, subject: str) -> None:
        if self._runtime is not None:
            self._runtime.publisher.not_permitted(subject)

    # Publishing

    async def publish(
        self,
        channel: str,
        data: bytes,
        *,
        reply: str = "",
        ack_timeout: Duration | None = None,
    ) -> str:
        """Publish a message and wait until the server has stored it.

        Nothing is sent twice: servers do not recognise repeats. Cancelling takes the message back
        if it is not sent yet; after that only the wait is abandoned.

        Args:
            channel: a name without wildcards, such as `orders.new`; the server creates it.
            data: the message.
            reply: a subject for replies, which subscribers get with the message.
            ack_timeout: seconds from sending to the ack; None is the client's.

        Returns:
            The id that the message had on its way (guid).

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            AckTimeout: no ack in time; it may be stored or not.
            PublishOutcomeUnknown: the client was closed, or lost its session, before the ack; same.
            PublishRefused: the server did not store it; its words are in `code`.
            PublishNotPermitted: NATS does not let this user publish to the channel.
            PublishTimeout: no room in the window, or no session, for publish_timeout; it is not
                stored.
            PublishNotSent: the client was closed, or lost its session, before it was sent; same.
            SessionLost: the client has no session and will have no other.
            ConnectionFailed: the NATS connection is closed.
            ClientClosed: the client is closed, or was never connected.
        """
        publish = await self.publish_async(channel, data, reply=reply, ack_timeout=ack_timeout)
        return await publish

    async def publish_async(
        self,
        channel: str,
        data: bytes,
        *,
        reply: str = "",
        ack_timeout: Duration | None = None,
    ) -> Publish:
        """Publish a message and return the future of its ack, once there is room in the window.

        Messages are sent in the order of these calls. Arguments and errors are those of `publish`;
        what goes wrong before the message is registered is raised here, the rest by the future.
        Cancelling this call leaves nothing behind; cancelling the future takes the message back if
        it is not sent yet.
        """
        runtime = self._living
        if type(channel) is not str or channel not in self._channels:
            self._check_new_channel(channel)
        check_bytes(data, "data")
        if reply:
            _check_reply(reply)
        timeout = None if ack_timeout is None else timer_seconds(ack_timeout, "ack_timeout")
        runtime.check()
        publisher = runtime.publisher
        publish = publisher.submit_now(channel, data, reply, timeout)
        return publish or await publisher.submit(channel, data, reply, timeout)

    def _check_new_channel(self, channel: str) -> None:
        check_channel(channel)
        if len(self._channels) >= _MOST_CHANNELS:
            self._channels.clear()
        self._channels.add(channel)

    # Subscribing

    def subscribe(
        self,
        channel: str,
        *,
        queue: str = "",
        durable: str = "",
        start: StartAt | None = None,
        manual_ack: bool = False,
        ack_wait: Duration = 30,
        max_in_flight: int = 1024,
    ) -> Subscription:
        """Create a subscription, which is opened by entering it (`async with`).

        Args:
            channel: a name without wildcards.
            queue: the queue group to be a member of: each of its messages goes to one member.
                Empty: none.
            durable: the name under which the server keeps what was acked while the subscription is
                closed, for this client id; in a queue group for all members. Empty: it keeps
                nothing.
            start: where to start; None: `StartAt.new_only()`. The server ignores it if the durable
                or the queue group exists.
            manual_ack: True to ack each message by `Message.ack`.
            ack_wait: whole seconds after which the server delivers an unacked message again.
            max_in_flight: unacked messages at which the server sends no further ones, but for
                those that it delivers again.

        Raises:
            InvalidRequest: an argument is invalid.
            ClientClosed: the client is closed, or was never connected.
        """
        plan = SubscriptionPlan(
            channel=channel,
            queue=queue,
            durable=durable,
            start=StartAt.new_only() if start is None else start,
            manual_ack=manual_ack,
            ack_wait=whole_seconds(ack_wait, "ack_wait"),
            max_in_flight=max_in_flight,
        )
        return Subscription(plan, self._living)


def _check_reply(reply: str) -> None:
    check_text(reply, "reply")
    problem = reply_problem(reply)
    if problem:
        raise InvalidRequest(f"{problem}: {reply!r}")


def _closed(text: str) -> ClientClosed:
    error = ClientClosed(text)
    error.hint = "use `async with stan.Client(...)`, or connect() first; a closed one stays closed"
    return error
