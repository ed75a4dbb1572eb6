"""The connection to NATS that a client uses: one queue of all that it sends, and its requests."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from liftbridge_aio._core.message_lane import (
    MessageLane,
    parse_publish_head,
    publish_commands,
    publish_head,
)
from liftbridge_aio._runtime.nats_library import Msg, NatsConnection, Subscription, errors
from liftbridge_aio._runtime.nats_link import LinkState, NatsLink
from liftbridge_aio._runtime.nats_transport import CheckedTransport
from liftbridge_aio.errors import ConnectionFailed

logger = logging.getLogger("liftbridge_aio.stan")

_DEFAULTS: Final[Mapping[str, Any]] = {"ping_interval": 5, "max_outstanding_pings": 2}
"""A half-open connection is noticed within fifteen seconds."""
_LOOK_INTERVAL: Final = 0.05
"""Seconds between looks whether a lost connection is back: whoever owns it has the callbacks."""
_MOST_AT_ONCE: Final = 512
"""After so many messages others have their turn."""
_MOST_BYTES_AT_ONCE: Final = 2**17
"""The same in bytes, where they are written at once."""
_ENOUGH_AT_ONCE: Final = 128
"""So many messages are written before others have their turn, so that the server is not idle while
a program publishes without ever waiting."""
_NO_RESPONDERS: Final = "503"
_NOT_PERMITTED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


Prepared: TypeAlias = tuple[bytes, Sequence[bytes]]
"""The beginning of the commands (see `publish_head`), and the payloads of the messages."""


class Outgoing(Protocol):
    """The protocol of something in the queue, which is made into bytes when its turn comes."""

    def prepare(self) -> Prepared | None:
        """Return it for the session of now; None if it is not to be sent any more."""

    def failed(self, error: Exception) -> None:
        """Take the error of nats-py, which did not send it."""


class NoResponders(Exception):
    """Nobody listens on the subject of a request."""


class NotPermitted(Exception):
    """NATS does not let this user publish to the subject of a request."""


class StreamingLink:
    """A connection to NATS that sends in order and never makes users wait inside nats-py.

    While NATS is away nothing is given to it. What belongs to a session is not sent, either, until
    the session is confirmed after an outage; requests are.
    """

    _connection: NatsConnection
    """That of nats-py, from `open` on."""

    # State, changed only by methods of this class in the event loop: `_urgent` and `_queue` are
    # sent in this order, `confirmed` is the number of reconnects at which the session was known
    # (None: it is not), `_waiting` has the future of each request by its token.

    def __init__(
        self,
        connection: NatsConnection | Sequence[str],
        arguments: Mapping[str, Any],
        not_permitted: Callable[[str], None],
    ) -> None:
        """Keep what to use.

        Args:
            connection: a connection, or the addresses to connect to.
            arguments: further arguments of nats-py's connect.
            not_permitted: called with the subject, in lower case, of each message that NATS did
                not let through; only for a connection that was not given.
        """
        self._lane = MessageLane()
        self._nats = NatsLink(connection, {**_DEFAULTS, **arguments}, self._on_error, self._lane)
        self._not_permitted = not_permitted
        self._urgent: deque[Outgoing] = deque()
        self._queue: deque[Outgoing] = deque()
        self._filled = asyncio.Event()
        self.confirmed: int | None = None
        self._waiting: dict[str, tuple[str, asyncio.Future[bytes]]] = {}
        self._tokens = 0
        self._inbox = ""
        self._replies: Subscription | None = None

    # State

    @property
    def is_up(self) -> bool:
        """True if NATS is there."""
        return self._nats.state is LinkState.UP

    @property
    def is_over(self) -> bool:
        """True if the connection is closed."""
        connection = self._connection
        return bool(connection.is_closed or connection.is_draining)

    @property
    def is_confirmed(self) -> bool:
        """True if what belongs to the session is sent."""
        return self.is_up and self.confirmed == self._nats.reconnects

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return self._nats.reconnects

    @property
    def last_error(self) -> Exception | None:
        """The last error of NATS."""
        return self._nats.last_error

    @property
    def outage(self) -> str:
        """Return why nothing is sent, while `is_confirmed` is False."""
        if not self.is_up:
            return self._nats.outage
        return "the streaming server has not confirmed that it knows the session"

    def confirm(self, reconnects: int) -> None:
        """Send what belongs to the session: the server knew it after so many reconnects."""
        self.confirmed = reconnects
        self._filled.set()

    def hold(self) -> None:
        """Send nothing that belongs to the session until `confirm`."""
        self.confirmed = None

    @property
    def has_queued(self) -> bool:
        """True if something that belongs to the session waits to be sent."""
        return bool(self._queue)

    def check(self) -> None:
        """Refuse to send over a connection that is closed; see `NatsLink.check`."""
        self._nats.check()

    # Opening and closing

    async def open(self, timeout: float) -> None:
        """Connect, unless the connection was given; see `NatsLink.open`."""
        await self._nats.open(timeout)
        self._connection = self._nats.connection

    async def start(self) -> None:
        """Listen for replies to requests.

        Raises:
            ConnectionFailed: the connection is closed.
        """
        self._inbox = self.new_inbox()
        self._replies = await self.listen(f"{self._inbox}.*", self._take_reply)

    async def close(self, timeout: float) -> None:
        """Release the connection; see `NatsLink.close`."""
        if self._replies is not None:
            await self.forget(self._replies)
        await self._nats.close(timeout)

    # Sending

    def send(self, outgoing: Outgoing) -> None:
        """Append what belongs to the session to the queue."""
        if not self._queue:
            self._filled.set()
        self._queue.append(outgoing)
        if len(self._queue) >= _ENOUGH_AT_ONCE:
            self.write_now()

    def write_now(self) -> None:
        """Write what is in the queue, if the connection takes it without a wait."""
        transport = self._nats.transport
        if transport is not None and not transport.backlog and self.is_confirmed:
            self._write(transport)

    def is_last(self, outgoing: Outgoing) -> bool:
        """Return True if something waits in the queue and nothing was appended after it."""
        return bool(self._queue) and self._queue[-1] is outgoing

    def send_now(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send something whose loss does no harm before the queue; drop it while NATS is away."""
        if self.is_up:
            self._urgent.append(_Note(subject, payload, reply))
            self._filled.set()

    async def run(self) -> None:
        """Send what is in the queues, until cancelled."""
        while True:
            await self._filled.wait()
            for _ in range(_MOST_AT_ONCE):
                if not self._urgent or not self.is_up:
                    break
                await self._give_to_nats_py(self._urgent.popleft())
            while self._queue and self.is_confirmed:
                transport = self._nats.transport
                if transport is not None and self._write(transport):
                    await _drain(transport)
                elif self._queue:
                    await self._give_to_nats_py(self._queue.popleft())
                if self._urgent:
                    break
            if not self._urgent and not self._queue:
                self._filled.clear()
            else:
                await asyncio.sleep(0 if self.is_confirmed else _LOOK_INTERVAL)

    def _write(self, transport: CheckedTransport) -> bool:
        """Write what begins the queue, past nats-py, which has nothing to add to it.

        nats-py writes later what it is given. So this is not for requests, as the subscription to
        their replies must come first; and what is written here overtakes nothing that matters.

        Returns:
            False if nothing was written.
        """
        written: list[bytes] = []
        size, limit, queue = 0, self._connection.max_payload, self._queue
        while queue and size < _MOST_BYTES_AT_ONCE and type(queue[0]) is not _Note:
            outgoing = queue.popleft()
            prepared = outgoing.prepare()
            if prepared is None:
                continue
            commands = publish_commands(*prepared)
            if len(commands) > limit and max(map(len, prepared[1])) > limit:
                outgoing.failed(errors.MaxPayloadError())
                continue
            written.append(commands)
            size += len(commands)
        if written:
            try:
                transport.write(b"".join(written))
            except errors.Error as error:
                _note_broken(error)
        return bool(written)

    async def _give_to_nats_py(self, outgoing: Outgoing) -> None:
        prepared = outgoing.prepare()
        if prepared is None:
            return
        subject, reply = parse_publish_head(prepared[0])
        try:
            for payload in prepared[1]:  # whatever nats-py refuses, it refuses before it waits
                await self._connection.publish(subject, payload, reply)
        except Exception as error:  # noqa: BLE001 - whoever waits for it hears of it
            outgoing.failed(error)

    # Receiving

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses."""
        return self._connection.new_inbox()

    async def listen_for_many(
        self, subject: str, take: Callable[[list[bytes]], None], nobody: Callable[[], None]
    ) -> Subscription:
        """Subscribe to a subject to which much comes.

        Args:
            subject: the subject, without wildcards.
            take: called with the payloads of messages that came together.
            nobody: called when NATS says that nobody listens to what had this reply subject.

        Raises:
            ConnectionFailed: the connection is closed.
        """

        def take_all(payloads: list[bytes]) -> None:
            try:
                take(payloads)
            except Exception:
                # It is a bug, which must not end the task of nats-py that reads.
                logger.exception("what came to %s could not be read", subject)

        def receive(message: Msg) -> None:
            if is_no_responders(message):
                nobody()
            else:
                take_all([message.data])

        self._lane.takers[subject.encode()] = take_all
        return await self.listen(subject, receive)

    async def listen(self, subject: str, callback: Callable[[Msg], None]) -> Subscription:
        """Subscribe to a subject. What comes is never dropped, so somebody else must bound it.

        Raises:
            ConnectionFailed: the connection is closed.
        """

        async def receive(message: Msg) -> None:
            callback(message)

        try:
            return await self._connection.subscribe(
                subject, cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
        except errors.Error as error:
            raise ConnectionFailed(f"{subject} cannot be subscribed to: {error!r}") from error

    async def forget(self, *subscriptions: Subscription) -> None:
        """End subscriptions; does nothing to those that have ended."""
        for each in subscriptions:
            self._lane.takers.pop(each.subject.encode(), None)
            try:
                await each.unsubscribe()
            except errors.Error:
                continue  # it, or the connection, is closed

    # Requests

    async def request(
        self, subject: str, payload: bytes, timeout: float, *, in_turn: bool = False
    ) -> bytes:
        """Send a request, once NATS is there, and return the payload of the reply.

        Cancelling abandons the wait.

        Args:
            subject: where to.
            payload: the request.
            timeout: seconds for all.
            in_turn: True to send it after what is queued, such as acks, and like that only in a
                session that the server knows.

        Raises:
            NoResponders: nobody listens on the subject.
            NotPermitted: NATS does not let this user publish to it.
            TimeoutError: no reply in time.
            ConnectionFailed: the connection is closed.
        """
        self.check()
        self._tokens += 1
        token = str(self._tokens)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = subject.lower(), reply
        queue = self._queue if in_turn else self._urgent
        queue.append(_Note(subject, payload, f"{self._inbox}.{token}", reply))
        self._filled.set()
        try:
            async with asyncio.timeout(timeout):
                return await reply
        finally:
            del self._waiting[token]

    def _take_reply(self, message: Msg) -> None:
        _, reply = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if reply is None or reply.done():
            return
        if is_no_responders(message):
            reply.set_exception(NoResponders())
        else:
            reply.set_result(message.data)

    def _on_error(self, error: Exception) -> None:
        """Tell those whom it concerns that NATS does not permit what they sent."""
        subject = forbidden_subject(error)
        if not subject:
            return
        for requested, reply in self._waiting.values():
            if requested == subject and not reply.done():
                reply.set_exception(NotPermitted(subject))
                return
        self._not_permitted(subject)


def is_no_responders(message: Msg) -> bool:
    """Return True if NATS says by this message that nobody listens on the subject of a request."""
    return message.headers is not None and message.headers.get("Status") == _NO_RESPONDERS


def forbidden_subject(error: Exception | None) -> str:
    """Return the subject, in lower case, that NATS forbids to publish or subscribe to.

    It is empty for other errors.
    """
    found = _NOT_PERMITTED.search(str(error).lower())
    return found[2] if found else ""


class _Note:
    """Something small to be sent once, whose loss does no harm."""

    __slots__ = ("_answer", "_prepared")

    def __init__(
        self, subject: str, payload: bytes, reply: str, answer: asyncio.Future[bytes] | None = None
    ) -> None:
        self._prepared = publish_head(subject, reply), (payload,)
        self._answer = answer

    def prepare(self) -> Prepared | None:
        """Return it, unless it is a request that nobody waits for any more."""
        return None if self._answer is not None and self._answer.done() else self._prepared

    def failed(self, error: Exception) -> None:
        """Do nothing: who waits for an answer has a timeout."""


async def _drain(transport: CheckedTransport) -> None:
    try:
        await transport.drain()
    except (OSError, errors.Error) as error:
        _note_broken(error)


def _note_broken(error: Exception) -> None:
    logger.debug("the connection to NATS broke while it was written to: %r", error)
