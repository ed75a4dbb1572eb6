"""One session at the server: its subjects, its inboxes, its requests and its pings."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from liftbridge_aio._runtime.nats_library import Msg, Subscription
from liftbridge_aio.errors import (
    LiftbridgeError,
    MalformedData,
    RequestTimeout,
    ServerError,
    UnsupportedByServer,
)
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.wire import stan
from liftbridge_aio.wire.hot_schema import PARSE_ERRORS
from liftbridge_aio.wire.stan_codec import decode_message
from liftbridge_aio.wire.strict import parse_flat

from .core.pings import PingMonitor
from .core.progress import Place
from .core.start import StartAt
from .errors import (
    ClientIdTaken,
    CloseTimeout,
    NoStreamingServer,
    RequestNotPermitted,
    SessionLost,
    StreamingError,
    SubscribeTimeout,
    UnsubscribeTimeout,
)
from .link import NoResponders, NotPermitted, StreamingLink, is_no_responders
from .options import ClientOptions, SubscriptionPlan

_PROTOCOL: Final = 1
_LOOK: Final = 1.0
"""Seconds in which the server sends a message that the channel has."""
_ACKS: Final = "_STAN.acks"
"""Prefix of the subjects of publish acks, which operators know and permit."""
_ID_TAKEN: Final = "stan: clientID already registered"


class Session:
    """A session at the server.

    Args:
        link: the connection to NATS.
        client_id: the id of the client.
        options: the options of the client.
        take_acks: called with what came to the subject of publish acks.
        nobody: called when NATS says that no server listens.
        answered: called when the server has answered a ping.
        lost: called with the session when the server does not know it any more.
    """

    def __init__(
        self,
        link: StreamingLink,
        client_id: str,
        options: ClientOptions,
        *,
        take_acks: Callable[[list[bytes]], None],
        nobody: Callable[[], None],
        answered: Callable[[Session], None],
        lost: Callable[[Session, SessionLost], None],
    ) -> None:
        self.connection_id = secrets.token_hex(11).encode()
        self.ack_subject = f"{_ACKS}.{secrets.token_hex(11)}"
        self.subjects = stan.ConnectResponse()
        self._link = link
        self._client_id = client_id
        self._options = options
        self._take_acks = take_acks
        self._nobody = nobody
        self._answered = answered
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
            RequestNotPermitted: NATS refused it.
            ConnectionFailed: the connection is closed.
        """
        link, options = self._link, self._options
        try:
            heartbeats = link.new_inbox()
            self._ping_inbox = link.new_inbox()
            for subject, callback in (
                (heartbeats, self._answer_heartbeat),
                (self._ping_inbox, self._take_ping_answer),
            ):
                self._inboxes.append(await link.listen(subject, callback))
            acks = await link.listen_for_many(self.ack_subject, self._take_acks, self._nobody)
            self._inboxes.append(acks)
            request = stan.ConnectRequest(
                client_id=self._client_id,
                heartbeat_inbox=heartbeats,
                protocol=_PROTOCOL,
                conn_id=self.connection_id,
                ping_interval=options.ping_interval,
                ping_max_out=options.ping_max_out,
            )
            where = f"{options.discover_prefix}.{cluster}"
            missing = NoStreamingServer(
                f"no streaming server of the cluster {cluster!r} has answered in {timeout:g} s"
            )
            reply = await self._ask(where, bytes(request), timeout, missing)
            response = parse_flat(stan.ConnectResponse, reply)
            _check(response.error)
            if not (response.pub_prefix and response.sub_requests and response.close_requests):
                raise MalformedData("the answer to the request to connect names no subjects")
            self.subjects = response
        except BaseException:
            await self.release()
            raise

    async def close(self, timeout: float) -> None:
        """Tell the server that the client leaves.

        Raises:
            CloseTimeout: no answer in time.
            StreamingError: the server refused it.
            RequestNotPermitted: NATS refused it.
            ConnectionFailed: the connection is closed.
        """
        request = stan.CloseRequest(client_id=self._client_id)
        missing = CloseTimeout(f"no answer to the request to close the session in {timeout:g} s")
        subject = self.subjects.close_requests
        reply = await self._ask(subject, bytes(request), timeout, missing, in_turn=True)
        _check(parse_flat(stan.CloseResponse, reply).error)

    async def release(self) -> None:
        """End the inboxes: the session does not answer heartbeats any more."""
        inboxes, self._inboxes = self._inboxes, []
        await self._link.forget(*inboxes)

    async def _ask(
        self,
        subject: str,
        request: bytes,
        timeout: float,
        missing: LiftbridgeError,
        *,
        in_turn: bool = False,
    ) -> bytes:
        """Send a request; raise `missing` if no answer comes."""
        try:
            return await self._link.request(subject, request, timeout, in_turn=in_turn)
        except NoResponders:
            missing.message += ": nobody listens to such requests"
            raise missing from None
        except TimeoutError:
            if not self._link.is_up:
                missing.message += f": {self._link.outage}"
            raise missing from None
        except NotPermitted:
            raise RequestNotPermitted(
                f"NATS forbids publishing to {subject}"
            ) from self._link.last_error

    # Heartbeats and pings

    def _answer_heartbeat(self, message: Msg) -> None:
        if message.reply:
            self._link.send_now(message.reply, b"")

    @property
    def can_ping(self) -> bool:
        """False with a server of protocol 0, which does not answer pings."""
        return bool(self.subjects.ping_requests)

    def ping(self) -> None:
        """Send a ping in turn; the session is lost if too many are unanswered."""
        if self._pings.ping():
            self.probe()
        else:
            text = f"the server has not answered {self._options.ping_max_out} pings"
            self._lost(self, SessionLost(text))

    def probe(self) -> None:
        """Send a ping out of turn."""
        ping = bytes(stan.Ping(conn_id=self.connection_id))
        self._link.send_now(self.subjects.ping_requests, ping, self._ping_inbox)

    def _take_ping_answer(self, message: Msg) -> None:
        if is_no_responders(message):
            self._nobody()  # which is no answer of a server
            return
        try:
            error = parse_flat(stan.PingResponse, message.data).error
        except MalformedData:
            return
        if error:
            self._lost(self, SessionLost(f"the server does not know the session: {error}"))
        else:
            self._pings.answered()
            self._answered(self)

    # Subscriptions

    async def subscribe(
        self, plan: SubscriptionPlan, start: StartAt, inbox: str, timeout: float
    ) -> str:
        """Create a subscription at the server and return its ack inbox.

        Cancelling asks the server to forget it.

        Raises:
            SubscribeTimeout: no answer in time; the server was asked to forget it.
            StreamingError: the server refused it.
            RequestNotPermitted: NATS refused it.
            ConnectionFailed: the connection is closed.
        """
        request = stan.SubscriptionRequest(
            client_id=self._client_id,
            subject=plan.channel,
            q_group=plan.queue,
            inbox=inbox,
            max_in_flight=plan.max_in_flight,
            ack_wait_in_secs=plan.ack_wait,
            durable_name=plan.durable,
            **start.request_fields(time.time_ns()),
        )
        text = f"no answer to the request to subscribe to {plan.channel!r} in {timeout:g} s"
        try:
            reply = await self._ask(
                self.subjects.sub_requests, bytes(request), timeout, SubscribeTimeout(text)
            )
            response = parse_flat(stan.SubscriptionResponse, reply)
            _check(response.error)
        except ServerError:
            raise
        except BaseException:
            self._forget(plan, inbox)  # the server may have created it after all
            raise
        return response.ack_inbox

    async def first_from(self, plan: SubscriptionPlan, sequence: int) -> Place | None:
        """Return the first message of a channel from a sequence on; None if none comes soon.

        A subscription of its own looks for it, which acks nothing and leaves nothing behind.

        Raises:
            SubscribeTimeout: no answer in time.
            RequestNotPermitted: NATS refused it.
            ConnectionFailed: the connection is closed.
        """
        first: asyncio.Future[Place] = asyncio.get_running_loop().create_future()

        def take(arrived: list[bytes]) -> None:
            for data in arrived:
                with suppress(*PARSE_ERRORS):
                    message = decode_message(data)
                    if message.sequence and not first.done():
                        first.set_result(Place(message.sequence, message.timestamp))

        start = StartAt.sequence(sequence)
        look = SubscriptionPlan(
            channel=plan.channel, start=start, ack_wait=plan.ack_wait, max_in_flight=1
        )
        inbox = self._link.new_inbox()
        listening = await self._link.listen_for_many(inbox, take, lambda: None)
        try:
            await self.subscribe(look, start, inbox, timer_seconds(self._options.request_timeout))
            async with asyncio.timeout(_LOOK):
                return await first
        except (ServerError, TimeoutError) as error:
            if isinstance(error, SubscribeTimeout):
                raise
            return None  # refused, or nothing came
        finally:
            self._forget(look, inbox)
            await self._link.forget(listening)

    def _forget(self, plan: SubscriptionPlan, inbox: str) -> None:
        closing = self.subjects.sub_close_requests
        if not (closing or plan.durable):
            closing = self.subjects.unsub_requests
        if closing:
            request = stan.UnsubscribeRequest(
                client_id=self._client_id, subject=plan.channel, inbox=inbox
            )
            self._link.send_now(closing, bytes(request))

    async def end_subscription(
        self, plan: SubscriptionPlan, ack_inbox: str, timeout: float, *, delete: bool
    ) -> None:
        """Close a subscription at the server, or delete it and its durable.

        Raises:
            UnsubscribeTimeout: no answer in time.
            UnsupportedByServer: the server cannot close without deleting.
            StreamingError: the server refused it.
            RequestNotPermitted: NATS refused it.
            ConnectionFailed: the connection is closed.
        """
        subjects = self.subjects
        closing = "" if delete else subjects.sub_close_requests
        subject = closing or (subjects.unsub_requests if delete or not plan.durable else "")
        if not subject:
            raise UnsupportedByServer("this server can only unsubscribe, which deletes durables")
        request = stan.UnsubscribeRequest(
            client_id=self._client_id,
            subject=plan.channel,
            inbox=ack_inbox,
            durable_name=plan.durable,
        )
        text = f"no answer to the request to end the subscription to {plan.channel!r}"
        missing: RequestTimeout = UnsubscribeTimeout(text)
        reply = await self._ask(subject, bytes(request), timeout, missing, in_turn=True)
        _check(parse_flat(stan.SubscriptionResponse, reply).error)


def _check(text: str) -> None:
    if text:
        error = (ClientIdTaken if text == _ID_TAKEN else StreamingError)(f"the server says: {text}")
        error.text = text
        raise error
