"""Publishes between the call and their outcome: the window, the acks and the deadlines."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from liftbridge_aio._core.message_lane import publish_head
from liftbridge_aio._runtime.nats_library import errors
from liftbridge_aio._runtime.window import Window
from liftbridge_aio.errors import (
    AckTimeout,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishRefused,
    PublishTimeout,
)
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.wire.stan_codec import decode_publish_ack, encode_publish, publish_start

from .errors import PublishNotPermitted
from .link import Prepared, StreamingLink, forbidden_subject
from .options import ClientOptions
from .session import Session

logger = logging.getLogger("liftbridge_aio.stan")

_SWEEPS_A_WAIT: Final = 5
"""Checks of deadlines within the shortest timeout of a message."""
_SLOWEST_SWEEP: Final = 0.25
_QUICKEST_SWEEP: Final = 0.01
_MAX_HEADS: Final = 1024
"""Channels whose encoding is kept."""
_HINT_FOR_UNKNOWN: Final = "make repeats harmless; servers do not recognise them"
_HINT_FOR_INVALID: Final = (
    "the server does not know the session; it is safe to publish again once there is another"
)
_INVALID: Final = "stan: invalid publish request"
"""The words of servers to a session that they do not know."""


class PublishCounts(NamedTuple):
    """Figures of the publishes of a client."""

    in_flight: int
    """Publishes that are not settled."""
    in_flight_bytes: int
    waiting: int
    """Publishes that wait for room."""
    sent: int
    acked: int
    refused: int
    """Acks that said no."""
    timed_out: int
    """Publishes whose ack did not come in time."""
    unmatched: int
    """Acks of publishes that had been given up, or of nobody's."""

    @classmethod
    def empty(cls) -> Self:
        """Return the figures of a client that was never connected."""
        return cls(*[0] * len(cls._fields))


class Publish(asyncio.Future[str]):
    """The future of a publish: its result is `guid`, once the server has stored the message.

    Cancelling takes the message back if it is not sent yet.
    """

    __slots__ = (
        "_publisher",
        "ack_timeout",
        "channel",
        "data",
        "deadline",
        "guid",
        "key",
        "reconnects",
        "reply",
        "sent",
        "size",
    )

    guid: str
    """The id of the message, which its ack names."""
    key: bytes
    """The same as it is sent."""
    channel: str
    data: bytes
    """Empty once it is sent."""
    reply: str
    size: int
    sent: bool
    reconnects: int | None
    """Reconnects of the NATS connection when it was sent."""
    deadline: float
    """Loop time until which it must be sent, and then acked."""
    ack_timeout: float
    """Seconds from sending to the ack."""
    _publisher: Publisher

    def prepare(self) -> Prepared | None:
        """Encode it for the session of now."""
        if self.done():
            self._publisher.forget(self)  # cancelled
            return None
        return self._publisher.encode(self)

    def failed(self, error: Exception) -> None:
        """Fail, as nats-py did not send it."""
        self._publisher.fail(self, _refusal(error))


