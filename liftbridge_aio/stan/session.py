"""One session at the server: its subjects, its inboxes and its requests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from liftbridge_aio.errors import MalformedData, ServerError, UnsupportedByServer
from liftbridge_aio.nats.library import Msg, Subscription
from liftbridge_aio.wire import stan
from liftbridge_aio.wire.strict import parse_flat

from .core.pings import PingMonitor
from .errors import (
    ClientIdTaken,
    CloseTimeout,
    NoStreamingServer,
    SessionLost,
    StreamingError,
    SubscribeTimeout,
    UnsubscribeTimeout,
)
from .link import NoResponders, StreamingLink, is_no_responders
from .options import ClientOptions, SubscriptionPlan

_PROTOCOL: Final = 1
_ID_TAKEN: Final = "stan: clientID already registered"
_ACKS: Final = "_STAN.acks"
"""Prefix of the subjects of acks, which operators permit by name."""


class Session:
    """A session at the server.

    Args:
        link: the connection to NATS.
        client_id: the id of the client.
        options: the options of the client.
        take_ack: called with each message on the subject of publish acks.
        lost: called once if the server does not know the session any more.
    """

    def __init__(
        self,
        link: StreamingLink,
        client_id: str,
        options: ClientOptions,
        take_ack: Callable[[Msg], None],
        lost: Callable[[SessionLost], None],
    ) -> None:
        self.connection_id = secrets.token_hex(11).encode()
        self.ack_subject = f"{_ACKS}.{secrets.token_hex(11)}"
        self.subjects = stan.ConnectResponse()
        self.answered: bool = False
        """True once a ping was answered, until `expect_answer`."""
        self._link = link
        self._client_id = client_id
        self._options = options
        self._take_ack = take_ack
        self._lost = lost
        self._pings = PingMonitor(options.ping_max_out)
        self._inboxes: list[Subscription] = []
        self._ping_inbox = ""

    # Opening and closing

    async def open(self, cluster: str, timeout: float) -> None:
        """Register at the server. Cancelling or failing leaves nothing behind here.

        Raises:
            NoStreamingServer: nobody answered.
            ClientIdTaken: another client with this id is connected.
            StreamingError: the server refused it.
            ConnectionFailed: the connection is closed or lost.
        """
        link, options = self._link, self._options
        try:
            heartbeats = link.new_inbox()
            self._ping_inbox = link.new_inbox()
            for subject, callback in (
                (heartbeats, self._answer_heartbeat),
                (self._ping_inbox, self._take_ping_answer),
                (self.ack_subject, self._take_ack),
            ):
                self._inboxes.append(await link.listen(subject, callback))
            request = stan.ConnectRequest(
                client_id=self._client_id,
                heartbeat_inbox=heartbeats,
                protocol=_PROTOCOL,
                conn_id=self.connection_id,
                ping_interval=options.ping_interval,
                ping_max_out=options.ping_max_out,
            )
            self.subjects = await self._connect(cluster, request, timeout)
        except BaseException:
            await self.release()
            raise

    async def _connect(
        self, cluster: str, request: stan.ConnectRequest, timeout: float
    ) -> stan.ConnectResponse:
        subject = f"{self._options.discover_prefix}.{cluster}"
        try:
            reply = await self._link.request(subject, bytes(request), timeout)
        except NoResponders:
            text = f"no streaming server of the cluster {cluster!r} listens"
            raise NoStreamingServer(text) from None
        except TimeoutError:
            text = f"no streaming server of the cluster {cluster!r} answered in {timeout:g} s"
            raise NoStreamingServer(text) from None
        response = parse_flat(stan.ConnectResponse, reply)
        if response.error:
            raise _error(response.error)
        if not (response.pub_prefix and response.sub_requests and response.close_requests):
            raise MalformedData("the answer to the request to connect names no subjects")
        return response

    async def close(self, timeout: float) -> None:
        """Tell the server that the client leaves.

        Raises:
            CloseTimeout: no answer in time.
            StreamingError: the server refused it.
            ConnectionFailed: the connection is closed or lost.
        """
        request = stan.CloseRequest(client_id=self._client_id)
        try:
            reply = await self._link.request(self.subjects.close_requests, bytes(request), timeout)
        except (NoResponders, TimeoutError):
            raise CloseTimeout("the server did not answer the request to close") from None
        error = parse_flat(stan.CloseResponse, reply).error
        if error:
            raise _error(error)

    async def release(self) -> None:
        """End the inboxes."""
        inboxes, self._inboxes = self._inboxes, []
        await self._link.forget(*inboxes)

    # Heartbeats and pings

    def _answer_heartbeat(self, message: Msg) -> None:
        if message.reply and self._link.is_up:
            self._link.send(_Note(message.reply, b""))

    def ping(self) -> None:
        """Send a ping; the session is lost if too many are unanswered."""
        if not self.subjects.ping_requests:
            return  # a server of protocol 0
        if not self._pings.ping():
            self._lost(SessionLost("the server has not answered pings for too long"))
        elif self._link.is_up:
            ping = bytes(stan.Ping(conn_id=self.connection_id))
            self._link.send(_Note(self.subjects.ping_requests, ping, self._ping_inbox))

    def _take_ping_answer(self, message: Msg) -> None:
        if is_no_responders(message):
            return  # no server is there, which is no answer of one
        try:
            error = parse_flat(stan.PingResponse, message.data).error
        except MalformedData:
            return
        if error:
            self._lost(SessionLost(f"the server does not know the session: {error}"))
        else:
            self._pings.answered()
            self.answered = True

    # Subscriptions

    async def subscribe(self, plan: SubscriptionPlan, inbox: str, timeout: float) -> str:
        """Create a subscription at the server and return its ack inbox.

        Raises:
            SubscribeTimeout: no answer in time; the server was asked to forget it.
            StreamingError: the server refused it.
            ConnectionFailed: the connection is closed or lost.
        """
        request = stan.SubscriptionRequest(
            client_id=self._client_id,
            subject=plan.channel,
            q_group=plan.queue,
            inbox=inbox,
            max_in_flight=plan.max_in_flight,
            ack_wait_in_secs=plan.ack_wait,
            durable_name=plan.durable,
            **plan.start.request_fields(time.time_ns()),
        )
        where = f"the request to subscribe to {plan.channel!r}"
        try:
            reply = await self._link.request(self.subjects.sub_requests, bytes(request), timeout)
        except NoResponders:
            raise SubscribeTimeout(f"no server listens for {where}") from None
        except TimeoutError:
            self._forget(plan, inbox)
            raise SubscribeTimeout(f"{where} was not answered in {timeout:g} s") from None
        response = parse_flat(stan.SubscriptionResponse, reply)
        if response.error:
            raise _error(response.error)
        return response.ack_inbox

    def _forget(self, plan: SubscriptionPlan, inbox: str) -> None:
        """Ask the server to close a subscription that it may have created after all."""
        if self.subjects.sub_close_requests:
            request = stan.UnsubscribeRequest(
                client_id=self._client_id, subject=plan.channel, inbox=inbox
            )
            self._link.send(_Note(self.subjects.sub_close_requests, bytes(request)))

    async def end_subscription(
        self, plan: SubscriptionPlan, ack_inbox: str, timeout: float, *, delete: bool
    ) -> None:
        """Close a subscription at the server, or delete it and its durable.

        Raises:
            UnsubscribeTimeout: no answer in time.
            UnsupportedByServer: the server cannot close without deleting.
            StreamingError: the server refused it.
            ConnectionFailed: the connection is closed or lost.
        """
        subjects = self.subjects
        subject = subjects.unsub_requests if delete else subjects.sub_close_requests
        if not subject:
            raise UnsupportedByServer("the server can only unsubscribe, which deletes durables")
        request = stan.UnsubscribeRequest(
            client_id=self._client_id,
            subject=plan.channel,
            inbox=ack_inbox,
            durable_name=plan.durable,
        )
        try:
            reply = await self._link.request(subject, bytes(request), timeout)
        except (NoResponders, TimeoutError):
            text = f"the request to end the subscription to {plan.channel!r} was not answered"
            raise UnsubscribeTimeout(text) from None
        error = parse_flat(stan.SubscriptionResponse, reply).error
        if error:
            raise _error(error)


class _Note:
    """Something small to be sent once, whose loss does no harm."""

    def __init__(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._prepared = subject, payload, reply

    def prepare(self) -> tuple[str, bytes, str]:
        return self._prepared

    def failed(self, error: Exception) -> None:
        """Do nothing: it is sent again in time, or the server notices."""


def _error(text: str) -> ServerError:
    kind = ClientIdTaken if text == _ID_TAKEN else StreamingError
    error = kind(f"the server says: {text}")
    error.text = text
    return error
