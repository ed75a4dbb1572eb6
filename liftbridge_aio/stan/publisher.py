"""Publishes between the call and their outcome: the window, the acks and the deadlines."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

from liftbridge_aio._publish.window import Window
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
from liftbridge_aio.nats.library import Msg, errors
from liftbridge_aio.wire.stan_codec import decode_publish_ack, encode_publish, publish_head

from .errors import PublishNotPermitted
from .link import StreamingLink
from .session import Session

logger = logging.getLogger("liftbridge_aio.stan")

_SWEEPS_A_WAIT: Final = 5
"""Checks of deadlines within the shortest timeout of a message."""
_SLOWEST_SWEEP: Final = 0.25
_QUICKEST_SWEEP: Final = 0.01
_MAX_HEADS: Final = 1024
"""Channels whose encoding is kept."""


class Publish(asyncio.Future[str]):
    """The future of a publish: its result is `guid`, once the server has stored the message."""

    __slots__ = (
        "_publisher",
        "ack_timeout",
        "channel",
        "data",
        "deadline",
        "guid",
        "reply",
        "size",
    )

    guid: str
    """The id of the message, which the ack names."""
    channel: str
    data: bytes
    reply: str
    size: int
    deadline: float
    """Loop time until which it must be sent, and then acked."""
    ack_timeout: float
    """Seconds from sending to the ack."""
    _publisher: Publisher

    def prepare(self) -> tuple[str, bytes, str] | None:
        """Encode it for the session of now."""
        return None if self.done() else self._publisher.encode(self)

    def failed(self, error: Exception) -> None:
        """Fail, as nats-py did not send it."""
        self._publisher.fail(self, _refusal(error))


class Publisher:
    """The publishes in flight; settles each of them once.

    Args:
        link: sends them.
        client_id: the id of the client.
        max_messages: publishes that may be unsettled at once.
        max_bytes: the same limit in bytes.
    """

    def __init__(
        self, link: StreamingLink, client_id: str, max_messages: int, max_bytes: int
    ) -> None:
        self.unsettled: dict[str, Publish] = {}
        """By guid, oldest first."""
        self._sent: set[str] = set()
        self._link = link
        self._client_id = client_id
        self._window = Window(max_messages, max_bytes)
        self._session: Session | None = None
        self._heads: dict[tuple[str, str], bytes] = {}
        self._prefix = secrets.token_hex(8)
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._needed = asyncio.Event()
        self._shortest_wait = _SLOWEST_SWEEP * _SWEEPS_A_WAIT

    async def submit(
        self, channel: str, data: bytes, reply: str, publish_timeout: float, ack_timeout: float
    ) -> Publish:
        """Wait for room, and send a message on its way.

        Cancelling leaves nothing behind.

        Raises:
            PublishTimeout: no room in time.
        """
        deadline = self._loop.time() + publish_timeout
        size = len(data)
        if not self._window.try_enter(size):
            try:
                async with asyncio.timeout_at(deadline):
                    await self._window.enter(size)
            except TimeoutError:
                text = f"no room in the window ({self._window.messages} messages in flight)"
                raise PublishTimeout(text) from None
        self._number += 1
        publish = Publish(loop=self._loop)
        publish.guid = f"{self._prefix}{self._number:x}"
        publish.channel, publish.data, publish.reply, publish.size = channel, data, reply, size
        publish.deadline, publish.ack_timeout = deadline, ack_timeout
        publish._publisher = self  # noqa: SLF001 - its own
        self.unsettled[publish.guid] = publish
        self._shortest_wait = min(self._shortest_wait, ack_timeout, publish_timeout)
        self._needed.set()
        self._link.send(publish)
        return publish

    def encode(self, publish: Publish) -> tuple[str, bytes, str] | None:
        """Make the message for the session of now, and expect its ack from now on."""
        session = self._session
        if session is None:
            return None
        key = publish.channel, publish.reply
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = publish_head(self._client_id, session.connection_id, *key)
            self._heads[key] = head
        publish.deadline = self._loop.time() + publish.ack_timeout
        self._sent.add(publish.guid)
        payload = encode_publish(head, publish.guid, publish.data)
        publish.data = b""
        return f"{session.subjects.pub_prefix}.{publish.channel}", payload, session.ack_subject

    def use(self, session: Session) -> None:
        """Publish over this session from now on."""
        self._session = session
        self._heads.clear()

    # Settling

    def take_ack(self, message: Msg) -> None:
        """Settle what an ack is for."""
        try:
            guid, error = decode_publish_ack(message.data)
        except MalformedData as malformed:
            logger.warning("%s", malformed)
            return
        publish = self.unsettled.get(guid)
        if publish is None:
            return
        if error:
            refused = PublishRefused(f"the server says: {error}")
            refused.code = error
            self.fail(publish, refused)
        else:
            self._forget(publish)
            if not publish.done():
                publish.set_result(guid)

    def fail(self, publish: Publish, error: LiftbridgeError) -> None:
        """Settle a publish with an error; does nothing to one that was given up."""
        self._forget(publish)
        if not publish.done():
            publish.set_exception(error)

    def _forget(self, publish: Publish) -> None:
        if self.unsettled.pop(publish.guid, None) is not None:
            self._sent.discard(publish.guid)
            publish.data = b""
            self._window.leave(publish.size)

    def not_permitted(self, subject: str) -> None:
        """Fail the oldest publish to a subject, in lower case, that NATS refused."""
        prefix = self._session.subjects.pub_prefix if self._session else ""
        for guid in self._sent:
            publish = self.unsettled[guid]
            if f"{prefix}.{publish.channel}".lower() == subject:
                self.fail(publish, PublishNotPermitted(f"NATS forbids publishing to {subject}"))
                return

    def fail_all(self, reason: str) -> None:
        """Settle everything: what was sent is unknown, the rest is not sent."""
        for publish in list(self.unsettled.values()):
            sent = publish.guid in self._sent
            kind = PublishOutcomeUnknown if sent else PublishNotSent
            self.fail(publish, kind(f"{reason} before {'the ack came' if sent else 'it was sent'}"))

    async def run(self) -> None:
        """Enforce deadlines until cancelled."""
        while True:
            await self._needed.wait()
            wait = min(self._shortest_wait / _SWEEPS_A_WAIT, _SLOWEST_SWEEP)
            await asyncio.sleep(max(wait, _QUICKEST_SWEEP))
            self._expire()
            if not self.unsettled:
                self._shortest_wait = _SLOWEST_SWEEP * _SWEEPS_A_WAIT
                self._needed.clear()

    def _expire(self) -> None:
        now = self._loop.time()
        for publish in list(self.unsettled.values()):
            if publish.done():
                self._forget(publish)
            elif publish.deadline > now:
                continue
            elif publish.guid in self._sent:
                self.fail(publish, AckTimeout(f"no ack within {publish.ack_timeout:g} s"))
            else:
                reason = "" if self._link.is_up else f": {self._link.outage}"
                self.fail(publish, PublishTimeout(f"it could not be sent in time{reason}"))


def _refusal(error: Exception) -> LiftbridgeError:
    """Return the public exception for an error that nats-py raised on publish."""
    kind: type[LiftbridgeError] = PublishOutcomeUnknown
    if isinstance(error, errors.MaxPayloadError):
        kind = MessageTooLarge
    elif isinstance(error, errors.BadSubjectError):
        kind = InvalidRequest
    elif isinstance(error, errors.Error):
        kind = PublishNotSent
    refusal = kind(f"nats-py refused the message: {error!r}")
    refusal.__cause__ = error
    return refusal