class Publisher:
    """The publishes in flight; settles each of them once.

    Args:
        link: sends them.
        client_id: the id of the client.
        options: the options of the client: limits and timeouts.
        doubt: called when a publish shows that the server may not know the session.
    """

    def __init__(
        self,
        link: StreamingLink,
        client_id: str,
        options: ClientOptions,
        doubt: Callable[[], None],
    ) -> None:
        self.unsettled: dict[bytes, Publish] = {}
        """By guid, oldest first."""
        self._link = link
        self._client_id = client_id
        self._window = Window(options.max_in_flight, options.max_in_flight_bytes)
        self._publish_timeout = timer_seconds(options.publish_timeout)
        self._ack_timeout = timer_seconds(options.ack_timeout)
        self._doubt = doubt
        self._session: Session | None = None
        self._heads: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        """Beginnings of commands and payloads in this session, by channel and reply subject."""
        self._prefix = secrets.token_hex(8)
        self._number = 0
        self._over: str | None = None
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._needed = asyncio.Event()
        self._usual_wait = min(
            _SLOWEST_SWEEP * _SWEEPS_A_WAIT, self._publish_timeout, self._ack_timeout
        )
        self._shortest_wait = self._usual_wait
        self._counts = dict.fromkeys(("sent", "acked", "refused", "timed_out", "unmatched"), 0)

    def statistics(self) -> PublishCounts:
        """Return a snapshot of the statistics."""
        window = self._window
        return PublishCounts(window.messages, window.bytes, window.waiting, **self._counts)

    # Sending

    async def submit(
        self, channel: str, data: bytes, reply: str, ack_timeout: float | None
    ) -> Publish:
        """Wait for room, and send a message on its way.

        Cancelling leaves nothing behind.

        Args:
            channel: the channel.
            data: the message.
            reply: the reply subject, or empty.
            ack_timeout: seconds from sending to the ack; None is that of the options.

        Raises:
            PublishTimeout: no room in time.
            PublishNotSent: the client was closed, or lost its session, before there was room.
        """
        deadline = self._now() + self._publish_timeout
        await self._enter_window(len(data), deadline)
        return self._send(channel, data, reply, ack_timeout, deadline)

    def submit_now(
        self, channel: str, data: bytes, reply: str, ack_timeout: float | None
    ) -> Publish | None:
        """Do as `submit` if there is room; else return None."""
        if not self._window.try_enter(len(data)):
            return None
        deadline = self._now() + self._publish_timeout
        return self._send(channel, data, reply, ack_timeout, deadline)

    def _send(
        self, channel: str, data: bytes, reply: str, ack_timeout: float | None, deadline: float
    ) -> Publish:
        if ack_timeout is None:
            ack_timeout = self._ack_timeout
        else:
            self._shortest_wait = min(self._shortest_wait, ack_timeout)
        self._number += 1
        publish = Publish(loop=self._loop)
        publish.guid = guid = f"{self._prefix}{self._number:x}"
        publish.key = key = guid.encode()
        publish.channel, publish.data, publish.reply, publish.size = channel, data, reply, len(data)
        publish.sent, publish.deadline, publish.ack_timeout = False, deadline, ack_timeout
        publish._publisher = self  # noqa: SLF001 - its own
        if not self.unsettled:
            self._needed.set()
        self.unsettled[key] = publish
        self._link.send(publish)
        return publish

    async def _enter_window(self, size: int, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._window.enter(size)
        except TimeoutError:
            raise PublishTimeout(
                f"no room in the window ({self._window.messages} messages in flight)"
            ) from None
        if self._over is not None:
            self._window.leave(size)
            raise PublishNotSent(f"{self._over} before there was room")

    def encode(self, publish: Publish) -> Prepared | None:
        """Make the message for the session of now, and expect its ack from now on."""
        session = self._session
        if session is None:
            return None
        key = publish.channel, publish.reply
        known = self._heads.get(key)
        if known is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            subject = f"{session.subjects.pub_prefix}.{publish.channel}"
            known = self._heads[key] = (
                publish_head(subject, session.ack_subject),
                publish_start(self._client_id, session.connection_id, *key),
            )
        command, head = known
        payload = encode_publish(head, publish.key, publish.data)
        publish.data, publish.sent, publish.reconnects = b"", True, self._link.confirmed
        publish.deadline = self._now() + publish.ack_timeout
        self._counts["sent"] += 1
        return command, (payload,)

    def use(self, session: Session) -> None:
        """Publish over this session from now on."""
        self._session = session
        self._heads.clear()

    # Settling

    def take_acks(self, arrived: list[bytes]) -> None:
        """Settle what acks are for."""
        unsettled = self.unsettled
        room = count = 0
        for data in arrived:
            try:
                key, error = decode_publish_ack(data)
            except MalformedData as malformed:
                logger.warning("%s", malformed)
                continue
            publish = unsettled.get(key)
            if publish is None:
                self._counts["unmatched"] += 1
            elif error:
                self._refuse(publish, error)
            else:  # as `forget`, but the room of all is given back at once
                del unsettled[key]
                room += publish.size
                count += 1
                if not publish.done():
                    publish.set_result(publish.guid)
        if count:
            self._counts["acked"] += count
            self._window.leave(room, count)

    def _refuse(self, publish: Publish, text: str) -> None:
        self._counts["refused"] += 1
        refusal = PublishRefused(f"the server says: {text}")
        refusal.code = text
        if text == _INVALID:
            refusal.hint = _HINT_FOR_INVALID
            self._doubt()
        self.fail(publish, refusal)

    def fail(self, publish: Publish, error: LiftbridgeError) -> None:
        """Settle a publish with an error; does nothing to one that was given up."""
        self.forget(publish)
        if not publish.done():
            publish.set_exception(error)

    def forget(self, publish: Publish) -> None:
        """Give back the room of a publish, once."""
        if self.unsettled.pop(publish.key, None) is not None:
            publish.data = b""
            self._window.leave(publish.size)

    def not_permitted(self, subject: str) -> None:
        """Fail the oldest publish to a subject, in lower case, that NATS did not let through."""
        if self._session is None:
            return
        prefix = self._session.subjects.pub_prefix
        for publish in self.unsettled.values():
            if publish.sent and f"{prefix}.{publish.channel}".lower() == subject:
                self.fail(publish, _forbidden(subject))
                return

    def lost(self, reason: LiftbridgeError) -> None:
        """Settle what was sent over a session that is lost; the rest waits for another."""
        self._session = None
        for publish in list(self.unsettled.values()):
            if publish.sent:
                self.fail(publish, _unknown("the session was lost before the ack came", reason))

    def end(self, what: str, reason: LiftbridgeError | None = None) -> None:
        """Settle everything, and take nothing more.

        Args:
            what: what has ended the publisher.
            reason: the cause of the errors.
        """
        self._over = what
        for publish in list(self.unsettled.values()):
            error: LiftbridgeError
            if publish.sent:
                error = _unknown(f"{what} before the ack came", reason)
            else:
                error = PublishNotSent(f"{what} before the message was sent")
                error.__cause__ = reason
            self.fail(publish, error)
            publish.exception()  # whoever closes is not told of each that nobody looks at

    async def settled(self) -> None:
        """Wait until every publish so far is settled. Cancelling abandons the wait."""
        waiting = self._window.queue()
        if waiting:
            await asyncio.wait(waiting)
            await asyncio.sleep(0)  # those that were let in are registered now
        if self.unsettled:
            await asyncio.wait(tuple(self.unsettled.values()))

    # Deadlines

    async def run(self) -> None:
        """Enforce deadlines until cancelled."""
        while True:
            await self._needed.wait()
            wait = min(self._shortest_wait / _SWEEPS_A_WAIT, _SLOWEST_SWEEP)
            await asyncio.sleep(max(wait, _QUICKEST_SWEEP))
            self._expire()
            if not self.unsettled:
                self._shortest_wait = self._usual_wait
                self._needed.clear()

    def _expire(self) -> None:
        now = self._now()
        for publish in list(self.unsettled.values()):
            if publish.done():
                self.forget(publish)  # cancelled
            elif publish.deadline <= now:
                self._counts["timed_out"] += publish.sent
                self.fail(publish, self._overdue(publish))

    def _overdue(self, publish: Publish) -> LiftbridgeError:
        if not publish.sent:
            reason = "" if self._link.is_confirmed else f": {self._link.outage}"
            return PublishTimeout(f"the message could not be sent in time{reason}")
        forbidden = forbidden_subject(self._link.last_error)
        prefix = self._session.subjects.pub_prefix if self._session else ""
        if forbidden == f"{prefix}.{publish.channel}".lower():
            return _forbidden(forbidden)  # a connection that was given does not tell at once
        lost = not self._link.is_up or publish.reconnects != self._link.reconnects
        reason = "; the connection to NATS was lost meanwhile" if lost else ""
        error = AckTimeout(f"no ack within {publish.ack_timeout:g} s{reason}")
        error.hint = _HINT_FOR_UNKNOWN
        return error


def _forbidden(subject: str) -> PublishNotPermitted:
    return PublishNotPermitted(f"NATS forbids publishing to {subject}")


def _unknown(text: str, reason: LiftbridgeError | None) -> PublishOutcomeUnknown:
    error = PublishOutcomeUnknown(text)
    error.hint, error.__cause__ = _HINT_FOR_UNKNOWN, reason
    return error


def _refusal(error: Exception) -> LiftbridgeError:
    """Return the public exception for an error that nats-py raised on publish."""
    kind: type[LiftbridgeError] = PublishOutcomeUnknown
    if isinstance(error, errors.MaxPayloadError):
        kind = MessageTooLarge
    elif isinstance(error, errors.BadSubjectError):
        kind = InvalidRequest
    elif isinstance(error, errors.Error):
        kind = PublishNotSent
    refusal = kind(f"nats-py did not send the message: {error!r}")
    refusal.__cause__ = error
    return refusal
